"""Parts of Kubernetes objects that only a diagnosis needs: fetched on demand, never mirrored.

Names are the API's, in snake case. Sources: Kubernetes API reference v1, Volcano
`scheduling/v1beta1`, scheduler-plugins `scheduling/v1alpha1`, Kueue `v1beta1` and `visibility`.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime

import msgspec

from k8s.models import Condition, Meta, PodStatus, Quantities, Value
from k8s.models.pod import Container
from k8s.models.resources import Resource
from k8s.reasons.scheduling.scheduling_spec import SchedulingSpec

LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
# Volcano's, and those of two generations of scheduler-plugins.
POD_GROUPS = (
    Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),
    Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
    Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup"),
)
# Of Kubernetes itself, KEP-4671 and KEP-5832; pods name them in `spec.schedulingGroup`.
NATIVE_POD_GROUPS = tuple(
    Resource("scheduling.k8s.io", version, "podgroups", "PodGroup") for version in ("v1beta1", "v1alpha2")
)
KUEUE = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")


class _FullPodStatus(PodStatus, frozen=True):
    nominated_node_name: str = ""


class _CommandContainer(Container, frozen=True):
    command: list[str] | None = None
    args: list[str] | None = None

    def key(self) -> Hashable:
        """Return a key that is equal for containers with the same requests and command."""
        return super().key(), tuple(self.command or ()), tuple(self.args or ()), "with its command"


class _FullPodSpec(SchedulingSpec, frozen=True):
    containers: list[_CommandContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]


class FullPod(Value, frozen=True):
    """A pod with its constraints and commands."""

    metadata: Meta
    spec: _FullPodSpec = _FullPodSpec()
    status: _FullPodStatus = _FullPodStatus()

    @property
    def is_finished(self) -> bool:
        """Return True if it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class LimitRangeItem(Value, frozen=True):
    """Limits for one container or pod."""

    type: str = ""
    max: Quantities | None = None
    min: Quantities | None = None


class _LimitRangeSpec(Value, frozen=True):
    limits: list[LimitRangeItem] | None = None


class LimitRange(Value, frozen=True):
    """A LimitRange."""

    metadata: Meta
    spec: _LimitRangeSpec = _LimitRangeSpec()


class StorageClass(Value, frozen=True):
    """A StorageClass."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = ""


class PriorityClass(Value, frozen=True):
    """A PriorityClass."""

    metadata: Meta
    value: int = 0


class ExistingObject(Value, frozen=True):
    """An object of which only the existence matters."""

    metadata: Meta


class _PodGroupSpec(Value, frozen=True):
    min_member: int = 0
    scheduling_policy: dict[str, dict[str, int]] | None = None
    queue: str = ""


class _PodGroupStatus(Value, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None


class PodGroup(Value, frozen=True):
    """A gang of Volcano, scheduler-plugins or Kubernetes, which counts in `schedulingPolicy`."""

    metadata: Meta
    spec: _PodGroupSpec = _PodGroupSpec()
    status: _PodGroupStatus = _PodGroupStatus()

    @property
    def min_pods(self) -> int:
        """Return the number of pods that must start together."""
        policy = self.spec.scheduling_policy or {}
        return self.spec.min_member or policy.get("gang", {}).get("minCount", 0)


class _WorkloadSpec(Value, frozen=True):
    queue_name: str = ""
    active: bool = True
    priority: int | None = None


class _Admission(Value, frozen=True):
    cluster_queue: str = ""


class _AdmissionCheck(Value, frozen=True):
    name: str = ""
    state: str = ""
    message: str = ""


class _RequeueState(Value, frozen=True):
    count: int = 0
    requeue_at: datetime | None = None


class WorkloadStatus(Value, frozen=True):
    """The decisions of Kueue."""

    conditions: list[Condition] | None = None
    admission: _Admission | None = None
    cluster_name: str = ""
    admission_checks: list[_AdmissionCheck] | None = None
    requeue_state: _RequeueState | None = None


class Workload(Value, frozen=True):
    """A job as Kueue sees it."""

    metadata: Meta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class _LocalQueueSpec(Value, frozen=True):
    cluster_queue: str = ""


class _LocalQueueStatus(Value, frozen=True):
    conditions: list[Condition] | None = None


class LocalQueue(Value, frozen=True):
    """A namespace's entry to a ClusterQueue."""

    metadata: Meta
    spec: _LocalQueueSpec = _LocalQueueSpec()
    status: _LocalQueueStatus = _LocalQueueStatus()


class PendingWorkload(Value, frozen=True):
    """A place in Kueue's queue; positions start at 0."""

    metadata: Meta
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0
