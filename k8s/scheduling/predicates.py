"""Which nodes have room for a pod, why each of the others has not, and how many pods of a gang fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from k8s.devices import accelerators
from k8s.models import Node
from k8s.scheduling import taints
from k8s.scheduling.affinity import mismatch
from k8s.scheduling.objects import SchedulingSpec
from k8s.scheduling.requests import Amounts, lacking, subtract

_USUAL = ("cpu", "memory")


class Reason(StrEnum):
    """Why a node cannot take a pod. The words end "3 nodes …"."""

    MISMATCH = "not matching"
    CORDONED = "cordoned"
    NOT_READY = "not ready"
    TAINTED = "tainted"
    TOO_SMALL = "too small"
    BUSY = "too full"

    @property
    def is_closed(self) -> bool:
        """Tell whether the node takes no such pods, however much of it is free."""
        return self in (Reason.CORDONED, Reason.NOT_READY, Reason.TAINTED)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first reason why a node cannot take a pod."""

    node: str
    reason: Reason
    words: str = ""
    """What is missing, or the taint."""


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """The nodes, and what is left on each."""

    nodes: tuple[Node, ...]
    whole: Mapping[str, Amounts]
    """Node name to what may be given to pods."""
    free: Mapping[str, Amounts]
    """Node name to what no pod has."""

    def after(self, wish: SchedulingSpec, wanted: Amounts, pods: int) -> tuple[ClusterCapacity, int]:
        """Place up to `pods` equal pods, fullest nodes first; return what is left and how many found room."""
        main = main_resource(wanted)
        free = dict(self.free)
        placed = 0
        for node in sorted(self.nodes, key=lambda each: self.free[each.metadata.name].get(main, 0)):
            name = node.metadata.name
            if placed < pods and refusal(wish, wanted, node, self.whole[name], free[name]) is None:
                here = min(pods - placed, *(int(free[name][each] // wanted[each]) for each in wanted))
                free[name] = subtract(free[name], {each: wanted[each] * here for each in wanted})
                placed += here
        return ClusterCapacity(self.nodes, self.whole, free), placed


def is_ready(node: Node) -> bool:
    """Tell whether a node answers and says that it is well."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())


def main_resource(wanted: Iterable[str]) -> str:
    """Return the resource that a pod is about: an accelerator if it wants any."""
    return min(wanted, key=importance)


def importance(resource: str) -> tuple[int, str]:
    """Sort resources: accelerators, other devices, then cpu, memory, and the number of pods last."""
    if accelerators.is_accelerator(resource):
        return 0, resource
    if resource in _USUAL:
        return 2 + _USUAL.index(resource), resource
    return (1 if "/" in resource else 5), resource


def refusal(
    wish: SchedulingSpec, wanted: Amounts, node: Node, whole: Amounts, free: Amounts
) -> Refusal | None:
    """Return the first reason why a node cannot take a pod; None when it can."""
    name = node.metadata.name
    if missing := mismatch(wish, node):
        return Refusal(name, Reason.MISMATCH, missing)
    if node.spec.unschedulable and not taints.tolerates(wish.tolerations or (), taints.CORDON):
        return Refusal(name, Reason.CORDONED)
    if not is_ready(node):
        return Refusal(name, Reason.NOT_READY)
    if found := taints.untolerated(wish.tolerations or (), node):
        return Refusal(name, Reason.TAINTED, taints.words(found[0]))
    for reason, there in ((Reason.TOO_SMALL, whole), (Reason.BUSY, free)):
        if short := lacking(wanted, there):
            return Refusal(name, reason, min(short, key=importance))
    return None
