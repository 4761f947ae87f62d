"""A user's own folder in the pods of the sandbox: from a ConfigMap, or from a volume if it is large."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.job_spec import ConfigFile, JobSpec, Mount
from k8s.jobs.create import create_job, delete_job
from k8s.jobs.transaction import Transaction
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CONFIG_MAPS, PODS
from tests.k8s.sandbox.live.running import comes, goes, log_of, phase
from tui.jobs.new_job.job_files import read_job_files

KIND = PyTorchJob()
WAIT_S = 120.0
SCRIPT = """
import os, sys, helper
print(os.environ["RANK"], helper.WORD, open(sys.argv[1]).read().strip())
"""


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


async def logs_of(client: Client, name: str) -> list[str]:
    """Return what master and worker say, once both have succeeded."""
    said = []
    for pod in (f"{name}-master-0", f"{name}-worker-0"):
        ended = await comes(client, PODS, pod, phase("Succeeded", "Failed"), within_s=WAIT_S)
        said.append((await log_of(client, pod, container="pytorch")).strip())
        assert ended["status"]["phase"] == "Succeeded", said
    return said


async def test_a_folder_runs_on_two_workers_and_all_of_it_goes_with_the_job(
    client: Client, folder: Path
) -> None:
    spec = spec_of(folder, "mine")
    for _ in "once", "again under the same name":
        ref = await create_job(client, KIND, spec, files=read_job_files(spec))
        assert await logs_of(client, "mine") == ["0 mine lr: 1", "1 mine lr: 1"]
        await delete_job(client, ref)
        await goes(client, PODS, "mine-master-0", within_s=WAIT_S)
        for what in ("code", "files", "pytorchjob"):
            await goes(client, CONFIG_MAPS, f"mine-{what}", within_s=WAIT_S)


async def test_code_below_a_volume_is_found_from_the_working_directory(client: Client, folder: Path) -> None:
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
    await create_job(client, KIND, spec, files=read_job_files(spec))
    for number, said in enumerate(await logs_of(client, "below")):
        assert said.splitlines()[0].endswith("/volumes/default/workspace")
        assert said.splitlines()[1:3] == [f"{number} mine lr: 1", f"{number} mine import os, sys, helper"]


async def test_a_packaged_trainer_is_imported_from_what_came_along(client: Client, folder: Path) -> None:
    command = ("python", "-P", "-c", "import trainer.ranks as ranks; print(ranks.__file__)")
    spec = JobSpec(name="packaged", image="local", workers=2, command=command, trainer="ddp")
    await create_job(client, KIND, spec, files=read_job_files(spec))
    assert all(each.endswith("trainer.zip/trainer/ranks.py") for each in await logs_of(client, "packaged"))


async def test_a_large_folder_is_sent_into_the_volume_with_progress(client: Client, folder: Path) -> None:
    (folder / "weights.bin").write_bytes(os.urandom(2 * 2**20))
    spec = spec_of(folder, "large")
    with pytest.raises(KubeError, match=r"Add a writable volume \(-d claim:/path\)"):
        await create_job(client, KIND, spec, files=read_job_files(spec))
    spec = replace(spec, mounts=(Mount("workspace", "/workspace"),))
    told: list[tuple[int, int]] = []
    files = read_job_files(spec)
    await create_job(
        client, KIND, spec, files=files, on_upload=lambda sent, total: told.append((sent, total))
    )
    assert await logs_of(client, "large") == ["0 mine lr: 1", "1 mine lr: 1"]
    total = len(files.code)
    assert told[-1] == (total, total) and len(told) > 20
    assert told == sorted(told)
    pods = [each["metadata"]["name"] for each in await client.list(PODS, "default")]
    assert not [name for name in pods if "upload" in name]


async def test_a_submission_taken_back_leaves_nothing_in_a_real_server(client: Client) -> None:
    transaction = Transaction(client, "default")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "brief"}, "data": {"a": "b"}}
    await transaction.create(CONFIG_MAPS, config)
    assert await transaction.roll_back() == []
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "brief", "default")
