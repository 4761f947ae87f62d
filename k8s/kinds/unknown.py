"""Whatever else owns pods that hold GPUs: a Deployment, a notebook, a lone pod, a kind nobody here knows."""

from __future__ import annotations

from dataclasses import replace

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import JobOutcome, read_job
from k8s.models import Pod
from k8s.models.resources import Resource

_SERVERS = frozenset({"DaemonSet", "Deployment", "InferenceService", "ReplicaSet", "ReplicationController"})
"""Owners whose pods each do the whole work, so that one alone is of use."""


class AnyOwner:
    """Stands in for a kind of which only the name is known: its pods are what there is to it."""

    container = ""
    suspend_field = ""

    def __init__(self, kind: str, api_version: str) -> None:
        """Take an owner's kind as its name, and guess its plural as Kubernetes forms them."""
        group, _, version = api_version.rpartition("/")
        lower = kind.lower()
        plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
        self.title = kind
        self.resource = Resource(group, version, plural, kind)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read the metadata, for what it asks and how it ends is unknown."""
        job = read_job(obj, self.resource, (), JobOutcome())
        return replace(job, enough=1) if self.resource.kind in _SERVERS else job

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return no replicas: what is asked for is unknown, its pods alone count."""
        return ()

    def pod_selector(self, name: str) -> str:
        """Return nothing: no label is common to such pods."""
        return ""

    def job_of(self, pod: Pod) -> str:
        """Return nothing: the chain of owners says it."""
        return ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return nothing: its pods are all of one role, `pod`, and have no numbers."""
        return None
