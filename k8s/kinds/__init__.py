"""Every kind of job that the console knows."""

from __future__ import annotations

from k8s.kinds.base import CreatableKind, DeclaredJob, JobKind, JobRef, Manifest, Replica
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.pytorch_job import PyTorchJob

CREATABLE: tuple[CreatableKind, ...] = (PyTorchJob(), BatchJob())
"""Those that the wizard offers, in its order."""
KINDS: tuple[JobKind, ...] = CREATABLE
"""Add a kind here, its file beside this one, its fixtures in `tests/kinds/`."""


def kind_of(ref: JobRef) -> JobKind:
    """Return the kind of a job that was parsed by one."""
    return next(
        kind
        for kind in KINDS
        if (kind.resource.kind, kind.resource.api_version) == (ref.kind, ref.api_version)
    )


__all__ = [
    "CREATABLE",
    "KINDS",
    "CreatableKind",
    "DeclaredJob",
    "JobKind",
    "JobRef",
    "Manifest",
    "Replica",
    "kind_of",
]
