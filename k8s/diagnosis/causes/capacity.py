"""Explains a shortage of nodes in full: the sentence, the nodes that nearly fit, and what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from k8s.devices import accelerators
from k8s.diagnosis.answer import Cause, Fact
from k8s.diagnosis.shortage import PodSet, Shortage, ShortageKind, find_shortage
from k8s.diagnosis.words import amount, bare_amount, count, names
from k8s.scheduling.predicates import ClusterCapacity, UnfitNode, UnfitReason, importance
from k8s.scheduling.requests import PODS, insufficient

_NODES_SHOWN = 6
"""Nodes that get a fact of their own."""
_MOST_TRIED = 64
"""Sizes that are tried to find one that fits."""


def insufficient_capacity(
    pod_sets: Sequence[PodSet], capacity: ClusterCapacity, holders: Mapping[str, Counter[str]]
) -> Cause | None:
    """Return why not all pods find a node; None when they do, as far as arithmetic can tell.

    Args:
        pod_sets: The pods without a node.
        capacity: The nodes, and what is left on each.
        holders: Node name to the jobs, other than this one, that hold accelerators there, and how many.
    """
    shortage = find_shortage(pod_sets, capacity)
    if shortage is None:
        return None
    pods = Fact("pods", _pods_words(shortage.pod_set))
    nodes = _node_facts(shortage, holders)
    closed = _closed_facts(shortage)
    match shortage.kind:
        case ShortageKind.NO_MATCH:
            advice = ["Change the node selector or the affinity, or have a node labelled."]
            facts = [pods, *_label_facts(shortage)]
        case ShortageKind.TOO_BIG:
            advice, facts = [_smaller_than_any(shortage)], [pods, *nodes]
        case ShortageKind.TOO_BIG_TOGETHER:
            advice, facts = ["Ask for less of one of them."], [pods, *nodes]
        case ShortageKind.CLOSED:
            advice, facts = _advice_on_closed(shortage.closed), [pods, *closed, *nodes]
        case ShortageKind.BUSY:
            advice = [
                *_smaller(shortage),
                *_who_to_wait_for(shortage, holders),
                *_advice_on_closed(shortage.closed_with_main),
            ]
            facts = [pods, *closed, *nodes]
    return Cause(shortage.sentence, tuple(facts), tuple(advice))


def _label_facts(shortage: Shortage) -> list[Fact]:
    """Return which labels there are in place of those asked for, else what each node lacks."""
    facts = []
    for key, value in (shortage.pod_set.spec.node_selector or {}).items():
        labels = [each.node.metadata.labels or {} for each in shortage.capacity.nodes.values()]
        seen = Counter(each.get(key, "") for each in labels)
        if value not in seen:
            others = names(f"{each} ({count(number, 'node')})" for each, number in seen.most_common() if each)
            facts.append(Fact("nodes", f"no node has {key}={value}; {key} is {others or 'on none of them'}"))
    unfit = shortage.unfit[:_NODES_SHOWN]
    return facts or [Fact("nodes", f"{each.name} lacks {each.detail}") for each in unfit]


def _smaller_than_any(shortage: Shortage) -> str:
    most, _ = shortage.largest
    if most <= 0:
        return f"Ask for a resource that the nodes have, or for {shortage.main} to be set up on them."
    return f"Ask for {amount(shortage.main, most)} a pod or less; more pods can make up for it."


def _pods_words(pod_set: PodSet) -> str:
    requested = pod_set.requested
    wants = names(amount(each, requested[each]) for each in sorted(requested, key=importance) if each != PODS)
    verb = "wants" if len(pod_set.instances) == 1 else "each want"
    return f"{names(pod_set.instances)} {verb} {wants or 'no resource'}"


def _closed_facts(shortage: Shortage) -> list[Fact]:
    facts = []
    for reason in UnfitReason:
        closed = [each for each in shortage.unfit if each.reason is reason]
        if closed and reason.is_closed:
            why = names(each.detail for each in closed if each.detail)
            which = names(each.name for each in closed)
            facts.append(Fact("nodes", f"{reason}: {which}{f' ({why})' if why else ''}"))
    return facts


def _advice_on_closed(closed: Sequence[UnfitNode]) -> list[str]:
    lines = {
        UnfitReason.CORDONED: "An administrator can open again what is cordoned: {}.",
        UnfitReason.NOT_READY: "An administrator can bring back what does not answer: {}.",
        UnfitReason.TAINTED: "Tolerate the taint, if these nodes are meant for you: {}.",
    }
    named = {reason: [each.name for each in closed if each.reason is reason] for reason in lines}
    return [line.format(names(named[reason])) for reason, line in lines.items() if named[reason]]


def _node_facts(shortage: Shortage, holders: Mapping[str, Counter[str]]) -> list[Fact]:
    """Return what is free on the nodes that have the resource at all, those that are open first."""
    main = shortage.main
    having = [each for each in shortage.matching if each.allocatable.get(main, 0) > 0]
    closed = {each.name: each.reason for each in shortage.unfit if each.reason.is_closed}
    having.sort(key=lambda each: (each.name in closed, -each.free.get(main, 0), each.name))
    facts = []
    for each in having[:_NODES_SHOWN]:
        left = bare_amount(main, max(0, each.free.get(main, 0)))
        text = f"{each.name}: {left} of {amount(main, each.allocatable[main])} free"
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
    """Return the advice to ask for fewer devices a pod, if any number would fit at once."""
    pod_set, main = shortage.pod_set, shortage.main
    pods = len(pod_set.instances)
    if not accelerators.is_accelerator(main) or pod_set.requested[main] > _MOST_TRIED:
        return []
    for size in range(int(pod_set.requested[main]) - 1, 0, -1):
        smaller = PodSet(pod_set.instances, pod_set.spec, {**pod_set.requested, main: size})
        if find_shortage([smaller], shortage.capacity) is None:
            which = "1 pod of that size fits" if pods == 1 else f"{pods} pods of that size fit"
            return [f"Ask for {amount(main, size)} a pod: {which} now."]
    return []


def _who_to_wait_for(shortage: Shortage, holders: Mapping[str, Counter[str]]) -> list[str]:
    """Return the advice to wait for the fewest jobs whose end would make room for one pod."""
    main, requested = shortage.main, shortage.pod_set.requested
    if not accelerators.is_accelerator(main):
        return []
    best: tuple[int, int, str, list[tuple[str, int]]] | None = None
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
            option = (len(leaving), sum(gpus for _, gpus in leaving), node.name, leaving)
            best = min(best, option) if best is not None else option
    if best is None:
        return []
    _, freed, where, jobs = best
    return [f"Wait for {names(job for job, _ in jobs)} on {where} ({count(freed, 'GPU')})."]
