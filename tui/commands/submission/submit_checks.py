"""Check a job before it is created from the command line."""

from __future__ import annotations

from collections.abc import Sequence

from k8s.client.client import Client
from k8s.job_spec import JobSpec
from k8s.kinds import CreatableKind, Manifest
from k8s.models.resources import Resource
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_against_cluster, fetch_capacity
from k8s.reasons.static_checks import check_capacity, check_statically
from k8s.scheduling.predicates import ClusterCapacity
from k8s.snapshot import ClusterSnapshot
from tui.jobs.new_job.trainer_command import describe_batch


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
