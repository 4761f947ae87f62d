"""Pods and their containers."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from datetime import datetime

import msgspec
from msgspec.structs import force_setattr

from k8s.models.base import LAST, Condition, Meta, Quantities, Value, as_before, shared


class Resources(Value, frozen=True):
    """Requests and limits by resource name, and names of resource claims."""

    requests: Quantities | None = None
    limits: Quantities | None = None
    claims: list[dict[str, str]] | None = None


class ExitCodes(Value, frozen=True):
    """Exit codes to which a restart rule applies: those `In` or `NotIn` the values."""

    operator: str = ""
    values: list[int] | None = None


class RestartRule(Value, frozen=True):
    """An entry of `restartPolicyRules`; the first that applies decides before any restart policy."""

    action: str = ""
    """`Restart`, or `RestartAllContainers` of the pod."""
    exit_codes: ExitCodes | None = None

    def applies_to(self, exit_code: int) -> bool:
        """Return True if it decides after an exit."""
        codes = self.exit_codes or ExitCodes()
        is_listed = exit_code in (codes.values or ())
        return is_listed if codes.operator == "In" else codes.operator == "NotIn" and not is_listed


class Container(Value, frozen=True):
    """A container of a pod's spec."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None
    restart_policy: str = ""
    """`Always` makes an init container a sidecar; empty for the policy of the pod."""
    restart_policy_rules: list[RestartRule] | None = None

    def key(self) -> Hashable:
        """Return a key that is equal for equal containers."""
        asked = self.resources
        rules = msgspec.json.encode(self.restart_policy_rules) if self.restart_policy_rules else b""
        if asked is None:
            return self.name, self.image, self.restart_policy, rules
        requests = tuple(asked.requests.items()) if asked.requests else None
        limits = tuple(asked.limits.items()) if asked.limits else None
        return self.name, self.image, self.restart_policy, rules, requests, limits, bool(asked.claims)


class PodSpec(Value, frozen=True):
    """The containers of a pod, its node, and its restart policy."""

    node_name: str = ""
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    """Pod-level resources, since Kubernetes 1.34."""
    resource_claims: list[dict[str, str]] | None = None
    scheduling_group: dict[str, str] | None = None
    """`podGroupName`: the native PodGroup with which the pod is scheduled."""
    claimed: dict[str, int] | None = None
    """Not an API field: resource to devices held through claims, see `k8s.models.dra`."""
    claimed_limits: tuple[str, ...] = ()
    """Not an API field: resources of its limits whose devices are in `claimed`."""
    priority_class_name: str = ""
    restart_policy: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "node_name", sys.intern(self.node_name))
        force_setattr(self, "priority_class_name", sys.intern(self.priority_class_name))
        force_setattr(self, "restart_policy", sys.intern(self.restart_policy))
        force_setattr(self, "containers", _alike(self.containers))
        if self.init_containers:
            force_setattr(self, "init_containers", _alike(self.init_containers))


def _alike(containers: list[Container]) -> list[Container]:
    # The pods of a job share one list.
    if (found := as_before("containers", containers)) is containers:
        LAST["containers"] = found = shared(tuple([each.key() for each in containers]), containers)
    return found


class Waiting(Value, frozen=True):
    """`state.waiting`: a container that has not started yet, or waits for a restart."""

    reason: str = ""
    message: str = ""


class Running(Value, frozen=True):
    """`state.running`."""

    started_at: datetime | None = None


class Terminated(Value, frozen=True):
    """`state.terminated`: exit code or signal, reason and times."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Value, frozen=True):
    """At most one of the three is set; none if the kubelet has not reported."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


NOT_SAID = ContainerState()
"""State of a container that never ran."""


class DeviceHealth(Value, frozen=True):
    """The health of one device: `Healthy`, `Unhealthy` or `Unknown`. Source: KEP-4680."""

    resource_id: str = msgspec.field(name="resourceID", default="")
    health: str = ""
    message: str = ""


class DeviceStatus(Value, frozen=True):
    """The devices of one resource (`nvidia.com/gpu`, `claim:gpu/r`) that a container has."""

    name: str = ""
    resources: list[DeviceHealth] | None = None


class ContainerStatus(Value, frozen=True):
    """An entry of `containerStatuses`."""

    name: str = ""
    state: ContainerState = NOT_SAID
    last_state: ContainerState = NOT_SAID
    ready: bool = False
    restart_count: int = 0
    allocated_resources_status: list[DeviceStatus] | None = None


class ExtendedResourceClaim(Value, frozen=True):
    """The claim that the scheduler made for limits of a pod; each mapping has a `resourceName`."""

    request_mappings: list[dict[str, str]] | None = None


# Every running pod has these; once true, they carry no information.
_USUAL = frozenset({"ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"})


def _telling(conditions: list[Condition]) -> list[Condition] | None:
    return [each for each in conditions if each.status != "True" or each.type not in _USUAL] or None


class PodStatus(Value, frozen=True):
    """Phase and conditions of a pod; conditions that every running pod has are dropped."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    start_time: datetime | None = None
    resource_claim_statuses: list[dict[str, str]] | None = None
    extended_resource_claim_status: ExtendedResourceClaim | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "phase", sys.intern(self.phase))
        if self.conditions is not None:
            force_setattr(self, "conditions", _telling(self.conditions))
        for statuses in (self.container_statuses, self.init_container_statuses):
            for status in statuses or ():
                force_setattr(status, "name", sys.intern(status.name))
                last = status.last_state
                if last.terminated is None and last.waiting is None and last.running is None:
                    force_setattr(status, "last_state", NOT_SAID)


class Pod(Value, frozen=True):
    """A `v1.Pod`."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        force_setattr(self, "spec", as_before("spec", self.spec))
        force_setattr(self, "status", as_before("status", self.status))

    @property
    def is_finished(self) -> bool:
        """Return True if all containers have ended for good, which frees their resources."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def claim_names(self) -> set[str]:
        """Return the names of its resource claims, except the one made for its limits."""
        found = (*(self.spec.resource_claims or ()), *(self.status.resource_claim_statuses or ()))
        return {each["resourceClaimName"] for each in found if "resourceClaimName" in each}
