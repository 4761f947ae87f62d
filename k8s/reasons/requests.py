"""Pod specs as far as they decide where and whether a pod can start, and what they request.

Names are the API's, in snake case. Source: Kubernetes API reference v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

from k8s import models
from k8s.models import Container, Node, PodSpec, Resources, Value, accelerators, quantity
from k8s.snapshot import NodeRow

# Exact. Nearly all amounts are whole, and integers compare ten times as fast as fractions.
Amount = int | Fraction
ResourceList = dict[str, Amount]
"""Amount by resource name in base units; a missing resource is zero."""
PODS = "pods"
# Default of the kubelet, for a node that does not report its pod limit.
DEFAULT_MAX_PODS = 110


class Toleration(Value, frozen=True):
    """Toleration of a taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Value, frozen=True):
    """Requirement on a node's label or field."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Value, frozen=True):
    """Requirements that must all match."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Value, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Value, frozen=True):
    """Node affinity of a pod."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinity(Value, frozen=True):
    """Affinity or anti-affinity to other pods."""

    required: list[dict[str, Any]] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Value, frozen=True):
    """Affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class ClaimVolumeSource(Value, frozen=True):
    """Volume source that is a volume claim."""

    claim_name: str = ""


class ObjectVolumeSource(Value, frozen=True):
    """Volume source that is a ConfigMap or, with `secret_name`, a Secret."""

    name: str = ""
    secret_name: str = ""
    optional: bool = False


class Volume(Value, frozen=True):
    """Volume backed by a claim, a ConfigMap or a Secret."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    config_map: ObjectVolumeSource | None = None
    secret: ObjectVolumeSource | None = None


class LocalReference(Value, frozen=True):
    """Reference by name alone."""

    name: str = ""


class TopologySpreadConstraint(Value, frozen=True):
    """Constraint on how evenly pods are spread."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class SchedulingSpec(PodSpec, frozen=True):
    """Pod spec with all fields that affect scheduling."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    image_pull_secrets: list[LocalReference] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[LocalReference] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    resources: Resources | None = None
    """Pod-level resources (Kubernetes 1.34 and newer)."""

    @property
    def claims(self) -> list[str]:
        """Names of the volume claims it mounts."""
        sources = (volume.persistent_volume_claim for volume in self.volumes or ())
        return [source.claim_name for source in sources if source is not None and source.claim_name]


def spec_from_template(template: object) -> SchedulingSpec:
    """Read a pod template's spec; an invalid one requests nothing."""
    spec = template.get("spec") if isinstance(template, dict) else None
    try:
        found: SchedulingSpec = models.convert(spec or {}, SchedulingSpec, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return SchedulingSpec()
    return found


def from_quantities(quantities: Mapping[str, str | int | float] | None) -> ResourceList:
    """Parse quantities; invalid ones count as zero, and devices are rounded up."""
    found: ResourceList = {}
    for name, text in (quantities or {}).items():
        try:
            amount = quantity.parse(text)
        except ValueError:
            continue
        is_whole = amount.denominator == 1 or accelerators.is_accelerator(name)
        found[name] = ceil(amount) if is_whole else amount
    return found


def of_container(container: Container) -> ResourceList:
    """Return the requests of a container; limits count where a request is missing."""
    if container.resources is None:
        return {}
    return {**from_quantities(container.resources.limits), **from_quantities(container.resources.requests)}


def of_pod(spec: PodSpec) -> ResourceList:
    """Return the effective requests of a pod.

    The larger of all containers with the sidecars, and any init container with the sidecars started
    before it; overridden by pod-level resources; plus overhead and one pod.

    Source: Kubernetes, "Init Containers: resource sharing within containers"; component-helpers
    `resource.PodRequests`.
    """
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for init in spec.init_containers or ():
        init_requests = of_container(init)
        if init.restart_policy == "Always":
            sidecars = add((sidecars, init_requests))
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add((sidecars, init_requests)))
    running = add((sidecars, *(of_container(container) for container in spec.containers)))
    pod_level = spec.resources
    own = (
        {**from_quantities(pod_level.limits), **from_quantities(pod_level.requests)}
        if pod_level is not None
        else {}
    )
    requested = add(({**maximum(peak, running), **own}, from_quantities(spec.overhead)))
    return {name: amount for name, amount in requested.items() if amount > 0} | {PODS: 1}


def add(lists: Iterable[Mapping[str, Amount]]) -> ResourceList:
    """Add amounts by resource."""
    total: ResourceList = {}
    for each in lists:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def subtract(total: Mapping[str, Amount], part: Mapping[str, Amount]) -> ResourceList:
    """Subtract `part` from `total`; resources missing in `total` are ignored."""
    return {name: amount - part.get(name, 0) for name, amount in total.items()}


def maximum(one: ResourceList, other: ResourceList) -> ResourceList:
    """Return the larger amount by resource."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def insufficient(requested: Mapping[str, Amount], available: Mapping[str, Amount]) -> list[str]:
    """Return the resources of which too little is available, in the order requested."""
    return [name for name, amount in requested.items() if amount > available.get(name, 0)]


def allocatable_of(node: Node | NodeRow) -> ResourceList:
    """Return the allocatable resources of a node, or its capacity if it reports none."""
    given = node.allocatable if isinstance(node, NodeRow) else node.status.allocatable or node.status.capacity
    return {PODS: DEFAULT_MAX_PODS, **from_quantities(given)}
