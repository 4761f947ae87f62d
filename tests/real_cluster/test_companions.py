"""What comes along with a job on a real cluster: its pods run with it, and it goes when the job does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from k8s.client.client import Client
from k8s.errors import NotFound
from k8s.job_spec import ConfigFile, JobFiles, JobSpec, Mount
from k8s.jobs.create import create_job, delete_job, job_objects
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.models.resources import CLAIMS, CONFIG_MAPS, Resource
from tests.support.real_cluster import BUSYBOX
from tui.files.local_folder import pack_folder

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KIND = PyTorchJob()
WAIT_S = 120.0


async def goes(client: Client, resource: Resource, name: str) -> None:
    """Wait until an object is gone."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await client.get(resource, name, client.config.namespace)
            except NotFound:
                return
            await asyncio.sleep(0.1)


async def test_all_that_comes_along_is_accepted_owned_and_gone_with_the_job(
    admin: Client, tmp_path: Path
) -> None:
    namespace = admin.config.namespace
    (tmp_path / "train.sh").write_text("cat /etc/conf/c.yaml\n")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    meta = {"name": "events"}
    await admin.create(
        CLAIMS,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim},
        namespace,
    )
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
        log_dir="/events/logs",
        tensorboard=True,
    )
    files = JobFiles(code=pack_folder(tmp_path).archive, config_files={"c.yaml": b"lr: 1\n"})
    await create_job(admin, KIND, spec, files=files, dry_run=True)
    with pytest.raises(NotFound):
        await admin.get(CONFIG_MAPS, "along-code", namespace)
    for _ in "once", "again under the same name":
        ref = await create_job(admin, KIND, spec, files=files)
        job = await admin.get(KIND.resource, "along", namespace)
        objects = job_objects(KIND, spec, files)
        for resource, manifest in objects:
            held = await admin.get(resource, manifest["metadata"]["name"], namespace)
            owners = [each["uid"] for each in held["metadata"].get("ownerReferences") or ()]
            assert resource == KIND.resource or owners == [job["metadata"]["uid"]], manifest
        await delete_job(admin, ref)
        for resource, manifest in objects:
            await goes(admin, resource, manifest["metadata"]["name"])


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
