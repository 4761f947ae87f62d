"""How much of each resource a pod requests, and how much of it a node has left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from k8s.devices import accelerators
from k8s.models import Container, Node, PodSpec, Quantities, quantity

Amount = int | Fraction
"""Exact: an integer where it is whole, as nearly all are, since integers are compared ten times as fast."""
ResourceList = dict[str, Amount]
"""Resource name to an exact amount in its base unit; what is not named is nothing."""
PODS = "pods"
"""The resource of which every pod takes one."""
DEFAULT_MAX_PODS = 110
"""Pods on a node that does not say how many it takes. Source: the kubelet's default."""


def from_quantities(quantities: Quantities | None) -> ResourceList:
    """Read quantities; one that makes no sense counts as nothing, and devices cannot be split."""
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
    """Return what a container requests; a limit counts where there is no request for it."""
    if container.resources is None:
        return {}
    return {**from_quantities(container.resources.limits), **from_quantities(container.resources.requests)}


def of_pod(spec: PodSpec) -> ResourceList:
    """Return what the scheduler must find for a pod.

    The larger of two sums: all containers with the sidecars, or any one init container with
    the sidecars that started before it; what the pod as a whole asks for instead of that;
    its overhead; and one of the pods that a node may have.

    Source: Kubernetes, "Init Containers: resource sharing within containers"; component-helpers
    `resource.PodRequests`.
    """
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for init in spec.init_containers or ():
        asked = of_container(init)
        if init.restart_policy == "Always":
            sidecars = add((sidecars, asked))
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add((sidecars, asked)))
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
    """Add amounts, resource by resource."""
    total: ResourceList = {}
    for each in lists:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def subtract(total: Mapping[str, Amount], part: Mapping[str, Amount]) -> ResourceList:
    """Take `part` from `total`; what is not in `total` stays away."""
    return {name: amount - part.get(name, 0) for name, amount in total.items()}


def maximum(one: ResourceList, other: ResourceList) -> ResourceList:
    """Return the larger of two amounts, resource by resource."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def insufficient(requested: Mapping[str, Amount], available: Mapping[str, Amount]) -> list[str]:
    """Return the resources of which too little is available, in the order in which they are requested."""
    return [name for name, amount in requested.items() if amount > available.get(name, 0)]


def allocatable_of(node: Node) -> ResourceList:
    """Return what a node may give to pods: all that it has, where it does not say otherwise."""
    return {PODS: DEFAULT_MAX_PODS, **from_quantities(node.status.allocatable or node.status.capacity)}
