"""Finds the pods of a job for which there is no node, by arithmetic, and describes it in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from k8s.models import accelerators
from k8s.reasons.phrases import amount, bare_amount, count, names
from k8s.scheduling import requests
from k8s.scheduling.predicates import (
    ClusterCapacity,
    InfeasibleNode,
    InfeasibleReason,
    NodeCapacity,
    format_selector,
    importance,
    main_resource,
)
from k8s.scheduling.requests import PODS, Amount, ResourceList
from k8s.scheduling.scheduling_spec import SchedulingSpec

# In the message of a scheduler that finds no devices for claims.
NO_DEVICES = "allocate all claims"
_NOT_OFFERED = "No node has "


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods without a node that have the same requests and constraints."""

    instances: tuple[str, ...]
    spec: SchedulingSpec
    requested: ResourceList
    signature: str = ""
    """Equal for pods that a scheduler cannot tell apart."""

    @property
    def subject(self) -> str:
        """Return the subject of a sentence: `master-0`, or `each of 4 pods`."""
        return self.instances[0] if len(self.instances) == 1 else f"each of {len(self.instances)} pods"


def pod_sets(specs: Iterable[tuple[str, SchedulingSpec]]) -> tuple[PodSet, ...]:
    """Group pods, given by instance name, by their requests and constraints."""
    instances: dict[str, list[str]] = {}
    by_signature: dict[str, tuple[SchedulingSpec, ResourceList]] = {}
    signatures: dict[int, tuple[str, SchedulingSpec]] = {}
    for name, spec in specs:
        if id(spec) not in signatures:
            requested = requests.of_pod(spec)
            constraints = (spec.node_selector, spec.affinity, spec.tolerations, sorted(requested.items()))
            signatures[id(spec)] = repr(constraints), spec  # kept, so that its id stays its own
            by_signature.setdefault(repr(constraints), (spec, requested))
        instances.setdefault(signatures[id(spec)][0], []).append(name)
    return tuple(PodSet(tuple(names), *by_signature[key], key) for key, names in instances.items())


class ShortageKind(Enum):
    """Kinds of shortage."""

    NO_MATCH = auto()
    # No node is large enough, even when empty.
    TOO_BIG = auto()
    # For each resource some node is large enough, but none for all of them.
    TOO_BIG_TOGETHER = auto()
    # The nodes that are large enough do not accept these pods.
    CLOSED = auto()
    BUSY = auto()


