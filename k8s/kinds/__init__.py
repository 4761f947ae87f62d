"""Every kind of job that the console knows, in the order in which the wizard offers them."""

from __future__ import annotations

from k8s.kinds.base import DeclaredJob, JobKind, JobRef, Manifest, Replica
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.pytorch_job import PyTorchJob

KINDS: tuple[JobKind, ...] = (PyTorchJob(), BatchJob())
"""Add a kind here, its file beside this one, its fixtures in `tests/kinds/`."""


def kind_of(ref: JobRef) -> JobKind:
    """Return the kind of a job that was parsed by one."""
    return next(
        kind
        for kind in KINDS
        if (kind.resource.kind, kind.resource.api_version) == (ref.kind, ref.api_version)
    )


__all__ = ["KINDS", "DeclaredJob", "JobKind", "JobRef", "Manifest", "Replica", "kind_of"]
