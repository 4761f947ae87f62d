"""Check a job before it is created from the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from k8s.client.client import Client
from k8s.job_spec import JobSpec, wants_gpus
from k8s.kinds import CreatableKind, Manifest
from k8s.models.resources import Resource
from k8s.reasons.cause import Cause
from k8s.reasons.cluster_checks import check_against_cluster
from k8s.reasons.static_checks import check_statically
from k8s.snapshot import ClusterSnapshot
from tui.jobs.new_job.preflight import capacity_lines
from tui.jobs.new_job.trainer_command import describe_batch


class SubmitChecks(NamedTuple):
    """Findings of the checks, a sentence each."""

    warnings: tuple[str, ...]
    """Problems that may resolve themselves."""
    is_never_feasible: str
    """Reason that the job could never be scheduled; empty if it could."""
    refusals: tuple[Cause, ...] = ()
    """Expected refusals, which the server will report itself."""


async def check_submit(
    client: Client,
    kind: CreatableKind,
    spec: JobSpec,
    objects: tuple[tuple[Resource, Manifest], ...],
    snapshot: ClusterSnapshot | None,
    needed: JobSpec | None = None,
) -> SubmitChecks:
    """Return the problems of a job.

    Args:
        client: The cluster.
        kind: Kind of the job.
        spec: The job.
        objects: The objects to create, the job included.
        snapshot: The cluster's nodes, for a job with GPUs; None if they cannot be read.
        needed: The job without the objects created with it, if its manifest was written by hand.
    """
    manifest = next(manifest for resource, manifest in objects if resource == kind.resource)
    findings = [
        *check_statically(kind, spec, manifest),
        *await check_against_cluster(client, kind, needed or spec, objects),
    ]
    fit = capacity_lines(spec, snapshot, kind) if snapshot is not None and wants_gpus(spec) else []
    is_never_feasible = next((line.text for line in fit if line.severity == "error"), "")
    waits = (line.text for line in fit if line.severity == "warning")
    batch = filter(None, [describe_batch(spec)])
    checks = checks_of(findings, is_never_feasible)
    return checks._replace(warnings=(*checks.warnings, *batch, *waits))


def checks_of(findings: Iterable[Cause], is_never_feasible: str = "") -> SubmitChecks:
    """Sort findings into warnings, infeasibility and expected refusals."""
    found = tuple(findings)
    never = [each for each in found if each.is_never]
    warnings = tuple(each.warning for each in found if not each.is_refusal and not each.is_never)
    reasons = list(filter(None, [is_never_feasible, *(each.warning for each in never)]))
    refusals = tuple(finding for finding in found if finding.is_refusal)
    return SubmitChecks((*warnings, *reasons[1:]), next(iter(reasons), ""), refusals)
