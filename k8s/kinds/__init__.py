"""Job kinds: read objects into `DeclaredJob`, and turn specs into objects.

Pure: no requests, no joins. A kind is one file here and its line in `KINDS`; no other module knows
its name. Annotations needed to identify its pods must have a prefix that `models.base` keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

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
from k8s.kinds.kubeflow.kubeflow_job import TFJob
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from k8s.kinds.kubeflow.mpi_run import MPIKind, MPIRun
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.kinds.parse import JobOutcome, read_job
from k8s.kinds.ray import RayCluster, RayJob
from k8s.kinds.t9k import T9kMPIJob, T9kPyTorchJob
from k8s.kinds.volcano_job import VolcanoJob
from k8s.models import Pod
from k8s.models.resources import Resource

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

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# Generated: no vowels, and no 0, 1 and 3. Source: apimachinery, pkg/util/rand.
_RANDOM = "(-[bcdfghjklmnpqrstvwxz2456789]{5})?"
# Each of their pods does the whole work, so one is of use.
_SERVERS = frozenset({"DaemonSet", "Deployment", "InferenceService", "ReplicaSet", "ReplicationController"})

# Label of plain pods that Kueue admits together; the group has no object but its Workload.
POD_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
_POD_GROUP = ("PodGroup", "kueue.x-k8s.io/v1beta1")


def pod_group(namespace: str, name: str) -> JobRef:
    """Return the reference of a group of plain pods."""
    return JobRef(namespace, name, *_POD_GROUP)


def is_pod_group(ref: JobRef) -> bool:
    """Return True if a job is a group of plain pods."""
    return (ref.kind, ref.api_version) == _POD_GROUP


class AnyOwner:
    """Stand-in for a kind of which only the name is known."""

    container = ""
    suspend_field = ""
    pod_names = "(-[a-z0-9]+)?"

    def __init__(self, kind: str, api_version: str) -> None:
        """Guess the plural of the kind as Kubernetes forms it."""
        group, _, version = api_version.rpartition("/")
        lower = kind.lower()
        plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
        self.title = kind
        self.resource = Resource(group, version, plural, kind)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read the metadata; requests and outcome are unknown."""
        job = read_job(obj, self.resource, (), JobOutcome())
        return replace(job, min_instances=1) if self.resource.kind in _SERVERS else job

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return no replicas: only its pods are known."""
        return ()

    def pod_selector(self, name: str) -> str:
        """Return the selector of a group's pods; empty for others, which share no label."""
        is_group = (self.resource.kind, self.resource.api_version) == _POD_GROUP
        return f"{POD_GROUP_LABEL}={name}" if is_group else ""

    def job_of(self, pod: Pod) -> str:
        """Return no name: the owner chain has it."""
        return ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return None: its pods have one role, `pod`, and no numbers."""
        return None


def pod_pattern(name: str, kind: str = "") -> str:
    """Return the regular expression of a job's pod names; empty for an invalid name.

    `kind` is that of the object or its beginning, in any case; empty for the kinds that can be created.
    """
    if not _NAME.fullmatch(name):
        return ""
    known = [(each, each.resource.kind.lower()) for each in KINDS if kind]
    kinds = [each for each, title in known if title == kind.lower()]
    kinds = kinds or [each for each, title in known if title.startswith(kind.lower())]
    kinds = kinds or [AnyOwner(kind, "v1")] if kind else [*CREATABLE]
    names = "|".join(dict.fromkeys(each.pod_names for each in kinds))
    return f"{name.replace('.', '[.]')}({names}){_RANDOM}"


def kind_of(ref: JobRef) -> JobKind:
    """Return the kind of a job, or a stand-in for any other owner of pods."""
    return _BY_NAME.get((ref.kind, ref.api_version)) or AnyOwner(ref.kind, ref.api_version)


__all__ = [
    "CREATABLE", "KINDS", "POD_GROUP_LABEL", "RUNNABLE", "AnyOwner", "CreatableKind", "DeclaredJob",
    "ElasticKind", "ElasticSize", "JobKind", "JobRef", "MPIKind", "MPILauncherKind", "MPIRun",
    "Manifest", "NeededObject", "Replica", "RunnableKind", "is_pod_group", "kind_of", "pod_group",
    "pod_pattern",
]  # fmt: skip
