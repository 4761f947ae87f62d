"""Finds the pods of a job for which there is no node, by arithmetic, and describes it in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from k8s.models import accelerators
from k8s.models.node import cordon_reason, faults
from k8s.reasons import requests
from k8s.reasons.cause import ERROR, Cause, Fact
from k8s.reasons.phrases import amount, bare_amount, count, names, span, verb
from k8s.reasons.pod_rules import field_of, gang_cause
from k8s.reasons.predicates import (
    ClusterCapacity,
    InfeasibleNode,
    InfeasibleReason,
    NodeCapacity,
    format_selector,
    importance,
    main_resource,
)
from k8s.reasons.requests import PODS, Amount, ResourceList, SchedulingSpec, insufficient

# In the message of a scheduler that finds no devices for claims.
NO_DEVICES = "allocate all claims"
# Nodes that get a fact of their own.
_NODES_SHOWN = 6
# Larger requests are not tried in smaller sizes.
_MOST_TRIED = 64
T = TypeVar("T")
NO_HOLDERS: Mapping[str, Counter[str]] = {}
NO_SILENCE: Mapping[str, float] = {}


class PodSet(msgspec.Struct, frozen=True):
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
            # With a reference to the spec: an id is reused once its object is collected.
            signatures[id(spec)] = repr(constraints), spec
            by_signature.setdefault(repr(constraints), (spec, requested))
        instances.setdefault(signatures[id(spec)][0], []).append(name)
    return tuple(PodSet(tuple(names), *by_signature[key], key) for key, names in instances.items())


def at_once(pods: Sequence[T], enough: int | None) -> Sequence[T]:
    """Return the pods that must run at once: the first `enough`, all if None; a Job's may run in turn."""
    return pods if enough is None else pods[: max(1, enough)]


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


class Shortage(msgspec.Struct, frozen=True, dict=True):
    """A pod set without enough nodes, and the reason of every node that cannot take its pods."""

    pod_set: PodSet
    capacity: ClusterCapacity
    infeasible: Sequence[InfeasibleNode]
    placed: int
    is_final: bool = False
    """It was found on the empty cluster."""

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
        selector = format_selector(pod_set.spec)
        such = f" with {selector}" if selector else ""
        match self.kind:
            case ShortageKind.NO_MATCH:
                return f"No node matches: {pod_set.subject} asks for {selector}"
            case ShortageKind.TOO_BIG:
                most, _ = self.largest
                if most <= 0:
                    return f"No node{such} has {main}: {wants}"
                return f"Too big: {wants}; the largest node{such} has {bare_amount(main, most)}"
            case ShortageKind.TOO_BIG_TOGETHER:
                return f"Too big: no node has {_describe_combined(pod_set.requested)} together"
            case ShortageKind.CLOSED:
                is_never = all(each.reason is InfeasibleReason.TAINTED for each in self.closed)
                start = "Never starts" if is_never else "Waits for a node"
                closed = describe_closed(self.closed)
                return f"{start}: {wants}; no node that is large enough accepts it ({closed})"
            case ShortageKind.BUSY if self.is_final and len(pod_set.instances) == 1:
                return (
                    f"Never fits: {wants} besides the job's other pods; the empty cluster has no room for it"
                )
            case ShortageKind.BUSY if self.is_final:
                pods = f"{len(pod_set.instances)} pods need {each} each"
                return f"Never fits: {pods}; the empty cluster has room for {self.placed}"
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
        if self.kind is not ShortageKind.BUSY or self.is_final or not (self.placed or self.exhausted):
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
    return brief.startswith("No node ") and NO_DEVICES in message


UnfitNodes = Callable[[ClusterCapacity, PodSet], Sequence[InfeasibleNode]]


def find_infeasible(capacity: ClusterCapacity, pod_set: PodSet) -> Sequence[InfeasibleNode]:
    """Return the nodes that cannot take a pod of a set now."""
    return capacity.infeasible(pod_set.spec, pod_set.requested)


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


def final_shortage(
    shortage: Shortage,
    together: Sequence[PodSet],
    emptied: ClusterCapacity,
    infeasible_of: UnfitNodes = find_infeasible,
) -> Shortage:
    """Return the shortage of the pods that must run at once on the empty cluster; the given one if none."""
    found = find_shortage(together, emptied, infeasible_of)
    # A single pod that is too large has its own message.
    is_sum = found is not None and found.kind is ShortageKind.BUSY
    return replace(found, is_final=True) if found is not None and is_sum else shortage


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


