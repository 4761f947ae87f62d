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
from k8s.jobs.clone import cleaned
from k8s.kinds import CREATABLE, CreatableKind
from k8s.kinds.carried_spec import differences
from k8s.kinds.job_spec import JobSpec
from k8s.models.resources import Resource
from k8s.text.errors import NotFound
from tests.k8s.kinds.test_every_field import FULL, SPECS
from tests.support.openapi import schema_of
from tests.support.real_cluster import every_served_kind

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
