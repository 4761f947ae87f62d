"""Assumptions about Kubernetes, checked on a real API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.cluster.mirror import Mirror
from k8s.jobs.create import JobRejected
from k8s.jobs.permissions import ResourceAttributes, review
from k8s.jobs.pod_files import RemoteFile, list_files, read_from
from k8s.kinds import CREATABLE, CreatableKind
from k8s.models import Meta, Pod, Reader, WatchEvent
from k8s.models.resources import NODES, PODS
from k8s.text.errors import ExecFailed, Forbidden, NotFound
from tests.k8s.kinds.test_kinds import SPEC
from tui.draft.job_files import create_with_files
from tui.runs.formats import NAMES

READY_S = 120.0
POD: dict[str, Any] = {
    "metadata": {"name": "seen"},
    "spec": {"containers": [{"name": "main", "image": "busybox:latest", "imagePullPolicy": "Never"}]},
}

pytestmark = pytest.mark.cluster
# The cluster has these; of MPIJobs the newest version only, see `test_kinds`
SERVED = [kind for kind in CREATABLE if kind.title in ("PyTorchJob", "MPIJob", "TrainJob", "Job")]
every_served_kind = pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.title)


@pytest.fixture
def client(admin: Client) -> Client:
    """A client of the administrator, in a namespace of its own that is deleted afterwards."""
    return admin


@every_served_kind
async def test_a_real_server_accepts_the_manifest_of_every_kind(client: Client, kind: CreatableKind) -> None:
    namespace = client.config.namespace
    spec = replace(SPEC, namespace=namespace, priority_class="")
    ref = await create_with_files(client, kind, spec, dry_run=True)
    assert (ref.namespace, ref.name, ref.kind) == (namespace, "bert-base-1", kind.resource.kind)
    with pytest.raises(NotFound):
        await client.get(kind.resource, "bert-base-1", namespace)


@every_served_kind
async def test_a_real_job_reads_back_and_its_name_is_taken(client: Client, kind: CreatableKind) -> None:
    namespace = client.config.namespace
    spec = replace(SPEC, namespace=namespace, priority_class="")
    await create_with_files(client, kind, spec)
    found = kind.parse(await client.get(kind.resource, "bert-base-1", namespace))
    launchers = 1 if kind.word == "mpi" else 0
    assert found.meta.uid and len(found.replicas) == 3 + launchers
    with pytest.raises(JobRejected) as caught:
        await create_with_files(client, kind, spec)
    assert list(caught.value.causes) == ["name"]


async def test_a_real_server_names_the_field_that_is_wrong(client: Client) -> None:
    kind = next(kind for kind in CREATABLE if kind.resource.group == "batch")
    spec = replace(SPEC, namespace=client.config.namespace, priority_class="", labels={"bad label": "x"})
    with pytest.raises(JobRejected) as caught:
        await create_with_files(client, kind, spec, dry_run=True)
    assert any("labels" in path for path in caught.value.causes)


async def test_a_namespace_that_does_not_exist_is_named(client: Client) -> None:
    with pytest.raises(JobRejected) as caught:
        await create_with_files(client, CREATABLE[0], replace(SPEC, namespace="no-such-namespace"))
    assert caught.value.causes == {"namespace": "There is no namespace no-such-namespace."}


async def test_a_pod_that_is_made_is_listed_watched_and_mirrored(client: Client) -> None:
    namespace = client.config.namespace
    reader: Reader[Pod] = Reader(Pod)
    where, items, _ = reader.read_list(await client.list_page(PODS, namespace))
    assert items == []
    changed = asyncio.Event()
    mirror: Mirror[Pod] = Mirror(client, PODS, (namespace,), reader, _meta, changed.set)
    task = asyncio.create_task(mirror.run())
    made = await client.create(PODS, POD, namespace)
    uid = made["metadata"]["uid"]
    async with asyncio.timeout(READY_S):
        async for line in client.watch(PODS, namespace, version=where.resource_version):
            event = msgspec.json.decode(line, type=WatchEvent)
            assert event.type == "ADDED"
            assert reader.read(event.object).metadata.uid == uid
            break
        while uid not in mirror.objects:
            changed.clear()
            await changed.wait()
        await client.delete(PODS, "seen", namespace, grace_period_s=0)
        while uid in mirror.objects:
            changed.clear()
            await changed.wait()
    assert mirror.state.is_live and mirror.state.unreadable == 0
    task.cancel()
    await asyncio.wait([task])


async def test_files_in_a_real_container_are_listed_and_read_from_any_offset(client: Client) -> None:
    namespace = client.config.namespace
    script = (
        "mkdir -p '/logs/a b'; printf hello > '/logs/a b/events.out.tfevents.1'; echo ready; exec sleep 600"
    )
    container = {**POD["spec"]["containers"][0], "command": ["sh", "-c", script]}
    pod = {"metadata": {"name": "files"}, "spec": {"containers": [container]}}
    changed = asyncio.Event()
    mirror: Mirror[Pod] = Mirror(client, PODS, (namespace,), Reader(Pod), _meta, changed.set)
    task = asyncio.create_task(mirror.run())
    await client.create(PODS, pod, namespace)
    async with asyncio.timeout(READY_S):
        while not any(each.status.phase == "Running" for each in mirror.objects.values()):
            changed.clear()
            await changed.wait()
    found = await list_files(client, "files", namespace, "/logs", NAMES)
    assert found == [RemoteFile("/logs/a b/events.out.tfevents.1", 5)]
    assert await read_from(client, "files", namespace, found[0].path, 0) == b"hello"
    assert await read_from(client, "files", namespace, found[0].path, 3) == b"lo"
    assert await read_from(client, "files", namespace, found[0].path, 5) == b""
    with pytest.raises(ExecFailed, match="gone"):
        await read_from(client, "files", namespace, "/logs/gone", 0)
    with pytest.raises(ExecFailed, match="No such file"):
        await list_files(client, "files", namespace, "/nowhere", NAMES)
    async with client.log("files", namespace, follow=True, timestamps=True) as body:
        assert (await body.readline()).endswith(b"Z ready\n")
    await client.delete(PODS, "files", namespace, grace_period_s=0)
    task.cancel()
    await asyncio.wait([task])


async def test_a_restricted_user_sees_their_namespace_and_the_missing_permissions(
    kubeconfig: Path, client: Client
) -> None:
    async with await Client.connect(f"{kubeconfig}-alice", namespace="alice") as alice:
        with pytest.raises(Forbidden, match='User "alice" cannot list resource "nodes"'):
            await alice.list(NODES)
        snapshot = await ClusterMirror(alice).read_once()
        assert 'User "alice" cannot list resource "nodes"' in snapshot.problems["nodes"].why
        assert snapshot.problems["pods"].shown == "alice"
        assert snapshot.is_synced
        need = ResourceAttributes.of("create", PODS)
        assert (await review(alice, need, "alice")).is_allowed
        refused = await review(alice, need, "default")
        assert (refused.is_allowed, refused.why) == (
            False,
            'user "alice" may not create pods in namespace "default"',
        )


async def test_exec_in_a_missing_pod_raises_not_found_with_the_servers_message(client: Client) -> None:
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        async with client.exec("nobody", client.config.namespace, ["true"]):
            pytest.fail("there is no such pod")


def _meta(pod: Pod) -> Meta:
    return pod.metadata
