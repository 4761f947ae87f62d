"""Which nodes can take a pod, why each of the others cannot, and how many pods of a gang fit.

kube-scheduler's predicates: node affinity, taints, and whether the node has the resources.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from k8s.devices import accelerators
from k8s.models import Condition, Meta, Node, NodeSpec, NodeStatus, Taint
from k8s.scheduling.requests import Amount, ResourceList, allocatable_of, insufficient, subtract
from k8s.scheduling.scheduling_spec import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingSpec,
    Toleration,
)
from k8s.snapshot import NodeRow

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What cordoning a node amounts to; a pod that tolerates it is let in."""
NAME_FIELD = "metadata.name"
"""The one field that `matchFields` knows."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_OF_CONDITIONS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
)
_BASIC = ("cpu", "memory")


class UnfitReason(StrEnum):
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
        return self in (UnfitReason.CORDONED, UnfitReason.NOT_READY, UnfitReason.TAINTED)


@dataclass(frozen=True, slots=True)
class UnfitNode:
    """A node that cannot take a pod, and the first reason for that."""

    name: str
    reason: UnfitReason
    detail: str = ""
    """What is missing, or the taint."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node, and how much of it there is."""

    node: Node
    allocatable: ResourceList
    """What may be given to pods."""
    free: ResourceList
    """What no pod has."""

    @classmethod
    def of(
        cls, node: Node, requested: Mapping[str, Amount] | None, row: NodeRow | None = None
    ) -> NodeCapacity:
        """Return the capacity of a node.

        Args:
            node: The node.
            requested: What its pods request together; None when nobody has read them, and then
                only accelerators are known to be taken.
            row: Its accelerators as the console counts them, over all pods that it sees.
        """
        allocatable = allocatable_of(node)
        shares = row.resources.items() if row is not None else ()
        counted: ResourceList = {
            name: share.total - share.allocated for name, share in shares if name in allocatable
        }
        return cls(node, allocatable, subtract(allocatable, requested or {}) | counted)

    @classmethod
    def of_row(cls, row: NodeRow) -> NodeCapacity:
        """Return the capacity of a node as it is shown: of its accelerators alone, and without its labels."""
        ready = Condition("Ready", "True" if row.status.startswith("Ready") else "False")
        spec = NodeSpec("cordoned" in row.status, list(row.taints))
        node = Node(Meta(row.name), spec, NodeStatus(conditions=[ready]))
        shares = row.resources.items()
        allocatable: ResourceList = {name: share.total for name, share in shares}
        return cls(node, allocatable, {name: share.total - share.allocated for name, share in shares})

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.node.metadata.name

    def less(self, requested: Mapping[str, Amount]) -> NodeCapacity:
        """Return what is left when a pod that requests so much is bound to the node."""
        return replace(self, free=subtract(self.free, requested))


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """The nodes, by name, and what is left on each."""

    nodes: Mapping[str, NodeCapacity]

    @classmethod
    def of_rows(cls, rows: Iterable[NodeRow]) -> ClusterCapacity:
        """Return the capacity of nodes as they are shown."""
        return cls({row.name: NodeCapacity.of_row(row) for row in rows})

    def emptied(self) -> ClusterCapacity:
        """Return the same nodes without any pod."""
        return ClusterCapacity(
            {name: replace(each, free=each.allocatable) for name, each in self.nodes.items()}
        )

    def unfit(self, spec: SchedulingSpec, requested: ResourceList) -> list[UnfitNode]:
        """Return the nodes that cannot take a pod, each with the reason."""
        found = (unfit_node(spec, requested, capacity) for capacity in self.nodes.values())
        return [each for each in found if each is not None]

    def place(self, requested: ResourceList, pods: int, unfit: Container[str]) -> tuple[ClusterCapacity, int]:
        """Place up to `pods` equal pods, fullest nodes first; return what is left and how many fit.

        Args:
            requested: What each of them requests.
            pods: How many there are.
            unfit: The names of the nodes that cannot take even one; asked only until all are placed.
        """
        main = main_resource(requested)
        nodes = dict(self.nodes)
        placed = 0
        have_room = [each for each in self.nodes.values() if each.free.get(main, 0) >= requested[main]]
        for capacity in sorted(have_room, key=lambda each: each.free.get(main, 0)):
            if placed == pods:
                break
            if capacity.name in unfit:
                continue
            most = min(int(capacity.free[each] // requested[each]) for each in requested)
            here = min(pods - placed, most)
            if here <= 0:
                continue
            nodes[capacity.name] = capacity.less({each: requested[each] * here for each in requested})
            placed += here
        return ClusterCapacity(nodes), placed


def unfit_node(spec: SchedulingSpec, requested: ResourceList, capacity: NodeCapacity) -> UnfitNode | None:
    """Return the first reason why a node cannot take a pod; None when it can."""
    node, name = capacity.node, capacity.name
    if missing := mismatch(spec, node):
        return UnfitNode(name, UnfitReason.MISMATCH, missing)
    if node.spec.unschedulable and not tolerates(spec.tolerations or (), CORDON):
        return UnfitNode(name, UnfitReason.CORDONED)
    if not is_ready(node):
        return UnfitNode(name, UnfitReason.NOT_READY)
    if found := untolerated(spec.tolerations or (), node):
        return UnfitNode(name, UnfitReason.TAINTED, taint_words(found[0]))
    for reason, available in (
        (UnfitReason.TOO_SMALL, capacity.allocatable),
        (UnfitReason.BUSY, capacity.free),
    ):
        if short := insufficient(requested, available):
            return UnfitNode(name, reason, min(short, key=importance))
    return None


def is_ready(node: Node) -> bool:
    """Tell whether a node answers and says that it is well."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())


def main_resource(requested: Iterable[str]) -> str:
    """Return the resource that a pod is about: an accelerator if it requests any."""
    return min(requested, key=importance)


def importance(resource: str) -> tuple[int, str]:
    """Sort resources: accelerators, other devices, then cpu, memory, and the number of pods last."""
    if accelerators.is_accelerator(resource):
        return 0, resource
    if resource in _BASIC:
        return 2 + _BASIC.index(resource), resource
    return (1 if "/" in resource else 5), resource


def mismatch(spec: SchedulingSpec, node: Node) -> str:
    """Return what a node lacks that the pod demands, in words; empty when it has all of it."""
    labels = node.metadata.labels or {}
    for key, value in (spec.node_selector or {}).items():
        if labels.get(key) != value:
            return f"label {key}={value}"
    terms = required_terms(spec)
    if terms is None or any(_term_matches(term, node) for term in terms):
        return ""
    return " or ".join(dict.fromkeys(term_words(term) for term in terms)) or "nothing: no term is given"


def selector_words(spec: SchedulingSpec) -> str:
    """Return which labels the pod asks a node to have, in words; empty when nothing."""
    parts = [f"{key}={value}" for key, value in (spec.node_selector or {}).items()]
    if terms := required_terms(spec):
        parts.append(" or ".join(dict.fromkeys(term_words(term) for term in terms)))
    return " and ".join(parts)


def required_terms(spec: SchedulingSpec) -> Sequence[NodeSelectorTerm] | None:
    """Return the terms of which one must hold; None when there is no such demand."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return None
    return affinity.required.node_selector_terms or ()


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Tell whether all requirements of a term hold; a term without any holds for no node.

    Source: Kubernetes `component-helpers/scheduling/corev1/nodeaffinity`.
    """
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    labels = node.metadata.labels or {}
    named = {NAME_FIELD: node.metadata.name}
    return all(matches(each, labels) for each in expressions) and all(
        each.operator in ("In", "NotIn") and matches(each, named) for each in fields
    )


def matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Tell whether one requirement about labels holds; one that the server would not accept never does."""
    check = _OPERATORS.get(requirement.operator)
    return check is not None and check(labels.get(requirement.key), requirement.values or [])


def _number(text: str | None) -> int | None:
    """Return a whole number as the API reads it: a sign, then digits."""
    digits = (
        (text or "").removeprefix("-") if (text or "").startswith("-") else (text or "").removeprefix("+")
    )
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19:
        return None
    return int(text or "")


def _is_beyond(value: str | None, values: list[str], sign: int) -> bool:
    here, bound = _number(value), _number(values[0]) if len(values) == 1 else None
    return here is not None and bound is not None and (here - bound) * sign > 0


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: bool(values) and (value is None or value not in values),
    "Exists": lambda value, values: value is not None and not values,
    "DoesNotExist": lambda value, values: value is None and not values,
    "Gt": lambda value, values: _is_beyond(value, values, 1),
    "Lt": lambda value, values: _is_beyond(value, values, -1),
}

_SIGNS = {"In": "in", "NotIn": "not in", "Gt": ">", "Lt": "<"}


def term_words(term: NodeSelectorTerm) -> str:
    """Return a term as people read it: `zone in (a, b) and gpu exists`."""
    requirements = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(_requirement_words(each) for each in requirements)


def _requirement_words(requirement: NodeSelectorRequirement) -> str:
    key, operator, values = requirement.key, requirement.operator, requirement.values or []
    match operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "Exists":
            return f"label {key}"
        case "DoesNotExist":
            return f"no label {key}"
        case "Gt" | "Lt":
            return f"{key} {_SIGNS[operator]} {', '.join(values)}"
        case _:
            return f"{key} {_SIGNS.get(operator, operator)} ({', '.join(values)})"


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Tell whether any of the tolerations covers a taint.

    Source: Kubernetes, "Taints and Tolerations"; `Toleration.ToleratesTaint`: an empty effect means
    every effect, an empty key with Exists every key, an empty operator is Equal.
    """
    return any(_covers(each, taint) for each in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # Without a key only Exists means anything.
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


def untolerated(tolerations: Sequence[Toleration], node: Node) -> list[Taint]:
    """Return the taints that keep a pod away, without those that only repeat the node's condition."""
    return [
        taint
        for taint in node.spec.taints or ()
        if taint.effect in _KEEPS_AWAY
        and taint.key not in _OF_CONDITIONS
        and not tolerates(tolerations, taint)
    ]


def taint_words(taint: Taint) -> str:
    """Return a taint as kubectl writes it: `dedicated=team:NoSchedule`."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
