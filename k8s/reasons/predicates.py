"""Predicates of kube-scheduler: node affinity, taints, resources; and placement of gangs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from k8s.models import Condition, Meta, Node, NodeSpec, NodeStatus, Taint, accelerators
from k8s.reasons.requests import (
    Amount,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceList,
    SchedulingSpec,
    Toleration,
    allocatable_of,
    insufficient,
    subtract,
)
from k8s.snapshot import NodeRow

# Taint of a cordoned node; pods that tolerate it are admitted.
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
# The only field that `matchFields` supports.
NAME_FIELD = "metadata.name"
_BASIC = ("cpu", "memory")


class InfeasibleReason(StrEnum):
    """Reason why a node cannot take a pod, worded to follow "3 nodes"."""

    MISMATCH = "not matching"
    CORDONED = "cordoned"
    NOT_READY = "not ready"
    TAINTED = "tainted"
    TOO_SMALL = "too small"
    BUSY = "too full"

    @property
    def is_closed(self) -> bool:
        """Return True if the node takes no such pod, however much of it is free."""
        return self in (InfeasibleReason.CORDONED, InfeasibleReason.NOT_READY, InfeasibleReason.TAINTED)


class InfeasibleNode(msgspec.Struct, frozen=True):
    """Node that cannot take a pod, with the first reason."""

    name: str
    reason: InfeasibleReason
    detail: str = ""


class NodeCapacity(msgspec.Struct, frozen=True):
    """Allocatable and free resources of a node."""

    node: Node
    allocatable: ResourceList
    free: ResourceList

    @classmethod
    def of(
        cls, node: Node, requested: Mapping[str, Amount] | None, row: NodeRow | None = None
    ) -> NodeCapacity:
        """Return the capacity of a node.

        Args:
            node: The node.
            requested: Total requests of its pods; None if unknown, then only accelerators count as taken.
            row: The node as shown, whose accelerator counts cover all visible pods.
        """
        shares = row.resources if row is not None else {}
        # Devices of resource claims are in the row only.
        allocatable = {
            **{name: share.total for name, share in shares.items() if share.total},
            **allocatable_of(node),
        }
        counted: ResourceList = {
            name: share.total - share.allocated for name, share in shares.items() if name in allocatable
        }
        return cls(node, allocatable, subtract(allocatable, requested or {}) | counted)

    @classmethod
    def of_row(cls, row: NodeRow) -> NodeCapacity:
        """Return the capacity of a displayed node; all of what is no accelerator counts as free."""
        ready = Condition("Ready", "True" if row.status.startswith("Ready") else "False")
        spec = NodeSpec("cordoned" in row.status, list(row.taints))
        node = Node(Meta(row.name, labels=dict(row.labels)), spec, NodeStatus(conditions=[ready]))
        totals = {name: share.total for name, share in row.resources.items()}
        free = {name: share.total - share.allocated for name, share in row.resources.items()}
        others = allocatable_of(row)
        return cls(node, {**others, **totals}, {**others, **free})

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.metadata.name

    def less(self, requested: Mapping[str, Amount]) -> NodeCapacity:
        """Return the capacity left after binding a pod with these requests."""
        return replace(self, free=subtract(self.free, requested))

    def emptied(self) -> NodeCapacity:
        """Return the capacity without any pods, of the node when it is open and ready."""
        ready = NodeStatus(conditions=[Condition("Ready", "True")])
        spec = msgspec.structs.replace(self.node.spec, unschedulable=False)
        return NodeCapacity(Node(self.node.metadata, spec, ready), self.allocatable, self.allocatable)


class ClusterCapacity(msgspec.Struct, frozen=True):
    """Capacity of all nodes, by name."""

    nodes: Mapping[str, NodeCapacity]

    @classmethod
    def of_rows(cls, rows: Iterable[NodeRow]) -> ClusterCapacity:
        """Return the capacity of displayed nodes."""
        return cls({row.name: NodeCapacity.of_row(row) for row in rows})

    def emptied(self) -> ClusterCapacity:
        """Return the capacity without any pods, of all nodes when they are open and ready."""
        return ClusterCapacity({name: each.emptied() for name, each in self.nodes.items()})

    def infeasible(self, spec: SchedulingSpec, requested: ResourceList) -> list[InfeasibleNode]:
        """Return the nodes that cannot take a pod."""
        found = (infeasible_node(spec, requested, capacity) for capacity in self.nodes.values())
        return [each for each in found if each is not None]

    def place(
        self, requested: ResourceList, pods: int, infeasible: Container[str]
    ) -> tuple[ClusterCapacity, int]:
        """Place up to `pods` equal pods, fullest nodes first; return the capacity left and the number placed.

        `infeasible` has the names of nodes that cannot take such a pod; looked up only until all are placed.
        """
        main = main_resource(requested)
        nodes = dict(self.nodes)
        placed = 0
        have_room = [each for each in self.nodes.values() if each.free.get(main, 0) >= requested[main]]
        for capacity in sorted(have_room, key=lambda each: each.free.get(main, 0)):
            if placed == pods:
                break
            if capacity.name in infeasible:
                continue
            most = min(int(capacity.free[each] // requested[each]) for each in requested)
            here = min(pods - placed, most)
            if here <= 0:
                continue
            nodes[capacity.name] = capacity.less({each: requested[each] * here for each in requested})
            placed += here
        return ClusterCapacity(nodes), placed


def infeasible_node(
    spec: SchedulingSpec, requested: ResourceList, capacity: NodeCapacity
) -> InfeasibleNode | None:
    """Return the first reason why a node cannot take a pod; None if it can."""
    node, name = capacity.node, capacity.name
    if missing := mismatch(spec, node):
        return InfeasibleNode(name, InfeasibleReason.MISMATCH, missing)
    if node.spec.unschedulable and not tolerates(spec.tolerations or (), CORDON):
        return InfeasibleNode(name, InfeasibleReason.CORDONED)
    if not is_ready(node):
        return InfeasibleNode(name, InfeasibleReason.NOT_READY)
    if found := untolerated(spec.tolerations or (), node):
        return InfeasibleNode(name, InfeasibleReason.TAINTED, str(found[0]))
    for reason, available in (
        (InfeasibleReason.TOO_SMALL, capacity.allocatable),
        (InfeasibleReason.BUSY, capacity.free),
    ):
        if short := insufficient(requested, available):
            return InfeasibleNode(name, reason, min(short, key=importance))
    return None


def is_ready(node: Node) -> bool:
    """Return True if the node's Ready condition is true."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())