def capacity_cause(
    pod_sets: Sequence[PodSet],
    capacity: ClusterCapacity,
    together: Sequence[PodSet],
    *,
    gang: int = 0,
    bound: int = 0,
    holders: Mapping[str, Counter[str]] = NO_HOLDERS,
    silent_s: Mapping[str, float] = NO_SILENCE,
    tries_sizes: bool = True,
) -> Cause | None:
    """Return the reason why not all pods find a node; None if, by arithmetic, they all do.

    Args:
        pod_sets: The pods without a node.
        capacity: What the nodes have, and have free.
        together: The pods that must run at once, those with a node included.
        gang: Number of pods that a scheduler starts together; 0 if it starts them one by one.
        bound: Number of the job's pods that have a node.
        holders: Accelerators held on each node, by other job.
        silent_s: Seconds without a sign of life of the jobs that probably hang, by name.
        tries_sizes: Look for a smaller request that fits, which takes long on thousands of nodes.
    """
    shortage = find_shortage(pod_sets, capacity)
    if shortage is None:
        return None
    is_busy, final = shortage.kind is ShortageKind.BUSY, shortage
    if is_busy:
        final = final_shortage(shortage, together, capacity.emptied())
    pods = Fact("pods", _format_pods(shortage.pod_set))
    nodes = _node_facts(shortage, holders)
    closed = _closed_facts(shortage)
    smaller = _smaller(shortage) if tries_sizes and is_busy else []
    match shortage.kind:
        case ShortageKind.NO_MATCH:
            advice = ["Change the node selector or the affinity, or have a node labelled."]
            facts = [pods, *_label_facts(shortage)]
        case ShortageKind.TOO_BIG:
            advice, facts = [_smaller_than_any(shortage)], [pods, *nodes]
        case ShortageKind.TOO_BIG_TOGETHER:
            advice, facts = ["Request less of one of them."], [pods, *nodes]
        case ShortageKind.CLOSED:
            advice, facts = _advice_on_closed(shortage.closed), [pods, *closed, *nodes]
        case ShortageKind.BUSY if final.is_final:
            advice = [*smaller, "Use fewer or smaller pods, or have nodes added."]
            facts = [pods, *closed, *nodes]
        case ShortageKind.BUSY:
            advice = [
                *smaller,
                *_pods_to_wait_for(shortage, holders, silent_s),
                *_advice_on_closed(shortage.closed_with_main),
            ]
            facts = [pods, *closed, *nodes]
    cause = Cause(
        final.sentence, tuple(facts), tuple(advice), final.brief, field=_field(shortage), is_shortage=True
    )
    fit = shortage.placed + bound
    if is_busy and not final.is_final and len(pod_sets) == 1 and 0 < fit < gang:
        of_gang = gang_cause(gang, f"{fit} {'fits' if fit == 1 else 'fit'}")
        because = Fact("gang", shortage.sentence)
        return replace(of_gang, facts=(*facts, because), help=cause.help, field=cause.field)
    return replace(cause, severity=ERROR) if cause.is_never else cause


def _field(shortage: Shortage) -> str:
    match shortage.kind:
        case ShortageKind.NO_MATCH:
            return "node_selector" if shortage.pod_set.spec.node_selector else "excluded_nodes"
        case ShortageKind.CLOSED if all(each.reason is InfeasibleReason.TAINTED for each in shortage.closed):
            return "tolerations"
        case ShortageKind.CLOSED:
            return "node_selector"
        case _:
            return field_of(shortage.main)


def _label_facts(shortage: Shortage) -> list[Fact]:
    facts = []
    for key, value in (shortage.pod_set.spec.node_selector or {}).items():
        labels = [each.node.metadata.labels or {} for each in shortage.capacity.nodes.values()]
        seen = Counter(each.get(key, "") for each in labels)
        if value not in seen:
            others = names(f"{each} ({count(number, 'node')})" for each, number in seen.most_common() if each)
            facts.append(Fact("nodes", f"no node has {key}={value}; {key} is {others or 'on none of them'}"))
    infeasible = shortage.infeasible[:_NODES_SHOWN]
    return facts or [Fact("nodes", f"{each.name} lacks {each.detail}") for each in infeasible]


def _smaller_than_any(shortage: Shortage) -> str:
    most, _ = shortage.largest
    if most <= 0:
        offered = {name for each in shortage.capacity.nodes.values() for name in each.allocatable}
        devices = sorted(name for name in offered if accelerators.is_accelerator(name))
        which = f" ({names(devices)})" if devices else ""
        return f"Request a resource that the nodes have{which}, or have {shortage.main} set up on them."
    return f"Request {amount(shortage.main, most)} or less per pod; more pods can make up for it."


def _format_pods(pod_set: PodSet) -> str:
    requested = pod_set.requested
    wants = names(amount(each, requested[each]) for each in sorted(requested, key=importance) if each != PODS)
    verb = "needs" if len(pod_set.instances) == 1 else "each need"
    return (
        f"{names(pod_set.instances)} {verb} {wants}" if wants else f"{names(pod_set.instances)}: no requests"
    )