@dataclass(frozen=True)
class Shortage:
    """A pod set without enough nodes, and the reason of every node that cannot take its pods."""

    pod_set: PodSet
    capacity: ClusterCapacity
    infeasible: Sequence[InfeasibleNode]
    placed: int

    @cached_property
    def matching(self) -> list[NodeCapacity]:
        """Return the nodes that match the pod's own constraints."""
        others = {each.name for each in self.infeasible if each.reason is InfeasibleReason.MISMATCH}
        return [each for name, each in self.capacity.nodes.items() if name not in others]

    @cached_property
    def open(self) -> list[NodeCapacity]:
        """Return the matching nodes that accept such pods."""
        closed = {each.name for each in self.infeasible if each.reason.is_closed}
        return [each for each in self.matching if each.name not in closed]

    @cached_property
    def large_enough(self) -> list[NodeCapacity]:
        """Return the matching nodes that could hold one of the pods when empty."""
        requested = self.pod_set.requested
        return [each for each in self.matching if not requests.insufficient(requested, each.allocatable)]

    @cached_property
    def oversized(self) -> str | None:
        """Return the resource of which no matching node has enough in total; None if there is none."""
        return _short_of(self.pod_set.requested, [each.allocatable for each in self.matching])

    @cached_property
    def exhausted(self) -> str | None:
        """Return the resource of which no open node has enough free; None if there is none."""
        return _short_of(self.pod_set.requested, [each.free for each in self.open])

    @property
    def closed(self) -> list[InfeasibleNode]:
        """Return the nodes that are large enough but do not accept such pods."""
        able = {each.name for each in self.large_enough}
        return [each for each in self.infeasible if each.reason.is_closed and each.name in able]

    @cached_property
    def kind(self) -> ShortageKind:
        """Return the kind of shortage."""
        if not self.matching:
            return ShortageKind.NO_MATCH
        if self.oversized is not None:
            return ShortageKind.TOO_BIG
        if any(not requests.insufficient(self.pod_set.requested, each.allocatable) for each in self.open):
            return ShortageKind.BUSY
        return ShortageKind.CLOSED if self.closed else ShortageKind.TOO_BIG_TOGETHER

    @cached_property
    def main(self) -> str:
        """Return the resource that is short."""
        found = {ShortageKind.TOO_BIG: self.oversized, ShortageKind.BUSY: self.exhausted}.get(self.kind)
        return found or main_resource(self.pod_set.requested)

    @property
    def is_about_accelerators(self) -> bool:
        """Return True if accelerators are short."""
        short = self.kind in (ShortageKind.TOO_BIG, ShortageKind.BUSY)
        return short and accelerators.is_accelerator(self.main)

    @property
    def brief(self) -> str:
        """Return the problem in one line, without figures and names of accelerators."""
        return self._statement(_short_amount)

    @property
    def sentence(self) -> str:
        """Return the problem with its figures."""
        return f"{self._statement(amount)}{self._figures}."

    def _statement(self, amount: Callable[[str, Amount], str]) -> str:
        pod_set, main = self.pod_set, self.main
        each = amount(main, pod_set.requested[main])
        wants = f"{pod_set.subject} needs {each}"
        match self.kind:
            case ShortageKind.NO_MATCH:
                return f"No node matches: {pod_set.subject} asks for {format_selector(pod_set.spec)}"
            case ShortageKind.TOO_BIG:
                most, _ = self.largest
                if most <= 0:
                    return f"{_NOT_OFFERED}{main}: {wants}"
                return f"Too big: {wants}; the largest node has {bare_amount(main, most)}"
            case ShortageKind.TOO_BIG_TOGETHER:
                return f"Too big: no node has {_describe_combined(pod_set.requested)} together"
            case ShortageKind.CLOSED:
                closed = describe_closed(self.closed)
                return f"Waits for a node: {wants}; no node that is large enough accepts it ({closed})"
            case ShortageKind.BUSY if self.placed:
                pods = f"room for {self.placed} of {len(pod_set.instances)} pods"
                return f"Waits for {_noun(main)}: {pods}, each needs {each}"
            case ShortageKind.BUSY if self.exhausted is None:
                where, lacks = self._nearest
                return f"Waits for room: {wants}; the best node, {where}, has too little {lacks} free"
            case ShortageKind.BUSY:
                most, where = _most_of(main, ((each.name, each.free) for each in self.open))
                block = f"the largest free block is {bare_amount(main, most)} on {where}"
                return f"Waits for {_noun(main)}: {wants}; {block if most > 0 else 'none is free'}"

    @property
    def beyond_empty_cluster(self) -> str:
        """Return a description of a shortage that was found on the empty cluster."""
        pods, wanted = self.pod_set.instances, amount(self.main, self.pod_set.requested[self.main])
        if len(pods) == 1:
            return (
                f"{pods[0]} needs {wanted} besides the job's other pods; the empty cluster has no room for it"
            )
        return f"{len(pods)} pods need {wanted} each; the empty cluster has room for {self.placed}"

    @property
    def largest(self) -> tuple[Amount, str]:
        """Return the largest amount of the main resource on a matching node, and that node."""
        return _most_of(self.main, ((each.name, each.allocatable) for each in self.matching))

    @property
    def _figures(self) -> str:
        if self.kind is ShortageKind.NO_MATCH:
            return f"; {count(len(self.capacity.nodes), 'node')} looked at"
        if self.kind is ShortageKind.TOO_BIG:
            most, where = self.largest
            return f" ({where})" if most > 0 else ""
        if self.kind is not ShortageKind.BUSY or not (self.placed or self.exhausted):
            return ""
        main = self.main
        having = [each for each in self.open if each.allocatable.get(main, 0) > 0]
        free = sum((max(0, each.free.get(main, 0)) for each in having), 0)
        parts = [f"{bare_amount(main, free)} free in total"]
        if self.placed:
            together = self.pod_set.requested[main] * len(self.pod_set.instances)
            parts.append(f"together they need {bare_amount(main, together)}")
        elif _most_of(main, ((each.name, each.free) for each in self.open))[0] <= 0:
            in_use = sum((each.allocatable[main] for each in having), 0)
            parts = [f"{bare_amount(main, in_use)} in use"]
        if self.closed_with_main:
            parts.append(describe_closed(self.closed_with_main))
        return f" ({', '.join(parts)})"

    @property
    def closed_with_main(self) -> list[InfeasibleNode]:
        """Return the nodes that have the main resource and do not accept such pods."""
        nodes = self.capacity.nodes
        return [
            each
            for each in self.infeasible
            if each.reason.is_closed and nodes[each.name].allocatable.get(self.main, 0) > 0
        ]

    @property
    def _nearest(self) -> tuple[str, str]:
        requested = self.pod_set.requested
        lacks = {
            each.name: requests.insufficient(requested, each.free)
            for each in self.open
            if not requests.insufficient(requested, each.allocatable)
        }
        best = min(lacks, key=lambda name: (len(lacks[name]), name))
        return best, names(sorted(lacks[best], key=importance))