def main_resource(requested: Iterable[str]) -> str:
    """Return the most important resource requested: an accelerator if there is one."""
    return min(requested, key=importance)


def importance(resource: str) -> tuple[int, str]:
    """Return a sort key: accelerators, other devices, cpu, memory, number of pods."""
    if accelerators.is_accelerator(resource):
        return 0, resource
    if resource in _BASIC:
        return 2 + _BASIC.index(resource), resource
    return (1 if "/" in resource else 5), resource


def mismatch(spec: SchedulingSpec, node: Node) -> str:
    """Return the first node selector or affinity term that a node does not match; empty if it matches."""
    labels = node.metadata.labels or {}
    for key, value in (spec.node_selector or {}).items():
        if labels.get(key) != value:
            return f"label {key}={value}"
    terms = required_terms(spec)
    if terms is None or any(_term_matches(term, node) for term in terms):
        return ""
    return " or ".join(dict.fromkeys(format_term(term) for term in terms)) or "nothing: no term is given"


def format_selector(spec: SchedulingSpec) -> str:
    """Describe the node labels that a pod requires; empty if none."""
    parts = [f"{key}={value}" for key, value in (spec.node_selector or {}).items()]
    if terms := required_terms(spec):
        parts.append(" or ".join(dict.fromkeys(format_term(term) for term in terms)))
    return " and ".join(parts)


def required_terms(spec: SchedulingSpec) -> Sequence[NodeSelectorTerm] | None:
    """Return the required node affinity terms, any of which must match; None without a requirement."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return None
    return affinity.required.node_selector_terms or ()


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    # A term without requirements matches no node.
    # Source: Kubernetes `component-helpers/scheduling/corev1/nodeaffinity`.
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    labels = node.metadata.labels or {}
    named = {NAME_FIELD: node.metadata.name}
    return all(matches(each, labels) for each in expressions) and all(
        each.operator in ("In", "NotIn") and matches(each, named) for each in fields
    )


def matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return True if a label requirement matches; an unknown operator never does."""
    check = _OPERATORS.get(requirement.operator)
    return check is not None and check(labels.get(requirement.key), requirement.values or [])


def _number(text: str | None) -> int | None:
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


def format_term(term: NodeSelectorTerm) -> str:
    """Format a term for display, e.g. `zone in (a, b) and gpu exists`."""
    requirements = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(_format_requirement(each) for each in requirements)


def _format_requirement(requirement: NodeSelectorRequirement) -> str:
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
    """Return True if any toleration covers a taint.

    An empty effect covers every effect, an empty key with Exists every key; an empty operator is Equal.

    Source: Kubernetes, "Taints and Tolerations"; `Toleration.ToleratesTaint`.
    """
    return any(_covers(each, taint) for each in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # Without a key only Exists is valid.
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


def untolerated(tolerations: Sequence[Toleration], node: Node) -> list[Taint]:
    """Return the taints that keep a pod away, without those that mirror node conditions."""
    return [
        taint
        for taint in node.spec.taints or ()
        if taint.keeps_pods_away and not tolerates(tolerations, taint)
    ]