def _closed_facts(shortage: Shortage) -> list[Fact]:
    facts = []
    for reason in InfeasibleReason:
        closed = [each for each in shortage.infeasible if each.reason is reason]
        if closed and reason.is_closed:
            why = names(
                text for each in closed if (text := each.detail or _trouble(shortage.capacity, each.name))
            )
            which = names(each.name for each in closed)
            facts.append(Fact("nodes", f"{reason}: {which}{f' ({why})' if why else ''}"))
    return facts


def _trouble(capacity: ClusterCapacity, name: str) -> str:
    node = capacity.nodes[name].node
    found = [each.type for each in faults(node.status.conditions)]
    return ", ".join(filter(None, (cordon_reason(node.metadata), *found)))


def _advice_on_closed(closed: Sequence[InfeasibleNode]) -> list[str]:
    lines = {
        InfeasibleReason.CORDONED: "An administrator can uncordon {}.",
        InfeasibleReason.NOT_READY: "An administrator can repair the nodes that do not answer: {}.",
        InfeasibleReason.TAINTED: "Tolerate the taint, if these nodes are meant for you: {}.",
    }
    named = {reason: [each.name for each in closed if each.reason is reason] for reason in lines}
    return [line.format(names(named[reason])) for reason, line in lines.items() if named[reason]]


def _node_facts(shortage: Shortage, holders: Mapping[str, Counter[str]]) -> list[Fact]:
    main = shortage.main
    having = [each for each in shortage.matching if each.allocatable.get(main, 0) > 0]
    closed = {each.name: each.reason for each in shortage.infeasible if each.reason.is_closed}
    having.sort(key=lambda each: (each.name in closed, -each.free.get(main, 0), each.name))
    facts = []
    for each in having[:_NODES_SHOWN]:
        free, total = max(0, each.free.get(main, 0)), amount(main, each.allocatable[main])
        # Only of accelerators are all pods counted; the pods of a closed node are not read.
        is_counted = accelerators.is_accelerator(main) or free != each.allocatable[main]
        text = (
            f"{each.name}: {bare_amount(main, free)} of {total} free"
            if is_counted
            else f"{each.name}: {total}"
        )
        jobs = holders.get(each.name)
        if accelerators.is_accelerator(main) and jobs:
            text += f", held by {names(f'{job} ({gpus})' for job, gpus in jobs.most_common())}"
        if each.name in closed:
            text += f", {closed[each.name]}"
        facts.append(Fact("nodes", text))
    if len(having) > _NODES_SHOWN:
        facts.append(Fact("nodes", f"{len(having) - _NODES_SHOWN} more nodes have {main}"))
    return facts


def _smaller(shortage: Shortage) -> list[str]:
    pod_set, main = shortage.pod_set, shortage.main
    pods = len(pod_set.instances)
    if not accelerators.is_accelerator(main) or pod_set.requested[main] > _MOST_TRIED:
        return []
    for size in range(int(pod_set.requested[main]) - 1, 0, -1):
        smaller = PodSet(pod_set.instances, pod_set.spec, {**pod_set.requested, main: size})
        if find_shortage([smaller], shortage.capacity) is None:
            which = "1 pod of that size fits" if pods == 1 else f"{pods} pods of that size fit"
            return [f"Request {amount(main, size)} per pod: {which} now."]
    return []


def _pods_to_wait_for(
    shortage: Shortage, holders: Mapping[str, Counter[str]], silent_s: Mapping[str, float]
) -> list[str]:
    main, requested = shortage.main, shortage.pod_set.requested
    if not accelerators.is_accelerator(main):
        return []
    best: tuple[int, int, int, str, list[tuple[str, int]]] | None = None
    for node in shortage.open:
        if insufficient(requested, node.allocatable):
            continue
        missing = requested[main] - node.free.get(main, 0)
        leaving: list[tuple[str, int]] = []
        for job, gpus in holders.get(node.name, Counter()).most_common():
            if missing > 0:
                leaving.append((job, gpus))
                missing -= gpus
        if leaving and missing <= 0:
            hung = sum(job in silent_s for job, _ in leaving)
            option = (hung, len(leaving), sum(gpus for _, gpus in leaving), node.name, leaving)
            best = min(best, option) if best is not None else option
    if best is None:
        return []
    _, _, freed, where, jobs = best
    if hanging := [job for job, _ in jobs if job in silent_s]:
        quiet = span(max(silent_s[job] for job in hanging))
        has = verb(hanging, "has", "have")
        return [
            f"Do not wait for {names(hanging)} on {where} ({count(freed, 'GPU')}), which {has} printed "
            f"nothing for {quiet}. See whether it hangs: gpuconsole diagnose {hanging[0]}"
        ]
    return [f"Wait for {names(job for job, _ in jobs)} on {where} ({count(freed, 'GPU')})."]
