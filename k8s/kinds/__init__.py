"""Every kind of job that the console knows: from an object to `DeclaredJob`, and from a spec to an object.

Pure: asks no server, joins nothing. A kind is one file here and its line in `KINDS`; no other module may
know a kind's name. (An annotation by which its pods are told apart must begin as `models.trimming` keeps it.)
"""

from __future__ import annotations

from collections.abc import Mapping

from k8s.kinds.base import (
    CreatableKind,
    DeclaredJob,
    ElasticKind,
    ElasticSize,
    JobKind,
    JobRef,
    Manifest,
    MPILauncherKind,
    NeededObject,
    Replica,
    RunnableKind,
)
from k8s.kinds.batch_job import BatchJob
from k8s.kinds.job_set import JobSet
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from k8s.kinds.kubeflow.mpi_run import MPIKind, MPIRun, PodMPIKind
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.kinds.kubeflow.tf_job import TFJob
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.kinds.ray.ray_cluster import RayCluster
from k8s.kinds.ray.ray_job import RayJob
from k8s.kinds.t9k.mpi_job import T9kMPIJob
from k8s.kinds.t9k.pytorch_job import T9kPyTorchJob
from k8s.kinds.unknown import AnyOwner
from k8s.kinds.volcano_job import VolcanoJob

CREATABLE: tuple[CreatableKind, ...] = (
    PyTorchJob(),
    MPIJob(),
    TrainJob(),
    T9kPyTorchJob(),
    BatchJob(),
    MPIJobV1(),
    MPIJobV1Alpha1(),
)
"""Those that the form can create, in the form's order; of one in several versions the newest first."""
KINDS: tuple[JobKind, ...] = (
    *CREATABLE,
    TFJob(),
    JobSet(),
    VolcanoJob(),
    RayJob(),
    RayCluster(),
    T9kMPIJob(),
)
"""Those that are watched; of one in several versions the newest first. A new one: its line here, its file
beside this one, its objects in `tests/fixtures/objects/`.
"""
RUNNABLE: tuple[RunnableKind, ...] = tuple(kind for kind in KINDS if isinstance(kind, RunnableKind))
"""Those that the sandbox serves and runs: they name one of its operators."""

_BY_NAME: Mapping[tuple[str, str], JobKind] = {
    (kind.resource.kind, kind.resource.api_version): kind for kind in KINDS
}


def kind_of(ref: JobRef) -> JobKind:
    """Return the kind of a job, or of whatever else owns pods."""
    return _BY_NAME.get((ref.kind, ref.api_version)) or AnyOwner(ref.kind, ref.api_version)


__all__ = [
    "CREATABLE",
    "KINDS",
    "RUNNABLE",
    "CreatableKind",
    "DeclaredJob",
    "ElasticKind",
    "ElasticSize",
    "JobKind",
    "JobRef",
    "MPIKind",
    "MPILauncherKind",
    "MPIRun",
    "Manifest",
    "NeededObject",
    "PodMPIKind",
    "Replica",
    "RunnableKind",
    "kind_of",
]
