"""Finds which pods of a job find no node, by arithmetic, and says it in one short sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from k8s.devices import accelerators
from k8s.diagnosis.words import amount, bare_amount, count, names
from k8s.scheduling import requests
from k8s.scheduling.predicates import (
    ClusterCapacity,
    NodeCapacity,
    UnfitNode,
    UnfitReason,
    importance,
    main_resource,
    selector_words,
)
from k8s.scheduling.requests import PODS, Amount, ResourceList
from k8s.scheduling.scheduling_spec import SchedulingSpec


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods without a node that all request the same."""

    instances: tuple[str, ...]
    spec: SchedulingSpec
    requested: ResourceList
    signature: str = ""
    """The same for pods that a scheduler cannot tell apart."""

    @property
    def subject(self) -> str:
        """Return who requests it: `master-0`, or `each of 4 pods`."""
        return self.instances[0] if len(self.instances) == 1 else f"each of {len(self.instances)} pods"


def pod_sets(specs: Iterable[tuple[str, SchedulingSpec]]) -> tuple[PodSet, ...]:
    """Return pods, given by the names of their instances, those that request the same together."""
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
    """What there is too little of."""

    NO_MATCH = auto()
    """No node has the labels."""
    TOO_BIG = auto()
    """No node is large enough, be it empty."""
    TOO_BIG_TOGETHER = auto()
    """For each resource a node is large enough, but none for all of them."""
    CLOSED = auto()
    """The nodes that are large enough take no such pods."""
    BUSY = auto()
    """Other pods have it."""


@dataclass(frozen=True)
class Shortage:
    """Pods of one set for which there are too few nodes, and what every node says to one of them."""

    pod_set: PodSet
    capacity: ClusterCapacity
    unfit: Sequence[UnfitNode]
    """The nodes that cannot take even one of them."""
    placed: int
    """How many of them would find a node."""

    @cached_property
    def matching(self) -> list[NodeCapacity]:
        """Return the nodes that the pod's own demands allow."""
        others = {each.name for each in self.unfit if each.reason is UnfitReason.MISMATCH}
        return [each for name, each in self.capacity.nodes.items() if name not in others]

    @cached_property
    def open(self) -> list[NodeCapacity]:
        """Return those of them that take such pods at all."""
        closed = {each.name for each in self.unfit if each.reason.is_closed}
        return [each for each in self.matching if each.name not in closed]

    @cached_property
    def large_enough(self) -> list[NodeCapacity]:
        """Return the matching nodes that could hold one of the pods if they were empty."""
        requested = self.pod_set.requested
        return [each for each in self.matching if not requests.insufficient(requested, each.allocatable)]

    @cached_property
    def oversized(self) -> str | None:
        """Return the resource of which no matching node has enough; None when for each there is one."""
        return _short_of(self.pod_set.requested, [each.allocatable for each in self.matching])

    @cached_property
    def exhausted(self) -> str | None:
        """Return the resource of which no open node has enough free; None when for each there is one."""
        return _short_of(self.pod_set.requested, [each.free for each in self.open])

    @property
    def closed(self) -> list[UnfitNode]:
        """Return the nodes that are large enough and take no such pods."""
        able = {each.name for each in self.large_enough}
        return [each for each in self.unfit if each.reason.is_closed and each.name in able]

    @cached_property
    def kind(self) -> ShortageKind:
        """Return what there is too little of."""
        if not self.matching:
            return ShortageKind.NO_MATCH
        if self.oversized is not None:
            return ShortageKind.TOO_BIG
        if any(not requests.insufficient(self.pod_set.requested, each.allocatable) for each in self.open):
            return ShortageKind.BUSY
        return ShortageKind.CLOSED if self.closed else ShortageKind.TOO_BIG_TOGETHER

    @cached_property
    def main(self) -> str:
        """Return the resource that the sentence is about."""
        found = {ShortageKind.TOO_BIG: self.oversized, ShortageKind.BUSY: self.exhausted}.get(self.kind)
        return found or main_resource(self.pod_set.requested)

    @property
    def brief(self) -> str:
        """Return what is wrong in one line, without figures in brackets and the names of accelerators."""
        return self._statement(_short_amount)

    @property
    def sentence(self) -> str:
        """Return what is wrong, with all that bears on it."""
        return f"{self._statement(amount)}{self._figures}."

    def _statement(self, amount: Callable[[str, Amount], str]) -> str:
        pod_set, main = self.pod_set, self.main
        each = amount(main, pod_set.requested[main])
        wants = f"{pod_set.subject} wants {each}"
        match self.kind:
            case ShortageKind.NO_MATCH:
                return f"No node matches: {pod_set.subject} asks for {selector_words(pod_set.spec)}"
            case ShortageKind.TOO_BIG:
                most, _ = self.largest
                if most <= 0:
                    return f"No node has {main}: {wants}"
                return f"Too big: {wants}; the largest node has {bare_amount(main, most)}"
            case ShortageKind.TOO_BIG_TOGETHER:
                return f"Too big: no node has {_together_words(pod_set.requested)} together"
            case ShortageKind.CLOSED:
                closed = closed_words(self.closed)
                return f"Waits for a node: {wants}; no node that is large enough takes it ({closed})"
            case ShortageKind.BUSY if self.placed:
                pods = f"room for {self.placed} of {len(pod_set.instances)} pods"
                return f"Waits for {_noun(main)}: {pods}, each wants {each}"
            case ShortageKind.BUSY if self.exhausted is None:
                where, lacks = self._nearest
                return f"Waits for room: {wants}; the best node, {where}, has too little {lacks} free"
            case ShortageKind.BUSY:
                most, where = _most_of(main, ((each.name, each.free) for each in self.open))
                block = f"the largest free block is {bare_amount(main, most)} on {where}"
                return f"Waits for {_noun(main)}: {wants}; {block if most > 0 else 'none is free'}"

    @property
    def largest(self) -> tuple[Amount, str]:
        """Return the most that a matching node has of the main resource, and that node."""
        return _most_of(self.main, ((each.name, each.allocatable) for each in self.matching))

    @property
    def _figures(self) -> str:
        """Return what stands behind the statement, if anything."""
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
        parts = [f"{bare_amount(main, free)} free in all"]
        if self.placed:
            together = self.pod_set.requested[main] * len(self.pod_set.instances)
            parts.append(f"together they want {bare_amount(main, together)}")
        elif _most_of(main, ((each.name, each.free) for each in self.open))[0] <= 0:
            in_use = sum((each.allocatable[main] for each in having), 0)
            parts = [f"{bare_amount(main, in_use)} in use"]
        if self.closed_with_main:
            parts.append(closed_words(self.closed_with_main))
        return f" ({', '.join(parts)})"

    @property
    def closed_with_main(self) -> list[UnfitNode]:
        """Return the nodes that have the main resource and take no such pods."""
        nodes = self.capacity.nodes
        return [
            each
            for each in self.unfit
            if each.reason.is_closed and nodes[each.name].allocatable.get(self.main, 0) > 0
        ]

    @property
    def _nearest(self) -> tuple[str, str]:
        """Return the open node that lacks the fewest resources, and what it lacks."""
        requested = self.pod_set.requested
        lacks = {
            each.name: requests.insufficient(requested, each.free)
            for each in self.open
            if not requests.insufficient(requested, each.allocatable)
        }
        best = min(lacks, key=lambda name: (len(lacks[name]), name))
        return best, names(sorted(lacks[best], key=importance))


