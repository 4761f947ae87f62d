"""The manifests of every kind, given to a real API server with the released schemas.

The cluster has MPIJobs in their newest version only, as one CRD name has one place: the older versions are
served here under a group of their own. T9k's CRD is not public.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from k8s.client.client import Client
from k8s.cluster.mirror import Mirror
from k8s.jobs.clone import cleaned, clone
from k8s.jobs.create import JobRejected, create_job, create_manifest
from k8s.jobs.pod_files import RemoteFile, list_files, read_from
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.carried_spec import differences
from k8s.kinds.job_spec import JobSpec
from k8s.models import Meta, Pod, Reader, WatchEvent
from k8s.models.resources import PODS, Resource
from k8s.text.errors import ExecFailed, NotFound
from tests.k8s.kinds.test_kinds import FULL, SPEC, SPECS
from tests.support.openapi import schema_of
from tests.support.real_cluster import BUSYBOX, every_served_kind
from tui.draft.job_files import create_with_files
from tui.runs.formats import NAMES

pytestmark = pytest.mark.cluster
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
OLDER = [kind for kind in CREATABLE if kind.title in ("MPIJob v1", "MPIJob v1alpha1")]


def made(kind: CreatableKind, spec: JobSpec, namespace: str) -> dict[str, Any]:
    """Return a manifest; classes of priority that the cluster has not are left out."""
    return kind.manifest(replace(spec, namespace=namespace, priority_class=""))


@every_served_kind
async def test_a_real_server_accepts_every_field(admin: Client, kind: CreatableKind) -> None:
    namespace = admin.config.namespace
    for number, example in enumerate(SPECS.values()):
        spec = replace(example, name=f"bert-{number}", namespace=namespace)
        manifest = made(kind, spec, namespace)
        await admin.create(kind.resource, manifest, namespace, dry_run=True)
        await admin.create(kind.resource, manifest, namespace)
        stored = await admin.get(kind.resource, spec.name, namespace)
        if kind.title != "Job":  # whose newer fields a server of 1.20 drops
            assert [*differences(cleaned(manifest), cleaned(stored))] == []
        for resource, beside in kind.owned_objects(spec):
            await admin.create(resource, beside, namespace)


@pytest.mark.parametrize("kind", OLDER, ids=lambda kind: kind.title)
async def test_older_mpijobs_pass_their_own_schemas(admin: Client, kind: CreatableKind) -> None:
    group = f"{kind.resource.version}.mpi-{uuid4().hex[:6]}.example.org"
    resource = msgspec.structs.replace(kind.resource, group=group)
    crd = f"{resource.plural}.{group}"
    schema = {"openAPIV3Schema": schema_of(f"mpijob-{resource.version}")}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    names = {"kind": resource.kind, "plural": resource.plural, "singular": "mpijob", "listKind": "MPIJobList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    await admin.create(CRDS, {"metadata": {"name": crd}, "spec": spec})
    try:
        namespace = admin.config.namespace
        manifest = made(kind, FULL, namespace) | {"apiVersion": resource.api_version}

        async with asyncio.timeout(120):
            while not await is_served(admin, resource, manifest):
                await asyncio.sleep(0.2)
        await admin.create(resource, manifest, namespace)
        stored = await admin.get(resource, FULL.name, namespace)
        assert [*differences(cleaned(manifest), cleaned(stored))] == []
    finally:
        await admin.delete(CRDS, crd)


async def is_served(admin: Client, resource: Resource, manifest: dict[str, Any]) -> bool:
    """Try a manifest of a kind that may not be served yet.

    Raises:
        Invalid: It is served, and the manifest refused.
    """
    try:
        await admin.create(resource, manifest, admin.config.namespace, dry_run=True)
    except NotFound:
        return False
    return True


READY_S = 120.0
POD: dict[str, Any] = {"metadata": {"name": "seen"}, "spec": {"containers": [{"name": "main", **BUSYBOX}]}}


@every_served_kind
async def test_a_stored_job_is_read_back_and_cloned(admin: Client, kind: CreatableKind) -> None:
    namespace = admin.config.namespace
    spec = JobSpec(
        name="bert",
        namespace=namespace,
        image="busybox:1",
        gpus=1,
        workers=2,
        command=("sh", "-c", "sleep 1"),
        env={"LR": "1e-4"},
        cpu="100m",
        labels={"team": "x"},
        retries=2,
        clean_pods="Running",  # of an MPIJob no more is kept
        user="li",
    )
    stored = await create_job(admin, kind, kind.supported(spec))
    obj = await admin.get(kind.resource, stored.name, namespace)
    assert len(kind.parse(obj).replicas) == 2 + (kind.word == "mpi")
    found = clone(obj, {"bert"}, user="li")
    if kind.title == "Job" and "completionMode" not in obj["spec"]:  # an old server drops it in silence
        assert "spec.completionMode differ" in found.why_yaml
    else:
        assert (found.spec, found.lost) == (replace(kind.supported(spec), name="bert-2"), ())
    again = await create_manifest(admin, found.resource, found.manifest, namespace)
    assert again.name == "bert-2"


async def test_a_real_server_names_the_field_that_is_wrong(admin: Client) -> None:
    kind = next(kind for kind in CREATABLE if kind.resource.group == "batch")
    spec = replace(SPEC, namespace=admin.config.namespace, priority_class="", labels={"bad label": "x"})
    with pytest.raises(JobRejected) as caught:
        await create_with_files(admin, kind, spec, dry_run=True)
    assert any("labels" in path for path in caught.value.causes)


async def test_a_namespace_that_does_not_exist_is_named(admin: Client) -> None:
    with pytest.raises(JobRejected) as caught:
        await create_with_files(admin, CREATABLE[0], replace(SPEC, namespace="no-such-namespace"))
    assert caught.value.causes == {"namespace": "There is no namespace no-such-namespace."}


async def test_a_pod_that_is_made_is_listed_watched_and_mirrored(admin: Client) -> None:
    namespace = admin.config.namespace
    reader: Reader[Pod] = Reader(Pod)
    where, items, _ = reader.read_list(await admin.list_page(PODS, namespace))
    assert items == []
    changed = asyncio.Event()
    mirror: Mirror[Pod] = Mirror(admin, PODS, (namespace,), reader, _meta, changed.set)
    task = asyncio.create_task(mirror.run())
    made = await admin.create(PODS, POD, namespace)
    uid = made["metadata"]["uid"]
    async with asyncio.timeout(READY_S):
        async for line in admin.watch(PODS, namespace, version=where.resource_version):
            event = msgspec.json.decode(line, type=WatchEvent)
            assert event.type == "ADDED"
            assert reader.read(event.object).metadata.uid == uid
            break
        while uid not in mirror.objects:
            changed.clear()
            await changed.wait()
        await admin.delete(PODS, "seen", namespace, grace_period_s=0)
        while uid in mirror.objects:
            changed.clear()
            await changed.wait()
    assert mirror.state.is_live and mirror.state.unreadable == 0
    task.cancel()
    await asyncio.wait([task])


async def test_files_in_a_real_container_are_listed_and_read_from_any_offset(admin: Client) -> None:
    namespace = admin.config.namespace
    script = (
        "mkdir -p '/logs/a b'; printf hello > '/logs/a b/events.out.tfevents.1'; echo ready; exec sleep 600"
    )
    container = {**POD["spec"]["containers"][0], "command": ["sh", "-c", script]}
    pod = {"metadata": {"name": "files"}, "spec": {"containers": [container]}}
    changed = asyncio.Event()
    mirror: Mirror[Pod] = Mirror(admin, PODS, (namespace,), Reader(Pod), _meta, changed.set)
    task = asyncio.create_task(mirror.run())
    await admin.create(PODS, pod, namespace)
    async with asyncio.timeout(READY_S):
        while not any(each.status.phase == "Running" for each in mirror.objects.values()):
            changed.clear()
            await changed.wait()
    found = await list_files(admin, "files", namespace, "/logs", NAMES)
    assert found == [RemoteFile("/logs/a b/events.out.tfevents.1", 5)]
    assert await read_from(admin, "files", namespace, found[0].path, 0) == b"hello"
    assert await read_from(admin, "files", namespace, found[0].path, 3) == b"lo"
    assert await read_from(admin, "files", namespace, found[0].path, 5) == b""
    with pytest.raises(ExecFailed, match="gone"):
        await read_from(admin, "files", namespace, "/logs/gone", 0)
    with pytest.raises(ExecFailed, match="No such file"):
        await list_files(admin, "files", namespace, "/nowhere", NAMES)
    async with admin.log("files", namespace, follow=True, timestamps=True) as body:
        assert (await body.readline()).endswith(b"Z ready\n")
    await admin.delete(PODS, "files", namespace, grace_period_s=0)
    task.cancel()
    await asyncio.wait([task])


def _meta(pod: Pod) -> Meta:
    return pod.metadata
