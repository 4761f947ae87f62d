"""Check the objects of a file before any of them is created, jobs by what their pods request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from k8s.client.client import Client
from k8s.errors import Conflict, Forbidden, Invalid, NotFound
from k8s.job_spec import JobSpec, wants_gpus
from k8s.jobs.create import create_manifest
from k8s.kinds import CREATABLE, CreatableKind, Manifest
from k8s.kinds.pods_spec import spec_of_pods
from k8s.reasons.cause import Cause
from k8s.reasons.object_checks import check_objects
from k8s.snapshot import ClusterSnapshot
from tui.commands.submission.manifests import ManifestObject
from tui.commands.submission.submit_checks import check_submit


class CheckedObject(NamedTuple):
    """Findings about one job of a file, or about all its other objects."""

    title: str
    """Such as `PyTorchJob bert`; empty for all other objects together."""
    causes: Sequence[Cause]


async def check_manifests(
    client: Client,
    wanted: Sequence[ManifestObject],
    namespace: str,
    fetch_nodes: Callable[[], Awaitable[ClusterSnapshot | None]],
) -> list[CheckedObject]:
    """Return the problems that creating these objects would meet.

    Args:
        client: The cluster.
        wanted: The objects of the file.
        namespace: Namespace of objects that name none.
        fetch_nodes: Reads the cluster's nodes, for jobs with GPUs; returns None if it cannot.
    """
    found, others, snapshot = [], [], None
    for each in wanted:
        understood = _parse_checked(each, namespace)
        if understood is None:
            others.append(each)
            continue
        kind, spec = understood
        nodes = None
        if wants_gpus(spec):
            nodes = snapshot = snapshot or await fetch_nodes()
        causes = await check_submit(client, kind, spec, (each,), nodes, wanted)
        found.append(CheckedObject(f"{kind.title} {spec.name}", causes))
    if others:
        found.append(CheckedObject("", await check_objects(client, others, namespace)))
    return found


def _parse_checked(each: ManifestObject, namespace: str) -> tuple[CreatableKind, JobSpec] | None:
    resource, manifest = each
    kind = next((kind for kind in CREATABLE if kind.resource == resource), None)
    name = manifest["metadata"].get("name")
    if kind is None or not isinstance(name, str) or not name:
        return None
    try:
        spec = spec_of_pods(kind, manifest)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    home = str(manifest["metadata"].get("namespace") or namespace)
    return kind, replace(spec, name=name, namespace=home)


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
