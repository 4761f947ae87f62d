"""Other owners of pods that hold GPUs: Deployments, notebooks, lone pods, unknown kinds."""

from __future__ import annotations

from dataclasses import replace

from k8s.kinds.base import DeclaredJob, JobRef, Manifest, Replica
from k8s.kinds.parse import JobOutcome, read_job
from k8s.models import Pod
from k8s.models.resources import Resource

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
