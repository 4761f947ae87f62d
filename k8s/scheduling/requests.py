"""How much of each resource a pod wants, and how much of it a node has left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from k8s.models import Container, Node, Quantities, quantity
from k8s.scheduling.objects import SchedulingSpec
from k8s.snapshot import NodeRow

Amounts = dict[str, Fraction]
"""Resource name to an exact amount in its base unit; what is not named is nothing."""
PODS = "pods"
"""The resource of which every pod takes one."""
USUAL_PODS = Fraction(110)
"""Pods on a node that does not say how many it takes. Source: the kubelet's default."""


def read(quantities: Quantities | None) -> Amounts:
    """Read quantities; one that makes no sense counts as nothing."""
    found: Amounts = {}
    for name, text in (quantities or {}).items():
        try:
            found[name] = quantity.parse(text)
        except ValueError:
            continue
    return found


def of_container(container: Container) -> Amounts:
    """Return what a container requests; a limit counts where there is no request for it."""
    if container.resources is None:
        return {}
    return {**read(container.resources.limits), **read(container.resources.requests)}


def of_pod(spec: SchedulingSpec) -> Amounts:
    """Return what the scheduler must find for a pod.

    The larger of two sums: all containers with the sidecars, or any one init container with
    the sidecars that started before it; what the pod as a whole asks for instead of that;
    its overhead; and one of the pods that a node may have.

    Source: Kubernetes, "Init Containers: resource sharing within containers"; component-helpers
    `resource.PodRequests`.
    """
    sidecars: Amounts = {}
    peak: Amounts = {}
    for init in spec.init_containers or ():
        asked = of_container(init)
        if init.restart_policy == "Always":
            sidecars = add((sidecars, asked))
            peak = larger(peak, sidecars)
        else:
            peak = larger(peak, add((sidecars, asked)))
    running = add((sidecars, *(of_container(container) for container in spec.containers)))
    whole = spec.resources
    own = {**read(whole.limits), **read(whole.requests)} if whole is not None else {}
    wanted = add(({**larger(peak, running), **own}, read(spec.overhead)))
    return {name: amount for name, amount in wanted.items() if amount > 0} | {PODS: Fraction(1)}


def add(amounts: Iterable[Mapping[str, Fraction]]) -> Amounts:
    """Add amounts, resource by resource."""
    total: Amounts = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, Fraction()) + amount
    return total


def subtract(whole: Mapping[str, Fraction], part: Mapping[str, Fraction]) -> Amounts:
    """Take `part` from `whole`; what is not in `whole` stays away."""
    return {name: amount - part.get(name, Fraction()) for name, amount in whole.items()}


def larger(one: Amounts, other: Amounts) -> Amounts:
    """Return the larger of two amounts, resource by resource."""
    return {name: max(one.get(name, Fraction()), other.get(name, Fraction())) for name in {**one, **other}}


def lacking(wanted: Mapping[str, Fraction], there: Mapping[str, Fraction]) -> list[str]:
    """Return the resources of which too little is there, in the order in which they are wanted."""
    return [name for name, amount in wanted.items() if amount > there.get(name, Fraction())]


def whole_of(node: Node) -> Amounts:
    """Return what a node may give to pods."""
    return {PODS: USUAL_PODS, **read(node.status.allocatable)}


def free_of(node: Node, row: NodeRow | None, used: Mapping[str, Fraction] | None) -> Amounts:
    """Return what is left on a node.

    Args:
        node: The node.
        row: Its accelerators as the console counts them, over all pods that it sees.
        used: What the node's pods request of everything; None when nobody has asked for them,
            and then only accelerators are known to be taken.
    """
    free = subtract(whole_of(node), used or {})
    for name, share in (row.resources if row is not None else {}).items():
        if name in free:
            free[name] = Fraction(share.total - share.allocated)
    return free
