"""The table of rules: which run, and in which order, for each state of a job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from k8s.reasons.cause import Cause, Fact
from k8s.reasons.causes import ended, no_pods, not_started, unschedulable
from k8s.reasons.evidence import Evidence
from k8s.reasons.failures import Triage
from k8s.reasons.phrases import clock, count, cut, names, seconds_between, span
from k8s.reasons.shortage import NO_DEVICES
from k8s.snapshot import Job
from k8s.status import Status
from k8s.status.pod import ill_devices

Rule = Callable[[Evidence], Cause | None]

# For a job that waits. The first cause found is the sentence; the others become facts.
WAITING: tuple[Rule, ...] = (
    no_pods.gone,
    no_pods.unreadable,
    not_started.node_lost,
    no_pods.being_deleted,
    no_pods.kueue,
    no_pods.suspended,
    no_pods.elsewhere,
    no_pods.operator_absent,
    no_pods.refused,
    no_pods.cannot_create,
    no_pods.no_such_name,
    no_pods.over_quota,
    no_pods.out_of_limits,
    no_pods.gated,
    unschedulable.claims,
    not_started.image,
    not_started.config,
    not_started.mounts,
    unschedulable.no_scheduler,
    unschedulable.scaling_up,
    unschedulable.capacity,
    unschedulable.nominated,
    unschedulable.gang,
    unschedulable.scheduler_message,
    not_started.init,
    no_pods.no_pods_yet,
    not_started.starting,
    unschedulable.not_scheduled,
)

ENDED: tuple[Rule, ...] = (
    no_pods.gone,
    ended.evicted,
    ended.container_ended,
    ended.given_up,
    ended.restarting,
)

# A rule is skipped if one of these, which are more precise, has found a cause.
_NOT_PLACED: tuple[Rule, ...] = (unschedulable.capacity, unschedulable.claims, unschedulable.gang)
_ALTERNATIVES: Mapping[Rule, tuple[Rule, ...]] = {
    no_pods.suspended: (no_pods.kueue,),
    no_pods.over_quota: (no_pods.cannot_create,),
    no_pods.out_of_limits: (no_pods.cannot_create,),
    no_pods.no_such_name: (no_pods.cannot_create,),
    not_started.mounts: (unschedulable.claims,),
    unschedulable.scheduler_message: (*_NOT_PLACED, unschedulable.nominated),
    unschedulable.not_scheduled: (
        *_NOT_PLACED,
        unschedulable.scheduler_message,
        unschedulable.no_scheduler,
        no_pods.gated,
    ),
    no_pods.no_pods_yet: tuple(each for each in WAITING if each.__module__ == no_pods.__name__),
    not_started.starting: (
        unschedulable.claims,
        *(each for each in WAITING if each.__module__ == not_started.__name__),
    ),
}
# These only repeat the reason in the job's row.
_VAGUE: tuple[Rule, ...] = (
    no_pods.gone,
    no_pods.unreadable,
    no_pods.no_pods_yet,
    not_started.starting,
    unschedulable.scheduler_message,
    unschedulable.not_scheduled,
)
# After these nothing else counts: nothing has been tried yet.
_BLOCKERS: tuple[Rule, ...] = (
    no_pods.gone,
    no_pods.unreadable,
    no_pods.being_deleted,
    no_pods.kueue,
    no_pods.suspended,
    no_pods.elsewhere,
    no_pods.operator_absent,
)


def explain(evidence: Evidence) -> Cause:
    """Explain the state of a job, with the faults of its nodes and devices."""
    answer = _with_preemptors(_explain(evidence), evidence.jobs)
    job = evidence.job
    if job.status is Status.SUCCEEDED:
        return answer
    ill = _ill_devices(evidence)
    rows = [evidence.node_rows.get(name) for name in job.nodes]
    if any(NO_DEVICES in text for text in (answer.sentence, *(each.text for each in answer.facts))):
        rows += [row for row in evidence.node_rows.values() if row.tainted_devices][:3]
    ill += [Fact("nodes", f"{row.name}: {row.trouble}") for row in rows if row is not None and row.trouble]
    return replace(answer, facts=(*ill, *answer.facts)) if ill else answer


def _explain(evidence: Evidence) -> Cause:
    job = evidence.job
    if job.status is Status.SUCCEEDED:
        but = f", but {evidence.signs.alerts[0].text}" if evidence.signs.alerts else ""
        sentence = f"It succeeded: {_format_progress(evidence)}{but}."
        return Cause(sentence, tuple(_pod_facts(evidence)))
    if job.status.has_failed:
        answer, found = _answer(evidence, _found(evidence, ENDED)), evidence.triage
        return replace(answer, brief=brief_reason(job, found), triage=found)
    if evidence.is_well:
        return _running(evidence)
    return _answer(evidence, _found(evidence, WAITING))


def brief_reason(job: Job, found: Triage | None) -> str:
    """Return the reason for a row; empty if the row's own says as much."""
    is_init = found is not None and found.reason.startswith("init container")
    if found is None or not (found.error or found.cause or is_init):
        return ""
    return "" if ended.passed_deadline(job) and not found.error else found.reason


