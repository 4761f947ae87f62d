"""Curves of busybox pods on a real cluster: by exec while one writes, from its volume, through a proxy."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.jobs.reader_pod import READER_LABEL, delete_ended_readers, running_reader
from k8s.kinds import JobRef
from k8s.kinds.job_spec import LOG_DIR_ANNOTATION
from k8s.models.resources import CLAIMS, JOBS, PODS, SERVICES, Resource
from k8s.text.errors import KubeError
from tests.k8s.sandbox.live.running import comes
from tests.real_cluster import operator_objects
from tests.real_cluster.feed import feed_of, job_called
from trainer.tfevents import EventWriter
from tui.runs.curve_feed import CurveFeed

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
PATIENCE_S = 120.0
STEPS = 200
# The volume is a folder of the node.
WRITE = """
mkdir -p /w/logs
while [ ! -e /w/begin ]; do sleep 0.1; done
echo "$CONTENT" | base64 -d > /w/all; size=$(wc -c < /w/all); at=0
while [ $at -lt $size ]; do
    dd if=/w/all bs=1 count=1 skip=$at 2>/dev/null >> /w/logs/events.out.tfevents.1.a; at=$((at+1))
done
while [ ! -e /w/end ]; do sleep 0.2; done
"""


@pytest.fixture
async def claim(admin: Client, tmp_path: Path) -> AsyncIterator[str]:
    """A claim whose volume is a folder of the node, which is this machine."""
    name, storage = admin.config.namespace, {"storage": "1Mi"}
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {"capacity": storage, "hostPath": {"path": str(tmp_path), "type": "DirectoryOrCreate"}}
    await admin.create(VOLUMES, {"metadata": {"name": name}, "spec": {**spec, **volume}})
    bound = {**spec, "resources": {"requests": storage}, "volumeName": name}
    await operator_objects.make(admin, CLAIMS, "workspace", bound)
    await comes(admin, CLAIMS, "workspace", lambda made: made["status"]["phase"] == "Bound", name, PATIENCE_S)
    yield "workspace"
    await admin.delete(VOLUMES, name)


def losses(feed: CurveFeed) -> list[tuple[int, float]]:
    return [pair for curve in feed.curves() for pair in zip(curve.steps, curve.values, strict=True)]


async def test_a_file_written_byte_by_byte_is_read_by_exec_and_then_from_its_volume(
    admin: Client, claim: str, tmp_path: Path
) -> None:
    with EventWriter(tmp_path / "made") as writer:
        for step in range(STEPS):
            writer.write_scalar("loss", step, step / 4)
    wanted = [(step, step / 4) for step in range(STEPS)]
    template = operator_objects.template("main", 0)
    container = template["spec"]["containers"][0]
    container["command"] = ["sh", "-c", WRITE]
    container["env"] = [{"name": "CONTENT", "value": base64.b64encode(writer.path.read_bytes()).decode()}]
    container["volumeMounts"] = [{"name": "w", "mountPath": "/w"}]
    template["spec"]["volumes"] = [{"name": "w", "persistentVolumeClaim": {"claimName": claim}}]
    namespace = admin.config.namespace
    annotations = {LOG_DIR_ANNOTATION: "/w/logs"}
    async with feed_of(admin, namespace) as cluster, asyncio.timeout(PATIENCE_S):
        await operator_objects.make(admin, JOBS, "bytes", {"template": template}, annotations=annotations)
        ref = JobRef(namespace, "bytes", "Job", "batch/v1")
        feed = CurveFeed(admin, ref, lambda: job_called(cluster.newest, "Job", "bytes"))
        seen = set()
        while losses(feed) != wanted:
            try:
                await feed.read_once()
            except KubeError:  # the pod or its folder is not there yet
                await asyncio.sleep(0.2)
            else:
                (tmp_path / "begin").touch()
            assert losses(feed) == wanted[: len(losses(feed))]
            seen.add(len(losses(feed)))
        assert len(seen) > 2, "it was read while it grew"
        assert feed.problem == "" and "/w/logs in bytes-" in feed.source_text

        (tmp_path / "end").touch()
        await cluster.until(
            lambda snapshot: (job := job_called(snapshot, "Job", "bytes")) is not None and job.status.is_final
        )
        later = CurveFeed(admin, ref, lambda: job_called(cluster.newest, "Job", "bytes"))
        with pytest.raises(KubeError):
            await later.read_once()
        manifest = await later.reader_manifest()
        async with running_reader(admin, manifest) as later.reader:
            await later.read_once()
            with pytest.raises(KubeError, match="Read-only"):
                await _touch(admin, later.reader)
        assert losses(later) == wanted
        assert later.source_text == f"/w/logs in {manifest['metadata']['name']}"

        left = await later.reader_manifest()
        left["spec"]["activeDeadlineSeconds"] = 1
        await admin.create(PODS, left, namespace)
        name = left["metadata"]["name"]
        await comes(
            admin, PODS, name, lambda pod: pod["status"].get("phase") == "Failed", namespace, PATIENCE_S
        )
        assert await delete_ended_readers(admin, namespace) == [name]
        readers = await admin.list(PODS, namespace, label_selector=f"{READER_LABEL}=true")
        assert [pod for pod in readers if not pod["metadata"].get("deletionTimestamp")] == []


async def _touch(client: Client, pod: str) -> None:
    await client.run(pod, client.config.namespace, ["touch", "/w/x"])


async def test_a_tensorboard_is_read_through_the_proxy_of_its_service(admin: Client) -> None:
    answers = {"tags": {".": {"loss": {}}}, "scalars": [[1.7e9, 1, 2.5], [1.7e9 + 1, 2, 2.25]]}
    files = " ".join(
        f"echo '{json.dumps(body)}' > /www/data/plugin/scalars/{name};" for name, body in answers.items()
    )
    serving = f"mkdir -p /www/data/plugin/scalars; {files} httpd -f -p 6006 -h /www"
    namespace, labels = admin.config.namespace, {"app": "board"}
    await operator_objects.make(
        admin, PODS, "board", operator_objects.pod_spec("main", 0, serving), labels=labels
    )
    spec = {"selector": labels, "ports": [{"port": 80, "targetPort": 6006}]}
    await operator_objects.make(admin, SERVICES, "plain-tensorboard", spec)
    await operator_objects.make(
        admin, JOBS, "plain", {"suspend": True, "template": operator_objects.template("main", 0)}
    )
    ref = JobRef(namespace, "plain", "Job", "batch/v1")
    async with feed_of(admin, namespace) as cluster, asyncio.timeout(PATIENCE_S):
        await cluster.until(lambda snapshot: job_called(snapshot, "Job", "plain") is not None)
        while True:
            feed = CurveFeed(admin, ref, lambda: job_called(cluster.newest, "Job", "plain"))
            try:
                await feed.read_once()
                break
            except KubeError:  # the endpoints are not there yet
                await asyncio.sleep(0.2)
        assert losses(feed) == [(1, 2.5), (2, 2.25)]
        assert feed.source_text == "TensorBoard at plain-tensorboard:80"
