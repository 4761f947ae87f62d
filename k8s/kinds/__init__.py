"""Job kinds: read objects into `DeclaredJob`, and turn specs into objects.

Pure: no requests, no joins. A kind is one file here and its line in `KINDS`; no other module knows
its name. Annotations needed to identify its pods must have a prefix that `models.base` keeps.
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
from k8s.kinds.kubeflow.mpi_run import MPIKind, MPIRun
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.kinds.kubeflow.tf_job import TFJob
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.kinds.ray import RayCluster, RayJob
from k8s.kinds.t9k import T9kMPIJob, T9kPyTorchJob
from k8s.kinds.unknown import AnyOwner
from k8s.kinds.volcano_job import VolcanoJob

# In the form's order; of a kind in several versions the newest first.
CREATABLE: tuple[CreatableKind, ...] = (
    PyTorchJob(),
    MPIJob(),
    TrainJob(),
    T9kPyTorchJob(),
    BatchJob(),
    MPIJobV1(),
    MPIJobV1Alpha1(),
)
# A new kind needs its line here, a file beside this one, and objects in `tests/fixtures/objects/`.
KINDS: tuple[JobKind, ...] = (
    *CREATABLE,
    TFJob(),
    JobSet(),
    VolcanoJob(),
    RayJob(),
    RayCluster(),
    T9kMPIJob(),
)
# The sandbox serves and runs these: they name one of its operators.
RUNNABLE: tuple[RunnableKind, ...] = tuple(kind for kind in KINDS if isinstance(kind, RunnableKind))

_BY_NAME: Mapping[tuple[str, str], JobKind] = {
    (kind.resource.kind, kind.resource.api_version): kind for kind in KINDS
}


def kind_of(ref: JobRef) -> JobKind:
    """Return the kind of a job, or a stand-in for any other owner of pods."""
    return _BY_NAME.get((ref.kind, ref.api_version)) or AnyOwner(ref.kind, ref.api_version)


__all__ = [
    "CREATABLE", "KINDS", "RUNNABLE", "CreatableKind", "DeclaredJob", "ElasticKind", "ElasticSize",
    "JobKind", "JobRef", "MPIKind", "MPILauncherKind", "MPIRun", "Manifest", "NeededObject",
    "Replica", "RunnableKind", "kind_of",
]  # fmt: skip