def _running(evidence: Evidence) -> Cause:
    job, signs, silence = evidence.job, evidence.signs, evidence.signs.silence
    sentence = f"It runs: {_format_progress(evidence)}."
    facts, advice = list[Fact](), tuple[str, ...]()
    slow = names(f"{each.writer} is {each.text}" for each in signs.stragglers if each.steps_behind)
    if silence is not None:
        whose = f" of {names(silence.writers)}" if silence.writers else ""
        usual = f"{silence.usual_s:.2g} s" if silence.usual_s < 2 else span(silence.usual_s)
        every = f", usually every {usual}" if silence.usual_s else ""
        quiet = span(seconds_between(silence.since, evidence.now))
        sentence = f"It runs, but no line{whose} for {quiet}{every}."
        facts = [Fact("silence", f"newest line at {clock(silence.since)}")]
        advice = (f"See where each rank is: gpuconsole diagnose {job.ref.name}",)
    elif signs.alerts:
        found = signs.alerts[:1] if signs.alerts[0].rule == "nan" else signs.alerts
        sentence = f"It runs, but {names(each.text for each in found)}."
        advice = (f"See since when: gpuconsole curves {job.ref.name}",)
    elif slow:
        sentence = f"It runs, but {slow}."
    elif ill := _ill_devices(evidence):
        sentence = f"It runs, but on a device that is out of order: {ill[0].text}."
        advice = ("Save a checkpoint and submit it again; tell an administrator of the device.",)
    facts += [Fact("restarts", f"{each.name}: {each.reason}") for each in job.instances if each.rank_restarts]
    facts += [Fact("straggler", f"{each.writer} {each.text}") for each in signs.stragglers]
    return Cause(sentence, (*facts, *_lost_nodes(evidence), *_pod_facts(evidence)), advice)


def _found(evidence: Evidence, rules: tuple[Rule, ...]) -> dict[Rule, Cause]:
    found: dict[Rule, Cause] = {}
    for rule in rules:
        if any(each in found for each in _ALTERNATIVES.get(rule, ())):
            continue
        cause = rule(evidence)
        if cause is not None:
            found[rule] = cause
            if rule in _BLOCKERS or rules is ENDED:
                break
    return found


def _answer(evidence: Evidence, found: dict[Rule, Cause]) -> Cause:
    unseen = tuple(Fact("unseen", text) for text in evidence.unseen)
    causes = list(found.values())
    if not causes:
        reason = f"; its status says {cut(evidence.job.reason)}" if evidence.job.reason else ""
        return Cause(
            f"Nothing that was checked explains it: {_format_progress(evidence)}{reason}.",
            (*_inspected(evidence), *_pod_facts(evidence), *unseen),
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
    facts = {fact: None for fact in facts if fact.text not in first.sentence}
    advice = dict.fromkeys(line for cause in causes for line in cause.help)
    brief = "" if next(iter(found)) in _VAGUE else first.brief or first.sentence.removesuffix(".")
    return replace(first, facts=tuple(facts), help=tuple(advice), brief=brief)


def _format_progress(evidence: Evidence) -> str:
    job = evidence.job
    counts = Counter(each.status for each in job.instances)
    done, pods = counts[Status.SUCCEEDED], count(len(job.instances), "pod")
    if job.status is Status.SUCCEEDED:
        return f"{done} of {pods}"
    ended = f", {done} {'has' if done == 1 else 'have'} ended well" if done else ""
    return f"{counts[Status.RUNNING]} of {pods}{ended}"


def _pod_facts(evidence: Evidence) -> list[Fact]:
    by_status: dict[str, list[str]] = {}
    job = evidence.job
    for each in (each for each in job.instances if each.pod or job.status is not Status.SUSPENDED):
        is_gone = job.status.is_final and not each.pod
        by_status.setdefault("Gone" if is_gone else each.status, []).append(each.name)
    return [Fact("pods", f"{status}: {names(found)}") for status, found in by_status.items()]


# Kueue: "a workload (UID: …, JobUID: …)"; kube-scheduler: "Preempted by pod UID on node a".
_PREEMPTOR = re.compile(r"a workload \(UID: [\w-]+, JobUID: ([\w-]+)\)|(?<=Preempted by )pod ([\w-]{36})\b")


def _with_preemptors(answer: Cause, jobs: tuple[Job, ...]) -> Cause:
    """Replace uids in messages about preemption by the job and its user."""

    def named(text: str) -> str:
        return _PREEMPTOR.sub(_name, text) if "reempted" in text else text

    def _name(found: re.Match[str]) -> str:
        uid = found[1] or found[2]
        its = (job for job in jobs if job.uid == uid or any(each.pod_uid == uid for each in job.instances))
        job = next(its, None)
        return f"{job.ref.name} of {job.user}" if job is not None else found[0]

    facts = tuple([Fact(fact.kind, named(fact.text)) for fact in answer.facts])
    return replace(answer, sentence=named(answer.sentence), brief=named(answer.brief), facts=facts)


def _ill_devices(evidence: Evidence) -> list[Fact]:
    return [
        Fact("gpu", f"{each.name}: {text}")
        for each in evidence.job.instances
        if (pod := evidence.pods.get(each.pod)) and (text := ill_devices(pod.status))
    ]


def _lost_nodes(evidence: Evidence) -> list[Fact]:
    lost = [
        name
        for name in evidence.job.nodes
        if (row := evidence.node_rows.get(name)) and row.status.startswith("NotReady")
    ]
    return [Fact("nodes", f"{names(lost)} does not answer, so this may be old")] if lost else []


def _inspected(evidence: Evidence) -> list[Fact]:
    events = count(len(evidence.events), "event")
    nodes = count(len(evidence.nodes), "node") if evidence.nodes is not None else "no nodes"
    checked = f"{count(len(evidence.pods), 'pod')}, {nodes}, {events}, created {span(evidence.age_s)} ago"
    return [Fact("checked", checked)]
