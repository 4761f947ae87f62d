"""Why pods find no node, by arithmetic: what each wants against what is free where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from k8s.devices import accelerators
from k8s.diagnosis.answer import Cause, Fact
from k8s.diagnosis.words import amount, bare_amount, count, names
from k8s.scheduling.affinity import demands
from k8s.scheduling.objects import SchedulingSpec
from k8s.scheduling.predicates import ClusterCapacity, Reason, Refusal, importance, main_resource, refusal
from k8s.scheduling.requests import PODS, Amounts

_NODES_SHOWN = 6
"""Nodes that get a fact of their own."""
_MOST_TRIED = 64
"""Sizes that are tried to find one that fits."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods without a node that all want the same."""

    instances: tuple[str, ...]
    wish: SchedulingSpec
    wanted: Amounts

    @property
    def subject(self) -> str:
        """Return who wants it: `master-0`, or `each of 4 pods`."""
        return self.instances[0] if len(self.instances) == 1 else f"each of {len(self.instances)} pods"


@dataclass(frozen=True, slots=True)
class _Look:
    """A group of pods, and what every node says to one of them."""

    group: PodSet
    ground: ClusterCapacity
    refusals: Sequence[Refusal]
    holders: Mapping[str, Counter[str]]

    def named(self, *reasons: Reason) -> list[str]:
        """Return the nodes that refuse for one of these reasons."""
        return [each.node for each in self.refusals if each.reason in reasons]

    @property
    def matching(self) -> list[str]:
        """Return the nodes that the pod's own demands allow."""
        others = set(self.named(Reason.MISMATCH))
        return [node.metadata.name for node in self.ground.nodes if node.metadata.name not in others]

    @property
    def open(self) -> list[str]:
        """Return those of them that take such pods at all."""
        closed = {each.node for each in self.refusals if each.reason.is_closed}
        return [name for name in self.matching if name not in closed]


def no_room(
    groups: Sequence[PodSet], ground: ClusterCapacity, holders: Mapping[str, Counter[str]]
) -> Cause | None:
    """Return why not all pods find a node; None when they do, as far as arithmetic can tell.

    Args:
        groups: The pods without a node.
        ground: The nodes, and what is left on each.
        holders: Node name to the jobs, other than this one, that hold accelerators there, and how many.
    """
    for group in sorted(groups, key=lambda each: importance(main_resource(each.wanted))):
        refusals = [
            found
            for node in ground.nodes
            if (
                found := refusal(
                    group.wish,
                    group.wanted,
                    node,
                    ground.whole[node.metadata.name],
                    ground.free[node.metadata.name],
                )
            )
        ]
        left, placed = ground.after(group.wish, group.wanted, len(group.instances))
        if placed < len(group.instances):
            return _cause(_Look(group, ground, refusals, holders), placed)
        ground = left
    return None


def _cause(look: _Look, placed: int) -> Cause:
    if not look.matching:
        return _nothing_matches(look)
    short = _short_of(look, look.matching, look.ground.whole)
    if short is not None:
        return _too_big(look, short)
    if not any(_holds_all(look, name) for name in look.open):
        return _all_closed(look)
    return _busy(look, placed)


def _holds_all(look: _Look, name: str) -> bool:
    whole = look.ground.whole[name]
    return all(whole.get(each, 0) >= wanted for each, wanted in look.group.wanted.items())


def _short_of(look: _Look, among: Sequence[str], there: Mapping[str, Amounts]) -> str | None:
    """Return the resource of which no node has enough; None when for each there is such a node."""
    wanted = look.group.wanted
    for each in sorted(wanted, key=importance):
        if all(there[name].get(each, 0) < wanted[each] for name in among):
            return each
    return None


def _most(among: Sequence[str], there: Mapping[str, Amounts], resource: str) -> tuple[Fraction, str]:
    """Return the most that any node has of a resource, and that node."""
    best = max(among, key=lambda name: there[name].get(resource, Fraction()))
    return there[best].get(resource, Fraction()), best


def _nothing_matches(look: _Look) -> Cause:
    asked = demands(look.group.wish)
    selector = look.group.wish.node_selector or {}
    facts = [Fact("pods", _pods_words(look.group))]
    for key, value in selector.items():
        seen = Counter((node.metadata.labels or {}).get(key, "") for node in look.ground.nodes)
        if value not in seen:
            others = names(f"{each} ({count(number, 'node')})" for each, number in seen.most_common() if each)
            facts.append(Fact("nodes", f"no node has {key}={value}; {key} is {others or 'on none of them'}"))
    facts += (
        [Fact("nodes", f"{each.node} lacks {each.words}") for each in look.refusals[:_NODES_SHOWN]]
        if len(facts) == 1
        else []
    )
    sentence = (
        f"No node matches: {look.group.subject} asks for {asked}; "
        f"{count(len(look.ground.nodes), 'node')} looked at."
    )
    return Cause(
        sentence, tuple(facts), ("Change the node selector or the affinity, or have a node labelled.",)
    )


