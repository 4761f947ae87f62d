"""The table of causes: which are looked for, in which order, for a job in which state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from k8s.diagnosis.answer import Answer, Cause, Fact
from k8s.diagnosis.causes import admission, ended, held_back, not_started, queued, unschedulable
from k8s.diagnosis.evidence import Evidence
from k8s.diagnosis.words import count, cut, names, span
from k8s.status import Status

Rule = Callable[[Evidence], Cause | None]
"""Looks for one cause."""

WAITING: tuple[Rule, ...] = (
    held_back.gone,
    not_started.node_lost,
    held_back.being_deleted,
    queued.kueue,
    queued.suspended,
    held_back.operator_absent,
    admission.cannot_create,
    admission.no_such_priority,
    admission.no_such_account,
    admission.over_quota,
    admission.out_of_limits,
    queued.gated,
    unschedulable.claims,
    not_started.image,
    not_started.config,
    not_started.mounts,
    unschedulable.no_scheduler,
    unschedulable.scaling_up,
    unschedulable.capacity,
    unschedulable.nominated,
    unschedulable.gang,
    unschedulable.scheduler_says,
    not_started.init,
    held_back.no_pods_yet,
    not_started.starting,
    unschedulable.not_scheduled,
)
"""For a job that waits. The first that is found is the sentence; the others become facts."""

ENDED: tuple[Rule, ...] = (
    held_back.gone,
    ended.evicted,
    ended.container_ended,
    ended.given_up,
    ended.restarting,
)
"""For a job that failed or restarts."""

_ALTERNATIVES: Mapping[Rule, frozenset[Rule]] = {
    unschedulable.scheduler_says: frozenset(
        {unschedulable.capacity, unschedulable.claims, unschedulable.gang, unschedulable.nominated}
    ),
    unschedulable.not_scheduled: frozenset(
        {
            unschedulable.capacity,
            unschedulable.claims,
            unschedulable.scheduler_says,
            unschedulable.no_scheduler,
            unschedulable.gang,
            queued.gated,
        }
    ),
    held_back.no_pods_yet: frozenset(
        {
            queued.kueue,
            queued.suspended,
            held_back.operator_absent,
            admission.cannot_create,
            admission.over_quota,
            admission.no_such_priority,
            admission.no_such_account,
            admission.out_of_limits,
            held_back.being_deleted,
        }
    ),
    not_started.starting: frozenset(
        {
            not_started.node_lost,
            not_started.image,
            not_started.config,
            not_started.mounts,
            not_started.init,
            unschedulable.claims,
        }
    ),
    queued.suspended: frozenset({queued.kueue}),
    admission.over_quota: frozenset({admission.cannot_create}),
    admission.out_of_limits: frozenset({admission.cannot_create}),
    admission.no_such_priority: frozenset({admission.cannot_create}),
    admission.no_such_account: frozenset({admission.cannot_create}),
    not_started.mounts: frozenset({unschedulable.claims}),
}
"""A rule that says less precisely what one of the others, when it is found, has said already."""
_BLOCKERS: frozenset[Rule] = frozenset(
    {held_back.gone, held_back.being_deleted, queued.kueue, queued.suspended, held_back.operator_absent}
)
"""Causes below which nothing else counts: nobody has tried anything yet."""


def explain(evidence: Evidence) -> Answer:
    """Say why a job is as it is."""
    job = evidence.job
    if job.status is Status.SUCCEEDED:
        return Answer(
            str(job.status), f"It ended well: {_progress_words(evidence)}.", tuple(_pod_facts(evidence))
        )
    if job.status in (Status.FAILED, Status.RESTARTING):
        return _answer(evidence, _found(evidence, ENDED))
    if job.status is Status.RUNNING and not any(
        each.status is not Status.RUNNING for each in evidence.unfinished
    ):
        return Answer(
            str(job.status),
            f"It runs: {_progress_words(evidence)}.",
            (*_lost_nodes(evidence), *_pod_facts(evidence)),
        )
    return _answer(evidence, _found(evidence, WAITING))


def _found(evidence: Evidence, rules: tuple[Rule, ...]) -> list[Cause]:
    found: dict[Rule, Cause] = {}
    for rule in rules:
        if _ALTERNATIVES.get(rule, frozenset()) & found.keys():
            continue
        cause = rule(evidence)
        if cause is not None:
            found[rule] = cause
            if rule in _BLOCKERS or rules is ENDED:
                break
    return list(found.values())


def _answer(evidence: Evidence, causes: list[Cause]) -> Answer:
    unseen = tuple(Fact("unseen", text) for text in evidence.unseen)
    status = str(evidence.job.status)
    if not causes:
        return Answer(
            status,
            f"Nothing that was looked at explains it: {_progress_words(evidence)}{_own_words(evidence)}.",
            (*_looked_at(evidence), *_pod_facts(evidence), *unseen),
        )
    first, *others = causes
    also = tuple(Fact("also", cause.sentence) for cause in others)
    facts = dict.fromkeys(
        (
            *also,
            *first.facts,
            *(fact for cause in others for fact in cause.facts),
            *_pod_facts(evidence),
            *unseen,
        )
    )
    advice = dict.fromkeys(line for cause in causes for line in cause.help)
    return Answer(status, first.sentence, tuple(facts), tuple(advice))


def _progress_words(evidence: Evidence) -> str:
    job = evidence.job
    done = sum(each.status in (Status.RUNNING, Status.SUCCEEDED) for each in job.instances)
    return f"{done} of {count(len(job.instances), 'pod')}"


def _own_words(evidence: Evidence) -> str:
    return f"; its status says {cut(evidence.job.reason)}" if evidence.job.reason else ""


def _pod_facts(evidence: Evidence) -> list[Fact]:
    """Return how its instances are, those of one status together; of a suspended job those with pods."""
    by_status: dict[str, list[str]] = {}
    job = evidence.job
    for each in (each for each in job.instances if each.pod or job.status is not Status.SUSPENDED):
        is_gone = job.status.is_final and not each.pod
        by_status.setdefault("Gone" if is_gone else each.status, []).append(each.name)
    return [Fact("pods", f"{status}: {names(found)}") for status, found in by_status.items()]


def _lost_nodes(evidence: Evidence) -> list[Fact]:
    lost = [
        name
        for name in evidence.job.nodes
        if (row := evidence.node_rows.get(name)) and row.status.startswith("NotReady")
    ]
    return [Fact("nodes", f"{names(lost)} does not answer, so this may be old")] if lost else []


def _looked_at(evidence: Evidence) -> list[Fact]:
    events = count(len(evidence.events), "event")
    nodes = count(len(evidence.nodes), "node") if evidence.nodes is not None else "no nodes"
    looked = f"{count(len(evidence.pods), 'pod')}, {nodes}, {events}, created {span(evidence.age_s)} ago"
    return [Fact("looked", looked)]
