"""Resource requests of pods, and allocatable resources of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from k8s.models import Container, Node, PodSpec, accelerators, quantity
from k8s.snapshot import NodeRow

# Exact. Nearly all amounts are whole, and integers compare ten times as fast as fractions.
Amount = int | Fraction
ResourceList = dict[str, Amount]
"""Amount by resource name in base units; a missing resource is zero."""
PODS = "pods"
# Default of the kubelet, for a node that does not report its pod limit.
DEFAULT_MAX_PODS = 110


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