def is_refuted(brief: str, message: str) -> bool:
    """Return True if a scheduler found devices of a resource that no node lists.

    They are claimed, and their slices may not be read here.
    """
    return brief.startswith(_NOT_OFFERED) and NO_DEVICES in message


UnfitNodes = Callable[[ClusterCapacity, PodSet], Sequence[InfeasibleNode]]


def find_infeasible(capacity: ClusterCapacity, pod_set: PodSet) -> Sequence[InfeasibleNode]:
    """Return the nodes that cannot take a pod of a set now."""
    return capacity.infeasible(pod_set.spec, pod_set.requested)


def is_never_feasible(capacity: ClusterCapacity, pod_set: PodSet) -> Sequence[InfeasibleNode]:
    """Return the nodes that cannot take a pod of a set even when open, ready and empty."""
    return capacity.infeasible(pod_set.spec, pod_set.requested, ever=True)


def find_shortage(
    pod_sets: Sequence[PodSet], capacity: ClusterCapacity, infeasible_of: UnfitNodes = find_infeasible
) -> Shortage | None:
    """Return the first pod set of which not all pods find a node; None if all do, by arithmetic.

    Sets that request the most important resource come first.
    """
    for pod_set in sorted(pod_sets, key=lambda each: importance(main_resource(each.requested))):
        infeasible = infeasible_of(capacity, pod_set)
        left, placed = capacity.place(
            pod_set.requested, len(pod_set.instances), {each.name for each in infeasible}
        )
        if placed < len(pod_set.instances):
            return Shortage(pod_set, capacity, infeasible, placed)
        capacity = left
    return None


def _most_of(resource: str, lists: Iterable[tuple[str, ResourceList]]) -> tuple[Amount, str]:
    none = 0
    found = ((each.get(resource, none), name) for name, each in lists)
    return max(found, key=lambda pair: pair[0])


def _short_of(requested: ResourceList, lists: Sequence[ResourceList]) -> str | None:
    for each in sorted(requested, key=importance):
        if all(there.get(each, 0) < requested[each] for there in lists):
            return each
    return None


def _short_amount(resource: str, number: Amount) -> str:
    return (bare_amount if accelerators.is_accelerator(resource) else amount)(resource, number)


def _noun(resource: str) -> str:
    return "GPUs" if accelerators.is_accelerator(resource) else resource


def _describe_combined(requested: ResourceList) -> str:
    return " and ".join(amount(each, number) for each, number in requested.items() if each != PODS)


def describe_closed(closed: Sequence[InfeasibleNode]) -> str:
    """Describe nodes that accept no pods: `3 nodes cordoned, 1 not ready`."""
    numbers = Counter(each.reason for each in closed)
    parts = [f"{number} {reason}" for reason, number in numbers.most_common()]
    first, _, rest = parts[0].partition(" ")
    return ", ".join([f"{count(int(first), 'node')} {rest}", *parts[1:]])
