"""Code in the pods of the sandbox: a folder, a packaged trainer, what git fetches; and its TensorBoard."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8s.jobs.create import create_job, delete_job
from k8s.kinds import JobRef
from k8s.kinds.job_spec import ConfigFile, JobSpec, Mount
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES
from k8s.text.errors import KubeError
from tests import ROOT
from tests.k8s.sandbox.live.running import (
    Manifest,
    Space,
    conditions,
    listening_sockets,
    marked,
    phase,
    pod,
    until_unmarked,
)
from tests.k8s.sandbox.node.test_mpirun import commit, git, make_repository
from trainer.tfevents.writer import EventWriter
from tui.draft.job_files import read_job_files

SCRIPT = """
import os, sys, helper
print(os.environ["RANK"], helper.WORD, open(sys.argv[1]).read().strip())
"""
FETCHED = """
import os, subprocess, sys
os.chdir(os.path.dirname(os.path.realpath(sys.argv[0])))
head = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
print(os.environ["RANK"], head, open("said.txt").read())
"""
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git: apt-get install git")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "helper.py").write_text("WORD = 'mine'\n")
    (code / ".gitignore").write_text("*.ckpt\n")
    (code / "old.ckpt").write_bytes(os.urandom(2**20))
    (tmp_path / "conf.yaml").write_text("lr: 1\n")
    return code


def spec_of(folder: Path, name: str) -> JobSpec:
    return JobSpec(
        name=name,
        image="local",
        workers=2,
        sync_mode="folder",
        sync_source=str(folder),
        config_files=(ConfigFile(str(folder.parent / "conf.yaml"), "/etc/conf.yaml"),),
        command=("python", "/root/code/train.py", "/etc/conf.yaml"),
    )


async def submit(space: Space, spec: JobSpec, **options: Any) -> JobRef:
    """Create a job with its local files in the namespace of a test."""
    return await create_job(
        space.client, PyTorchJob(), replace(spec, namespace=space.name), files=read_job_files(spec), **options
    )


async def logs_of(space: Space, name: str) -> list[str]:
    """Return the logs of master and worker once both have succeeded."""
    said = []
    for place in ("master-0", "worker-0"):
        ended = await space.comes(PODS, f"{name}-{place}", phase("Succeeded", "Failed"))
        said.append((await space.log(f"{name}-{place}", container="pytorch")).strip())
        assert ended["status"]["phase"] == "Succeeded", said
    return said


async def test_a_folder_runs_on_two_workers_and_all_of_it_goes_with_the_job(
    space: Space, folder: Path
) -> None:
    spec = spec_of(folder, "mine")
    for _ in "once", "again under the same name":
        ref = await submit(space, spec)
        assert await logs_of(space, "mine") == ["0 mine lr: 1", "1 mine lr: 1"]
        await delete_job(space.client, ref)
        await space.goes(PODS, "mine-master-0")
        for what in ("code", "files", "pytorchjob"):
            await space.goes(CONFIG_MAPS, f"mine-{what}")


async def test_code_below_a_volume_is_found_from_the_working_directory(space: Space, folder: Path) -> None:
    # The form's default layout: the volume is the working directory, and several jobs share it.
    spec = replace(
        spec_of(folder, "below"),
        mounts=(Mount("workspace", "/workspace"),),
        working_dir="/workspace",
        config_files=(ConfigFile(str(folder.parent / "conf.yaml"), "/workspace/conf/a.yaml"),),
        command=(
            "sh",
            "-c",
            "pwd >&2; python code/train.py conf/a.yaml && (cd code && python train.py train.py)",
        ),
    )
    await space.claim_folder("workspace")
    await submit(space, spec)
    for number, said in enumerate(await logs_of(space, "below")):
        assert said.splitlines()[0].endswith(f"/volumes/{space.name}/workspace")
        assert said.splitlines()[1:3] == [f"{number} mine lr: 1", f"{number} mine import os, sys, helper"]


async def test_a_packaged_trainer_is_imported_from_the_zip_sent_with_the_job(space: Space) -> None:
    command = ("python", "-P", "-c", "import trainer.ranks as ranks; print(ranks.__file__)")
    spec = JobSpec(name="packaged", image="local", workers=2, command=command, trainer="ddp")
    await submit(space, spec)
    assert all(each.endswith("trainer.zip/trainer/ranks.py") for each in await logs_of(space, "packaged"))


async def test_a_large_folder_is_sent_into_the_volume_with_progress(space: Space, folder: Path) -> None:
    (folder / "weights.bin").write_bytes(os.urandom(2 * 2**20))
    spec = spec_of(folder, "large")
    with pytest.raises(KubeError, match=r"Add a writable volume \(-d claim:/path\)"):
        await submit(space, spec)
    await space.claim_folder("workspace")
    spec = replace(spec, mounts=(Mount("workspace", "/workspace"),))
    told: list[tuple[int, int]] = []
    await submit(space, spec, on_upload=lambda sent, total: told.append((sent, total)))
    assert await logs_of(space, "large") == ["0 mine lr: 1", "1 mine lr: 1"]
    total = len(read_job_files(spec).code)
    assert told[-1] == (total, total) and len(told) > 20
    assert told == sorted(told)
    pods = [each["metadata"]["name"] for each in await space.objects(PODS)]
    assert not [name for name in pods if "upload" in name]


def job(name: str, source: str, mode: str, *command: str, **fields: Any) -> JobSpec:
    return JobSpec(
        name=name, image="local", workers=2, sync_mode=mode, sync_source=source, command=command, **fields
    )


@needs_git
@pytest.mark.slow
async def test_two_workers_run_a_commit_of_a_repository_and_the_second_run_the_newest(
    space: Space, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "net")
    (repository / "train.py").write_text(FETCHED)
    first = commit(repository, "first")
    # From the working directory, as Arena's users write it.
    spec = job("fetched", f"file://{repository}", "git", "python", "code/net/train.py", sync_branch="main")
    ref = await submit(space, spec)
    assert await logs_of(space, "fetched") == [f"0 {first} first", f"1 {first} first"]
    await delete_job(space.client, ref)
    await space.goes(PODS, "fetched-master-0")
    second = commit(repository, "second")
    ref = await submit(space, spec)
    assert await logs_of(space, "fetched") == [f"0 {second} second", f"1 {second} second"]
    await delete_job(space.client, ref)
    await space.goes(PODS, "fetched-master-0")
    await submit(space, replace(spec, name="pinned", sync_revision=first))
    assert await logs_of(space, "pinned") == [f"0 {first} first", f"1 {first} first"]
    assert git(repository, "status", "--short") == ""


@needs_git
@pytest.mark.slow
async def test_a_missing_git_branch_is_reported_in_the_pod_status_the_log_and_why(
    space: Space, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "net")
    spec = job("astray", f"file://{repository}", "git", "true", sync_branch="nope", restart_policy="Never")
    await submit(space, spec)

    pod = await space.comes(PODS, "astray-master-0", phase("Failed"))
    why = "Remote branch nope not found in upstream origin"
    ended = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (1, "Error")
    assert why in ended["message"]
    assert why in await space.log("astray-master-0", container="init-code")
    said = await space.gpuconsole("why", "astray")
    # Both pods fetch it, and the first to fail is named.
    first = re.search(r"init container init-code of (\S+) exit 1", said)
    assert first is not None and why in said and f" logs astray -i {first[1]} -c init-code" in said


ARENA = ROOT / "tests" / "fixtures" / "arena"


def made_by_arena(part: str) -> Manifest:
    found: Manifest = json.loads((ARENA / f"pytorch-dist.tensorboard-{part}.json").read_text())
    return found


@pytest.mark.slow
async def test_the_tensorboard_of_an_arena_job_is_reachable_by_port_forward(space: Space) -> None:
    pytest.importorskip("tensorboard")
    folder = await space.claim_folder("training-data")
    with EventWriter(folder / "pytorch_data" / "logs") as events:
        events.write_scalar("train/loss", 1, 0.5)
    await space.create(DEPLOYMENTS, made_by_arena("deployment"))
    service = await space.create(SERVICES, made_by_arena("service"))
    assert "nodePort" not in service["spec"]["ports"][0]
    running = await space.board_pod("pytorch-dist")
    name = running["metadata"]["name"]
    assert await space.scalars(name) == {
        ".": {"train/loss": {"displayName": "train/loss", "description": ""}}
    }
    assert listening_sockets(marked(f"GPUCONSOLE_POD_UID={running['metadata']['uid']}")) == []
    done = await space.comes(
        DEPLOYMENTS, "pytorch-dist-tensorboard", lambda each: each["status"].get("availableReplicas")
    )
    assert conditions(done) == {"Available": "True"}
    assert done["status"]["observedGeneration"] == done["metadata"]["generation"] == 1
    await space.delete(DEPLOYMENTS, "pytorch-dist-tensorboard")
    await space.goes(PODS, name)
    until_unmarked(f"GPUCONSOLE_POD_UID={running['metadata']['uid']}")


async def test_a_deployment_keeps_its_pods_through_deletion_change_and_scale(space: Space) -> None:
    env = [{"name": "MARK", "value": space.name}]
    deployment = made_by_arena("deployment")
    deployment["metadata"] = {"name": "keeps"}
    spec = deployment["spec"]["template"]["spec"]
    for field in ("affinity", "volumes"):
        del spec[field]
    spec["terminationGracePeriodSeconds"] = 1
    spec["containers"] = pod("c", "sleep", "300", container={"env": env})["spec"]["containers"]
    deployment["spec"]["template"]["metadata"]["labels"]["release"] = "keeps"
    deployment["spec"]["selector"]["matchLabels"]["release"] = "keeps"
    await space.create(DEPLOYMENTS, deployment)
    first = await space.board_pod("keeps")
    await space.delete(PODS, first["metadata"]["name"])
    await space.goes(PODS, first["metadata"]["name"])
    second = await space.board_pod("keeps")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    change = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    await space.patch(DEPLOYMENTS, "keeps", change)
    await space.goes(PODS, second["metadata"]["name"])
    third = await space.board_pod("keeps")
    assert third["metadata"]["annotations"] == {"restarted": "now"}
    await space.patch(DEPLOYMENTS, "keeps", {"spec": {"replicas": 0}})
    await space.goes(PODS, third["metadata"]["name"])
    assert marked(space.name) == []
