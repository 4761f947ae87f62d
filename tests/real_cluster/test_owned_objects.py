"""Objects created with a job on a real cluster: its pods run with them, and they go when the job does."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.jobs.create import create_job, job_objects
from k8s.kinds.job_spec import ConfigFile, JobFiles, JobSpec, Mount, NewClaim
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CLAIMS, CONFIG_MAPS
from k8s.text.errors import NotFound
from tests import ROOT
from tests.k8s.sandbox.live.running import goes
from tests.support.real_cluster import BUSYBOX
from tui.settings.local_folder import pack_folder

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KIND = PyTorchJob()
WAIT_S = 120.0
# Commands of `arena delete`. Source: kubeflow/arena v0.15.2, `pkg/workflow/workflow.go`, DeleteJob.
ARENA_DELETE = """
made=$(kubectl get configmap {name}-pytorchjob {of_namespace} -o=jsonpath='{{.data.app}}') &&
for each in $made; do kubectl delete $each {of_namespace} || exit; done
kubectl delete configmap {name}-pytorchjob {of_namespace} --ignore-not-found
"""


async def run(command: str, kubeconfig: Path) -> None:
    child = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    assert child.returncode == 0, said.decode()


async def test_owned_objects_are_deleted_too(admin: Client, kubeconfig: Path, tmp_path: Path) -> None:
    namespace = admin.config.namespace
    (tmp_path / "train.sh").write_text("cat /etc/conf/c.yaml\n")
    spec = JobSpec(
        name="along",
        namespace=namespace,
        image=BUSYBOX["image"],
        pull_policy="Never",
        sync_mode="folder",
        sync_source=str(tmp_path),
        config_files=(ConfigFile("c.yaml", "/etc/conf/c.yaml"),),
        command=("sh", "/root/code/train.sh"),
        mounts=(Mount("events", "/events"),),
        new_claims=(NewClaim("events", "1Mi"),),  # which is there already the second time
        log_dir="/events/logs",
        tensorboard=True,
    )
    files = JobFiles(code=pack_folder(tmp_path).archive, config_files={"c.yaml": b"lr: 1\n"})
    await create_job(admin, KIND, spec, files=files, dry_run=True)
    with pytest.raises(NotFound):
        await admin.get(CONFIG_MAPS, "along-code", namespace)
    of_namespace = f"-n {namespace}"
    for command in (  # each but the first finds the name used before
        f"{sys.executable} -P -m tui delete along --yes {of_namespace}",
        f"kubectl delete pytorchjobs.kubeflow.org along {of_namespace}",
        ARENA_DELETE.format(name="along", of_namespace=of_namespace),
    ):
        await create_job(admin, KIND, spec, files=files)
        job = await admin.get(KIND.resource, "along", namespace)
        claim = await admin.get(CLAIMS, "events", namespace)
        assert not claim["metadata"].get("ownerReferences")
        objects = [each for each in job_objects(KIND, spec, files) if each[0] != CLAIMS]
        for resource, manifest in objects:
            held = await admin.get(resource, manifest["metadata"]["name"], namespace)
            owners = [each["uid"] for each in held["metadata"].get("ownerReferences") or ()]
            assert resource == KIND.resource or owners == [job["metadata"]["uid"]], manifest
        await run(command, kubeconfig)
        for resource, manifest in objects:
            await goes(admin, resource, manifest["metadata"]["name"], namespace, WAIT_S)
        assert (await admin.get(CLAIMS, "events", namespace))["metadata"]["uid"] == claim["metadata"]["uid"]


async def test_a_git_login_is_accepted_as_a_secret(admin: Client) -> None:
    spec = JobSpec(
        name="git",
        namespace=admin.config.namespace,
        image=BUSYBOX["image"],
        command=("true",),
        sync_mode="git",
        sync_source="https://li:pw@host.example/a/b.git",
    )
    await create_job(admin, KIND, spec, dry_run=True)
    ssh = replace(spec, sync_source="git@host.example:a/b.git")
    await create_job(admin, KIND, ssh, files=JobFiles(git_login={"ssh-privatekey": "KEY"}), dry_run=True)