def _too_big(look: _Look, resource: str) -> Cause:
    wanted = look.group.wanted[resource]
    most, where = _most(look.matching, look.ground.whole, resource)
    asks = f"{look.group.subject} wants {amount(resource, wanted)}"
    if most <= 0:
        return Cause(
            f"No node has {resource}: {asks}.",
            (Fact("pods", _pods_words(look.group)), *_node_facts(look, resource)),
            (f"Ask for a resource that the nodes have, or for {resource} to be set up on them.",),
        )
    return Cause(
        f"Too big: {asks}; the largest node has {bare_amount(resource, most)} ({where}).",
        (Fact("pods", _pods_words(look.group)), *_node_facts(look, resource)),
        (f"Ask for {amount(resource, most)} a pod or less; more pods can make up for it.",),
    )


def _all_closed(look: _Look) -> Cause:
    resource = main_resource(look.group.wanted)
    able = [name for name in look.matching if _holds_all(look, name)]
    closed = [each for each in look.refusals if each.node in able and each.reason.is_closed]
    asks = f"{look.group.subject} wants {amount(resource, look.group.wanted[resource])}"
    if not closed:
        combined = " and ".join(
            amount(each, wanted) for each, wanted in look.group.wanted.items() if each != PODS
        )
        return Cause(
            f"Too big: no node has {combined} together.",
            (Fact("pods", _pods_words(look.group)), *_node_facts(look, resource)),
            ("Ask for less of one of them.",),
        )
    return Cause(
        f"Waits for a node: {asks}; no node that is large enough takes it ({_closed_words(closed)}).",
        (Fact("pods", _pods_words(look.group)), *_closed_facts(look), *_node_facts(look, resource)),
        _closed_help(closed),
    )


def _busy(look: _Look, placed: int) -> Cause:
    group, free = look.group, look.ground.free
    resource = _short_of(look, look.open, free)
    main = resource or main_resource(group.wanted)
    wanted = group.wanted[main]
    having = [name for name in look.open if look.ground.whole[name].get(main, 0) > 0]
    total = sum((max(Fraction(), free[name].get(main, Fraction())) for name in having), Fraction())
    closed = [
        each
        for each in look.refusals
        if each.reason.is_closed and look.ground.whole[each.node].get(main, 0) > 0
    ]
    aside = [f"{bare_amount(main, total)} free in all", *([_closed_words(closed)] if closed else [])]
    together = bare_amount(main, wanted * len(group.instances))
    asks = f"{group.subject} wants {amount(main, wanted)}"
    head = f"Waits for {_noun(main)}"
    if placed:
        aside.insert(1, f"together they want {together}")
        sentence = (
            f"{head}: room for {placed} of {len(group.instances)} pods, each wants {amount(main, wanted)} "
            f"({', '.join(aside)})."
        )
    elif resource is None:
        where, lacks = _nearly(look)
        sentence = f"Waits for room: {asks}; the best node, {where}, has too little {lacks} free."
    else:
        most, where = _most(look.open, free, main)
        if most > 0:
            block = f"the largest free block is {bare_amount(main, most)} on {where}"
        else:
            in_use = sum((look.ground.whole[name].get(main, Fraction()) for name in having), Fraction())
            block, aside[0] = "none is free", f"{bare_amount(main, in_use)} in use"
        sentence = f"{head}: {asks}; {block} ({', '.join(aside)})."
    facts = (Fact("pods", _pods_words(group)), *_closed_facts(look), *_node_facts(look, main))
    return Cause(
        sentence, facts, (*_smaller(look, main), *_who_to_wait_for(look, main), *_closed_help(closed))
    )


def _nearly(look: _Look) -> tuple[str, str]:
    """Return the open node that lacks the fewest resources, and what it lacks."""
    lacks = {
        name: [
            each
            for each in look.group.wanted
            if look.ground.free[name].get(each, 0) < look.group.wanted[each]
        ]
        for name in look.open
        if _holds_all(look, name)
    }
    best = min(lacks, key=lambda name: (len(lacks[name]), name))
    return best, names(sorted(lacks[best], key=importance))


