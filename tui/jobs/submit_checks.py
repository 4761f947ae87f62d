"""What would go wrong with a job that is about to be created from the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from k8s.client.client import Client
from k8s.job_spec import JobSpec, wants_gpus
from k8s.kinds import CreatableKind, Manifest
from k8s.models.resources import Resource
from k8s.preflight import Finding, check_against_cluster, check_statically
from k8s.snapshot import ClusterSnapshot
from tui.jobs.batch_check import batch_words
from tui.jobs.new_job.preflight import capacity_lines


class SubmitChecks(NamedTuple):
    """What was found, each in a sentence."""

    warnings: tuple[str, ...]
    """What may turn out well."""
    never_fits: str
    """Why it would wait for GPUs for ever; empty where it would not."""
    refusals: tuple[Finding, ...] = ()
    """What the server will refuse by itself, and say then."""


async def check_submit(
    client: Client,
    kind: CreatableKind,
    spec: JobSpec,
    objects: tuple[tuple[Resource, Manifest], ...],
    snapshot: ClusterSnapshot | None,
    needed: JobSpec | None = None,
) -> SubmitChecks:
    """Return what would go wrong.

    Args:
        client: The cluster.
        kind: Of the job.
        spec: The job.
        objects: What must be created, the job among it.
        snapshot: The cluster's nodes, for a job with GPUs; None where they cannot be read.
        needed: The job without what else comes along with it, where its manifest is a person's own.
    """
    manifest = next(manifest for resource, manifest in objects if resource == kind.resource)
    findings = [
        *check_statically(kind, spec, manifest),
        *await check_against_cluster(client, kind, needed or spec, objects),
    ]
    fit = capacity_lines(spec, snapshot, kind) if snapshot is not None and wants_gpus(spec) else []
    never_fits = next((line.text for line in fit if line.severity == "error"), "")
    waits = (line.text for line in fit if line.severity == "warning")
    batch = filter(None, [batch_words(spec)])
    checks = checks_of(findings, never_fits)
    return checks._replace(warnings=(*checks.warnings, *batch, *waits))


def checks_of(findings: Iterable[Finding], never_fits: str = "") -> SubmitChecks:
    """Sort findings into warnings and what the server will say by itself."""
    found = tuple(findings)
    warnings = tuple(finding.sentence for finding in found if not finding.is_refusal)
    return SubmitChecks(warnings, never_fits, tuple(finding for finding in found if finding.is_refusal))
