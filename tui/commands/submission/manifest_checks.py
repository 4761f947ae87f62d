"""Check the objects of a file before any of them is created, jobs by what their pods request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from k8s.client.client import Client
from k8s.errors import Conflict, Forbidden, Invalid, NotFound
from k8s.jobs.create import create_manifest
from k8s.kinds import CREATABLE, Manifest
from k8s.reasons.cause import Cause
from k8s.reasons.object_checks import check_objects
from k8s.snapshot import ClusterSnapshot
from tui.commands.submission.manifests import ManifestObject
from tui.jobs.new_job.job_checks import FetchNodes, check_manifest


class CheckedObject(NamedTuple):
    """Findings about one job of a file, or about all its other objects."""

    title: str
    """Such as `PyTorchJob bert`; empty for all other objects together."""
    causes: Sequence[Cause]


async def check_manifests(
    client: Client,
    wanted: Sequence[ManifestObject],
    namespace: str,
    fetch_nodes: FetchNodes,
) -> list[CheckedObject]:
    """Return the problems that creating these objects would meet.

    Args:
        client: The cluster.
        wanted: The objects of the file.
        namespace: Namespace of objects that name none.
        fetch_nodes: Reads the nodes, at most once.
    """
    found, others, snapshot = [], [], None

    async def nodes() -> ClusterSnapshot | None:
        nonlocal snapshot
        snapshot = snapshot or await fetch_nodes()
        return snapshot

    for each in wanted:
        resource, manifest = each
        causes = await check_manifest(client, resource, manifest, namespace, nodes, wanted)
        if causes is None:
            others.append(each)
        else:
            kind = next(kind for kind in CREATABLE if kind.resource == resource)
            found.append(CheckedObject(f"{kind.title} {manifest['metadata']['name']}", causes))
    if others:
        found.append(CheckedObject("", await check_objects(client, others, namespace)))
    return found


async def check_by_server(client: Client, wanted: Sequence[ManifestObject], namespace: str) -> None:
    """Let the server validate all objects before the first is created, so that none is created in part.

    Raises:
        KubeError: The server rejected an object.
    """
    for resource, manifest in wanted:
        home = namespace_of(manifest, namespace)
        try:
            await create_manifest(client, resource, manifest, home, dry_run=True)
        except (Conflict, Forbidden, Invalid, NotFound) as error:
            if not error.is_foreign:
                error.hint = f"{error.hint} Nothing was created.".strip()
                raise


def namespace_of(manifest: Manifest, namespace: str) -> str:
    """Return the namespace that a manifest names, or else the given one."""
    return str(manifest["metadata"].get("namespace") or namespace)
