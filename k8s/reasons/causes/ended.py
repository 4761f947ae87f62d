"""A job failed or restarts: the first container that failed, and the operator's verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

import msgspec

from k8s.models import Terminated
from k8s.reasons.cause import Cause, Fact
from k8s.reasons.causes.no_pods import refused
from k8s.reasons.evidence import Evidence, dig
from k8s.reasons.failures import Triage
from k8s.reasons.failures.causes import NEVER_STARTED
from k8s.reasons.phrases import clock, count, cut, names, order, span
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.status.job import limit_text
from k8s.status.pod import exit_text

# Exit codes of processes that were told to stop: never the cause.
_ASKED_TO_STOP = (143, 130, 129)
_EXIT_CODES = {
    126: "its command cannot be executed",
    127: "its command was not found",
    134: "it aborted (SIGABRT)",
    137: "it was killed (SIGKILL), often for lack of memory",
    139: "it crashed (SIGSEGV)",
    143: "it was asked to stop (SIGTERM)",
}
# Of the packaged trainers and their launcher only.
_TRAINER_EXIT_CODES = {
    3: "there are checkpoints, but none can be read",
    4: "the loss or a weight is not finite",
    5: "training data is missing or damaged",
    6: "a node has fewer GPUs than processes, or only some ranks have one",
    7: "the rendezvous port is in use",
    8: "all epochs had already run, with other settings, so nothing was trained",
}
_TRAINER_MODULES = ("trainer.train_ddp", "trainer.train_mpi")


class _End(msgspec.Struct, frozen=True):
    instance: Instance
    container: str
    state: Terminated
    restarts: int
    is_init: bool = False

    @property
    def text(self) -> str:
        return f"{self.container} {exit_text(self.state)}{_at(self.state.finished_at)}"


def evicted(evidence: Evidence) -> Cause | None:
    """Detect a pod that was evicted or preempted."""
    for instance in evidence.job.instances:
        pod = evidence.pods.get(instance.pod)
        if pod is not None and pod.status.phase == "Failed" and pod.status.reason:
            where = f" on {instance.node}" if instance.node else ""
            message = f": {cut(pod.status.message)}" if pod.status.message else ""
            if pod.status.reason == "DeadlineExceeded":
                continue
            _, advice = _limit(evidence)
            found = evidence.triage
            is_culprit = found is not None and found.instance == instance.name
            remedy = found.remedy if found is not None and is_culprit else ""
            return Cause(
                f"{_verb(evidence)}: {instance.name} {pod.status.reason}{where}{message}.",
                tuple(_operator_facts(evidence)),
                tuple(filter(None, (remedy, advice))),
            )
    for event in evidence.events_of("Pod", "Preempted"):
        return Cause(
            f"{_verb(evidence)}: {event.involved_object.name} was preempted: {cut(event.message)}.",
            help=("Give it a higher priority, or wait: it is scheduled again when there is room.",),
        )
    return None


def container_ended(evidence: Evidence) -> Cause | None:
    """Detect the process that failed first, unless it was only asked to stop."""
    ends = [end for instance in evidence.job.instances for end in _ends(evidence, instance)]
    if not ends:
        return None
    found = evidence.triage

    def key(end: _End) -> tuple[bool, bool, float]:
        is_other = found is not None and end.instance.name != found.instance
        return is_other, end.state.exit_code in _ASKED_TO_STOP, order(end.state.finished_at)

    first = min(ends, key=key)
    at = clock(first.state.finished_at)
    several = len({end.instance.name for end in ends}) > 1 or (found is not None and bool(found.others))
    limit, advice = _limit(evidence)
    times = f", {count(first.restarts, 'restart')} so far" if first.restarts else ""
    memory = _memory_limit(evidence, first)
    has_error = found is not None and bool(found.error)
    if "deadline" in limit and not has_error and all(each.state.exit_code in _ASKED_TO_STOP for each in ends):
        return None
    init = f"init container {first.container} of " if first.is_init else ""
    reason = found.reason if found is not None else f"{init}{first.instance.name} {exit_text(first.state)}"
    what, colon, error = reason.partition(": ")
    came_first = " first" if several and not what.endswith("waiting") else ""
    when = f"{came_first}{f', {at}' if at else ''}"
    # With an error at hand, spent retries are a fact of little interest.
    ending = f"; {limit}" if limit and not (error and "retries" in limit) else ""
    sentence = f"{_verb(evidence)}: {what}{when}{memory}{times}{colon}{error.rstrip('.')}{ending}."
    facts = [
        Fact("pods", f"{end.instance.name}: {end.text}")
        for end in sorted(ends, key=lambda end: order(end.state.finished_at))[:8]
    ]
    told = tuple(_triage_facts(found)) if found is not None else ()
    message = cut(first.state.message)
    if message and not any(message in fact.text for fact in told):
        facts.insert(0, Fact("pods", f"{first.instance.name} says: {message}"))
    if first.state.reason in ("", "Error") and (meaning := _meaning(evidence, first)):
        facts.append(Fact("pods", f"exit {first.state.exit_code} means {meaning}"))
    whose = f"-i {first.instance.name}"
    if found is not None and found.rank is not None and first.instance.ranks != (found.rank,):
        whose = f"-r {found.rank}"
    log = f"See what it printed: gpuconsole logs {evidence.job.ref.name} {whose}"
    log += f" -c {first.container}" if first.is_init else ""
    previous = " --previous" if first.instance.status is Status.RESTARTING else ""
    # More retries of a program that fails do not help it, and one that never started printed nothing.
    known = found.cause if found is not None else None
    may_help = "deadline" in limit or (known is not None and known.can_retry_help)
    advised = [advice] if advice and may_help else []
    logged = [] if first.state.reason in NEVER_STARTED else [log + previous]
    remedies = (found.remedy,) if found is not None and found.remedy else ()
    return Cause(sentence, (*told, *facts, *_operator_facts(evidence)), (*remedies, *logged, *advised))


def _triage_facts(found: Triage) -> Iterator[Fact]:
    if found.cause is not None:
        yield Fact("cause", found.sentence or found.cause.name)
    if found.saw and found.saw != found.error:
        yield Fact("line", found.saw)
    for each in found.others:
        yield Fact("others", each)


def _meaning(evidence: Evidence, end: _End) -> str:
    code, argv = end.state.exit_code, evidence.command_of(end.instance, end.container)
    runs_trainer = any(flag == "-m" and word in _TRAINER_MODULES for flag, word in pairwise(argv))
    meaning = _TRAINER_EXIT_CODES.get(code, "") if runs_trainer else ""
    return f"that {meaning}" if meaning else _EXIT_CODES.get(code, "")


def _ends(evidence: Evidence, instance: Instance) -> list[_End]:
    found = []
    for status, is_init in evidence.containers(instance):
        ended = status.state.terminated
        if ended is None and status.state.waiting is not None:
            ended = status.last_state.terminated
        if ended is not None and (ended.exit_code != 0 or ended.reason == "OOMKilled"):
            found.append(_End(instance, status.name, ended, status.restart_count, is_init))
    return found


def _memory_limit(evidence: Evidence, end: _End) -> str:
    if end.state.reason != "OOMKilled":
        return ""
    for container in evidence.spec(end.instance).containers:
        limits = container.resources.limits if container.resources is not None else None
        if container.name == end.container and limits and "memory" in limits:
            return f", its memory limit is {limits['memory']}"
    return ""


def _limit(evidence: Evidence) -> tuple[str, str]:
    text = _limit_of(evidence.job)
    if "deadline" in text:
        return text, "Give it more time: activeDeadlineSeconds."
    if "retries" not in text:
        return text, ""
    had_none = evidence.declared is not None and evidence.declared.restarts_allowed == 0
    if had_none:
        return "it had no retries", "Allow some: backoffLimit."
    return text, "Allow more of them: backoffLimit."


def passed_deadline(job: Job) -> bool:
    """Return True if the job failed because it ran longer than its deadline."""
    return "deadline" in _limit_of(job)


def _limit_of(job: Job) -> str:
    verdicts = (each for each in job.conditions if (each.type, each.status) == ("Failed", "True"))
    limits = (limit_text(f"{each.reason} {each.message}") for each in verdicts)
    return next(filter(None, limits), "")


def given_up(evidence: Evidence) -> Cause | None:
    """Detect a failure that only the operator's verdict explains."""
    if evidence.job.status is not Status.FAILED:
        return None
    limit, advice = _limit(evidence)
    deadline = dig(evidence.manifest, "spec", "activeDeadlineSeconds") or dig(
        evidence.manifest, "spec", "runPolicy", "activeDeadlineSeconds"
    )
    of = f" of {span(deadline)}" if isinstance(deadline, int) and "deadline" in limit else ""
    why = f"{limit}{of}" if limit else cut(evidence.job.reason) or "its operator gives no reason"
    facts = _operator_facts(evidence)
    # An operator refuses a spec before it makes a pod.
    refusal = refused(evidence)
    if refusal is not None:
        return Cause(f"Failed: {refusal.sentence}", (*facts, *refusal.facts), refusal.help)
    was_refused = any(re.search("valid", fact.text, re.IGNORECASE) for fact in facts)
    gone = "" if evidence.pods or was_refused else "; its pods are gone, and their logs with them"
    # More retries are not advised: they do not help a program that fails.
    return Cause(f"Failed: {why}{gone}.", tuple(facts), (advice,) if "deadline" in limit else ())


def _operator_facts(evidence: Evidence) -> list[Fact]:
    return [
        Fact("job", f"{each.type}: {cut(each.message) or each.reason}{_at(each.last_transition_time)}")
        for each in evidence.job.conditions
        if each.type in ("Failed", "Restarting", "FailureTarget") and each.status == "True"
    ]


def _at(moment: datetime | None) -> str:
    return f", {clock(moment)}" if moment is not None and clock(moment) else ""


def _verb(evidence: Evidence) -> str:
    return "Failed" if evidence.job.status is Status.FAILED else "Restarts"


def restarting(evidence: Evidence) -> Cause | None:
    """Detect a restart that only the job's status explains."""
    if evidence.job.status is not Status.RESTARTING:
        return None
    who = [each.name for each in evidence.job.instances if each.status in (Status.RESTARTING, Status.FAILED)]
    why = cut(evidence.job.reason) or "its operator says so"
    return Cause(f"Restarts: {names(who) or 'its pods'}; {why}.", tuple(_operator_facts(evidence)))