UnfitNodes = Callable[[ClusterCapacity, PodSet], Sequence[UnfitNode]]
"""Finds the nodes that cannot take one pod of a set."""


def find_unfit(capacity: ClusterCapacity, pod_set: PodSet) -> Sequence[UnfitNode]:
    """Return the nodes that cannot take one pod of a set."""
    return capacity.unfit(pod_set.spec, pod_set.requested)


def find_shortage(
    pod_sets: Sequence[PodSet], capacity: ClusterCapacity, unfit_of: UnfitNodes = find_unfit
) -> Shortage | None:
    """Return the first set of pods of which not all find a node, the most important resource first.

    None when all find one, as far as arithmetic can tell.
    """
    for pod_set in sorted(pod_sets, key=lambda each: importance(main_resource(each.requested))):
        unfit = unfit_of(capacity, pod_set)
        left, placed = capacity.place(
            pod_set.requested, len(pod_set.instances), {each.name for each in unfit}
        )
        if placed < len(pod_set.instances):
            return Shortage(pod_set, capacity, unfit, placed)
        capacity = left
    return None


def _most_of(resource: str, lists: Iterable[tuple[str, ResourceList]]) -> tuple[Amount, str]:
    """Return the most that any node has of a resource, and that node, the first of several."""
    none = 0
    found = ((each.get(resource, none), name) for name, each in lists)
    return max(found, key=lambda pair: pair[0])


def _short_of(requested: ResourceList, lists: Sequence[ResourceList]) -> str | None:
    for each in sorted(requested, key=importance):
        if all(there.get(each, 0) < requested[each] for there in lists):
            return each
    return None


def _short_amount(resource: str, number: Amount) -> str:
    """Say an amount: of accelerators, which the console is about, without their name."""
    return (bare_amount if accelerators.is_accelerator(resource) else amount)(resource, number)


def _noun(resource: str) -> str:
    return "GPUs" if accelerators.is_accelerator(resource) else resource


def _together_words(requested: ResourceList) -> str:
    return " and ".join(amount(each, number) for each, number in requested.items() if each != PODS)


def closed_words(closed: Sequence[UnfitNode]) -> str:
    """Say how many nodes take no pods, and why: `3 nodes cordoned, 1 not ready`."""
    numbers = Counter(each.reason for each in closed)
    parts = [f"{number} {reason}" for reason, number in numbers.most_common()]
    first, _, rest = parts[0].partition(" ")
    return ", ".join([f"{count(int(first), 'node')} {rest}", *parts[1:]])