def _noun(resource: str) -> str:
    return "GPUs" if accelerators.is_accelerator(resource) else resource


def _pods_words(group: PodSet) -> str:
    wants = names(
        amount(each, group.wanted[each]) for each in sorted(group.wanted, key=importance) if each != PODS
    )
    verb = "wants" if len(group.instances) == 1 else "each want"
    return f"{names(group.instances)} {verb} {wants or 'no resource'}"


def _closed_words(closed: Sequence[Refusal]) -> str:
    """Return `3 nodes cordoned, 1 not ready`."""
    numbers = Counter(each.reason for each in closed)
    parts = [f"{number} {reason}" for reason, number in numbers.most_common()]
    first, _, rest = parts[0].partition(" ")
    return ", ".join([f"{count(int(first), 'node')} {rest}", *parts[1:]])


def _closed_facts(look: _Look) -> list[Fact]:
    found = []
    for reason in Reason:
        each = [refused for refused in look.refusals if refused.reason is reason]
        if each and reason.is_closed:
            why = names(refused.words for refused in each if refused.words)
            found.append(
                Fact("nodes", f"{reason}: {names(r.node for r in each)}{f' ({why})' if why else ''}")
            )
    return found


def _closed_help(closed: Sequence[Refusal]) -> tuple[str, ...]:
    lines = {
        Reason.CORDONED: "An administrator can open again what is cordoned: {}.",
        Reason.NOT_READY: "An administrator can bring back what does not answer: {}.",
        Reason.TAINTED: "Tolerate the taint, if these nodes are meant for you: {}.",
    }
    named = {reason: [each.node for each in closed if each.reason is reason] for reason in lines}
    return tuple(line.format(names(named[reason])) for reason, line in lines.items() if named[reason])


def _node_facts(look: _Look, resource: str) -> list[Fact]:
    """Return what is free on the nodes that have the resource at all, those that are open first."""
    free, whole = look.ground.free, look.ground.whole
    having = [name for name in look.matching if whole[name].get(resource, 0) > 0]
    closed = {each.node: each.reason for each in look.refusals if each.reason.is_closed}
    having.sort(key=lambda name: (name in closed, -free[name].get(resource, Fraction()), name))
    facts = []
    for name in having[:_NODES_SHOWN]:
        left = bare_amount(resource, max(Fraction(), free[name].get(resource, Fraction())))
        text = f"{name}: {left} of {amount(resource, whole[name][resource])} free"
        holders = look.holders.get(name)
        if accelerators.is_accelerator(resource) and holders:
            text += f", held by {names(f'{job} ({gpus})' for job, gpus in holders.most_common())}"
        if name in closed:
            text += f", {closed[name]}"
        facts.append(Fact("nodes", text))
    if len(having) > _NODES_SHOWN:
        facts.append(Fact("nodes", f"{len(having) - _NODES_SHOWN} more nodes have {resource}"))
    return facts


def _smaller(look: _Look, resource: str) -> list[str]:
    """Return the advice to ask for fewer devices a pod, if any number would fit at once."""
    wanted = look.group.wanted[resource]
    pods = len(look.group.instances)
    if not accelerators.is_accelerator(resource) or wanted > _MOST_TRIED:
        return []
    for size in range(int(wanted) - 1, 0, -1):
        smaller = {**look.group.wanted, resource: Fraction(size)}
        if look.ground.after(look.group.wish, smaller, pods)[1] == pods:
            which = "1 pod of that size fits" if pods == 1 else f"{pods} pods of that size fit"
            return [f"Ask for {amount(resource, Fraction(size))} a pod: {which} now."]
    return []


def _who_to_wait_for(look: _Look, resource: str) -> list[str]:
    """Return the advice to wait for the fewest jobs whose end would make room for one pod."""
    if not accelerators.is_accelerator(resource):
        return []
    best: tuple[int, int, str, list[tuple[str, int]]] | None = None
    for node in look.open:
        if not _holds_all(look, node):
            continue
        missing = look.group.wanted[resource] - look.ground.free[node].get(resource, Fraction())
        leaving: list[tuple[str, int]] = []
        for job, gpus in look.holders.get(node, Counter()).most_common():
            if missing > 0:
                leaving.append((job, gpus))
                missing -= gpus
        if leaving and missing <= 0:
            option = (len(leaving), sum(gpus for _, gpus in leaving), node, leaving)
            best = min(best, option) if best is not None else option
    if best is None:
        return []
    _, freed, where, jobs = best
    return [f"Wait for {names(job for job, _ in jobs)} on {where} ({count(freed, 'GPU')})."]
