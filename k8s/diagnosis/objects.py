"""The parts of Kubernetes objects that only a diagnosis needs: fetched once, never mirrored.

Names are the API's, in snake case. Sources: Kubernetes API reference v1, Volcano
`scheduling/v1beta1`, scheduler-plugins `scheduling/v1alpha1`, Kueue `v1beta1` and `visibility`.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime

import msgspec

from k8s.models import Condition, Meta, PodStatus, Quantities, Value
from k8s.models.pod import Container
from k8s.scheduling.scheduling_spec import SchedulingSpec


class WholePodStatus(PodStatus, frozen=True):
    """How a pod is, and where it is about to go."""

    nominated_node_name: str = ""


class CommandContainer(Container, frozen=True):
    """A container, and what it runs."""

    command: list[str] | None = None
    args: list[str] | None = None

    def key(self) -> Hashable:
        """Return the same for containers that are alike and run the same."""
        return super().key(), tuple(self.command or ()), tuple(self.args or ()), "with its command"


class WholePodSpec(SchedulingSpec, frozen=True):
    """What decides where a pod can start, and what it runs there."""

    containers: list[CommandContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]


class WholePod(Value, frozen=True):
    """A pod with all that decides where it can start, and what runs there."""

    metadata: Meta
    spec: WholePodSpec = WholePodSpec()
    status: WholePodStatus = WholePodStatus()

    @property
    def is_finished(self) -> bool:
        """Tell whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class LimitRangeItem(Value, frozen=True):
    """What one container or pod may ask for."""

    type: str = ""
    max: Quantities | None = None
    min: Quantities | None = None


class LimitRangeSpec(Value, frozen=True):
    """All limits of a LimitRange."""

    limits: list[LimitRangeItem] | None = None


class LimitRange(Value, frozen=True):
    """A LimitRange."""

    metadata: Meta
    spec: LimitRangeSpec = LimitRangeSpec()


class StorageClass(Value, frozen=True):
    """Who makes volumes, and when."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = ""


class PriorityClass(Value, frozen=True):
    """How important pods are."""

    metadata: Meta
    value: int = 0


class Existing(Value, frozen=True):
    """Something of which only the existence matters."""

    metadata: Meta


class PodGroupSpec(Value, frozen=True):
    """How many pods of a gang must start together."""

    min_member: int = 0
    queue: str = ""


class PodGroupStatus(Value, frozen=True):
    """How far a gang is."""

    phase: str = ""
    conditions: list[Condition] | None = None


class PodGroup(Value, frozen=True):
    """A gang, of Volcano or of scheduler-plugins."""

    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class WorkloadSpec(Value, frozen=True):
    """What Kueue queues."""

    queue_name: str = ""
    active: bool = True
    priority: int | None = None


class Admission(Value, frozen=True):
    """Where Kueue reserved quota."""

    cluster_queue: str = ""


class AdmissionCheck(Value, frozen=True):
    """Something that must agree before Kueue admits."""

    name: str = ""
    state: str = ""
    message: str = ""


class RequeueState(Value, frozen=True):
    """When Kueue tries again."""

    count: int = 0
    requeue_at: datetime | None = None


class WorkloadStatus(Value, frozen=True):
    """What Kueue decided."""

    conditions: list[Condition] | None = None
    admission: Admission | None = None
    admission_checks: list[AdmissionCheck] | None = None
    requeue_state: RequeueState | None = None


class Workload(Value, frozen=True):
    """A job as Kueue sees it."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class LocalQueueSpec(Value, frozen=True):
    """Where a queue leads."""

    cluster_queue: str = ""


class LocalQueueStatus(Value, frozen=True):
    """Whether a queue works."""

    conditions: list[Condition] | None = None


class LocalQueue(Value, frozen=True):
    """A namespace's door to a ClusterQueue."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class PendingWorkload(Value, frozen=True):
    """A place in Kueue's queue; positions begin with 0."""

    metadata: Meta
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0
