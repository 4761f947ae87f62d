"""Check a job before it is created from flags or from a manifest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO

from k8s.client.client import Client
from k8s.kinds import CREATABLE, CreatableKind, Manifest
from k8s.kinds.job_spec import JobSpec, wants_gpus
from k8s.kinds.pods_spec import spec_of_pods
from k8s.models.resources import Resource
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_against_cluster, fetch_capacity
from k8s.reasons.predicates import ClusterCapacity
from k8s.reasons.static_checks import check_capacity, check_statically
from k8s.snapshot import ClusterSnapshot
from trainer.catalogue import find
from tui.text.format import count, plural

FetchNodes = Callable[[], Awaitable[ClusterSnapshot | None]]
"""Reads the cluster's nodes, for jobs with GPUs; returns None if it cannot."""
_IMAGES = {"mnist": 60_000, "folder": None, "tokens": None}
"""Training images of fixed data sets, None if unknown; the others are generated on demand."""


async def check_manifest(
    client: Client,
    resource: Resource,
    manifest: Manifest,
    namespace: str,
    fetch_nodes: FetchNodes,
    beside: Sequence[tuple[Resource, Manifest]],
) -> list[Cause] | None:
    """Return the problems of a job by what its pods request; None for an object without such pods.

    Args:
        client: The cluster.
        resource: The resource of the object.
        manifest: The object.
        namespace: Namespace of an object that names none.
        fetch_nodes: Reads the nodes.
        beside: The objects that are created with it.
    """
    kind = next((kind for kind in CREATABLE if kind.resource == resource), None)
    name = manifest["metadata"].get("name")
    if kind is None or not isinstance(name, str) or not name:
        return None
    try:
        spec = spec_of_pods(kind, manifest)
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
    spec = replace(spec, name=name, namespace=str(manifest["metadata"].get("namespace") or namespace))
    nodes = await fetch_nodes() if wants_gpus(spec) else None
    return await check_submit(client, kind, spec, ((resource, manifest),), nodes, beside)


async def check_submit(
    client: Client,
    kind: CreatableKind,
    spec: JobSpec,
    objects: tuple[tuple[Resource, Manifest], ...],
    snapshot: ClusterSnapshot | None,
    beside: Sequence[tuple[Resource, Manifest]] = (),
) -> list[Cause]:
    """Return the problems of a job.

    Args:
        client: The cluster.
        kind: Kind of the job.
        spec: The job.
        objects: The objects to create, the job included.
        snapshot: The cluster's nodes with their free GPUs; None for a job without GPUs.
        beside: Further objects that are created with them, and are checked elsewhere.
    """
    manifest = next(manifest for resource, manifest in objects if resource == kind.resource)
    found = [
        *check_statically(kind, spec, manifest),
        *await check_against_cluster(client, kind, spec, objects, beside),
    ]
    if text := describe_batch(spec):
        found.append(Cause(f"{text}."))
    if snapshot is not None and "nodes" in snapshot.problems:
        return [*found, Cause("cannot tell whether it fits: you may not list nodes.")]
    rows = snapshot.nodes if snapshot is not None else ()
    capacity = ClusterCapacity.of_rows(rows) if rows else await fetch_capacity(client)
    fit = check_capacity(kind, manifest, capacity, is_gang=spec.gang)
    return [fit, *found] if fit is not None else found


def describe_batch(spec: JobSpec) -> str:
    """Return an error if batch size × ranks exceeds the images; empty if not.

    Ignores trainers without images, and arguments that are invalid for other reasons.
    """
    if spec.trainer != "ddp" or (words := find(spec.trainer).words_of(spec.command)) is None:
        return ""
    try:
        with redirect_stderr(StringIO()):
            chosen = find(spec.trainer).parser().parse_args(words)
    except SystemExit:
        return ""
    ranks = _ranks(spec)
    batch = chosen.batch_size
    step = batch * chosen.accumulate * ranks
    images = _IMAGES.get(chosen.dataset, chosen.train_images)
    if images is None or step <= images:
        return ""
    size = f"{count(batch * chosen.accumulate)} × {plural(ranks, 'rank')} = {plural(step, 'image')}"
    return f"would fail: a step takes {size}, and there are {count(images)}; choose a smaller batch size"


def _ranks(spec: JobSpec) -> int:
    # mpirun gets the number of processes; torchrun starts its own in each pod.
    words = spec.command
    if words[0] == "mpirun" and "-np" in words:
        return int(words[words.index("-np") + 1])
    return spec.workers * spec.processes
