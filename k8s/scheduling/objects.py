"""The parts of Kubernetes objects that only the question why needs: asked for once, never mirrored.

Names are the API's, in snake case. Sources: Kubernetes API reference v1, Volcano
`scheduling/v1beta1`, scheduler-plugins `scheduling/v1alpha1`, Kueue `v1beta1` and `visibility`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from k8s.models import Condition, Meta, PodSpec, PodStatus, Quantities, Resources, Value


class Toleration(Value, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(Value, frozen=True):
    """One claim about a label or a field of a node."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(Value, frozen=True):
    """Claims that must all hold."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class Terms(Value, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[Term] | None = None


class NodeAffinity(Value, frozen=True):
    """Which nodes a pod can be on."""

    required: Terms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinity(Value, frozen=True):
    """Which pods a pod must be, or must not be, beside."""

    required: list[dict[str, Any]] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Value, frozen=True):
    """What a pod is drawn to and kept from."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class ClaimSource(Value, frozen=True):
    """A volume that is a claim."""

    claim_name: str = ""


class Volume(Value, frozen=True):
    """A volume of a pod, if it is a claim."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None


class Named(Value, frozen=True):
    """Something that is referred to by its name."""

    name: str = ""


class SpreadConstraint(Value, frozen=True):
    """How evenly pods must be spread."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class SchedulingSpec(PodSpec, frozen=True):
    """All of a pod's spec that decides where and whether it can start."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    image_pull_secrets: list[Named] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[Named] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    resources: Resources | None = None
    """What the pod as a whole asks for (1.34 and newer)."""

    @property
    def claims(self) -> list[str]:
        """Return the names of the claims it mounts."""
        sources = (volume.persistent_volume_claim for volume in self.volumes or ())
        return [source.claim_name for source in sources if source is not None and source.claim_name]


class WholePodStatus(PodStatus, frozen=True):
    """How a pod is, and where it is about to go."""

    nominated_node_name: str = ""


class WholePod(Value, frozen=True):
    """A pod with all that decides where it can start."""

    metadata: Meta
    spec: SchedulingSpec = SchedulingSpec()
    status: WholePodStatus = WholePodStatus()

    @property
    def is_finished(self) -> bool:
        """Tell whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class QuotaSpec(Value, frozen=True):
    """For which pods a quota counts; all, when nothing is said."""

    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Value, frozen=True):
    """What a quota allows and what of it is used."""

    hard: Quantities | None = None
    used: Quantities | None = None


class Quota(Value, frozen=True):
    """A ResourceQuota."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class Limit(Value, frozen=True):
    """What one container or pod may ask for."""

    type: str = ""
    max: Quantities | None = None
    min: Quantities | None = None


class LimitRangeSpec(Value, frozen=True):
    """All limits of a LimitRange."""

    limits: list[Limit] | None = None


class LimitRange(Value, frozen=True):
    """A LimitRange."""

    metadata: Meta
    spec: LimitRangeSpec = LimitRangeSpec()


class ClaimSpec(Value, frozen=True):
    """What a claim asks for."""

    storage_class_name: str = ""
    volume_name: str = ""


class ClaimStatus(Value, frozen=True):
    """Whether it has got it."""

    phase: str = ""


class Claim(Value, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


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
