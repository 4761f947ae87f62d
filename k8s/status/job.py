"""The table of rules that give a job its status and reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from k8s.status import BEING_READ, Status
from k8s.status.pod import ASKED_TO_STOP

# Start of the reason of a job that runs although its object says suspend.
TOLD_TO_SUSPEND = "told to suspend"
# Start of the reason of a job that holds GPUs for some pods while others find no node.
HALF_ALLOCATED = "half-allocated"
# Reason of a job that another cluster runs.
ELSEWHERE = "runs on another cluster; its pods are not in this one"
# Parts of an operator's verdict on a failed job, and which limit ended it.
_LIMITS = (
    ("deadline", "ran longer than its deadline"),
    ("backoff limit", "all its retries are used"),
    ("backofflimitexceeded", "all its retries are used"),
    ("podfailurepolicy", "its pod failure policy ended it"),
)
_LAST = datetime.max.replace(tzinfo=UTC)


class DeclaredStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The parts of a job's object that determine its status."""

    total: int
    outcome: Status | None = None
    """Succeeded or Failed once the operator has set it for good."""
    outcome_reason: str = ""
    is_suspended: bool = False
    queue: str = ""
    """The queue that suspended it until there is room; empty if none did."""
    is_deleting: bool = False
    min_instances: int | None = None
    """Fewest instances that can work together; None means all of them."""
    restarts: int = 0
    restarts_allowed: int | None = None
    """None if the object does not say."""
    counts_pod_restarts: bool = True
    has_status: bool = True
    is_elsewhere: bool = False
    """Its pods are in another cluster."""
    has_started: bool = False
    unreadable: str = ""
    is_partial: bool = False
    """Some of its pods may not be listed yet; those that are do not count."""


class InstanceState(msgspec.Struct, frozen=True, gc=False):
    """One instance of a job that has a pod."""

    name: str
    ranks: tuple[int, ...]
    status: Status
    reason: str
    gpus: int = 0
    """Devices it holds once it is bound to a node."""
    ended: datetime | None = None
    is_bound: bool = True
    restarts: int = 0
    """Restarts of its containers that may count towards the limit of the job."""


class _Counted:
    def __init__(self, job: DeclaredStatus, instances: Sequence[InstanceState]) -> None:
        counts = Counter(instance.status for instance in instances)
        self.job, self.instances, self.counts = job, instances, counts
        self.total = max(job.total, 1)
        self.min_instances = (
            self.total if job.min_instances is None else min(max(job.min_instances, 1), self.total)
        )
        self.running = counts[Status.RUNNING]
        self.up = self.running + counts[Status.SUCCEEDED]
        self.left = len(instances) - counts[Status.SUCCEEDED] - counts[Status.FAILED]
        of_pods = sum(instance.restarts for instance in instances) if job.counts_pod_restarts else 0
        self.restarts = job.restarts + of_pods

    def of(self, status: Status) -> list[InstanceState]:
        return (
            [instance for instance in self.instances if instance.status is status]
            if self.counts[status]
            else []
        )

    def has(self, status: Status) -> bool:
        return self.counts[status] > 0

    def all_are(self, status: Status) -> bool:
        return self.counts[status] == len(self.instances)

    @property
    def is_suspended_by_queue(self) -> bool:
        return self.job.is_suspended and bool(self.job.queue)

    @property
    def first_to_fail(self) -> InstanceState | None:
        bad = self.of(Status.FAILED) or self.of(Status.RESTARTING)
        return min(bad, key=lambda instance: instance.ended or _LAST, default=None)

    @property
    def holding(self) -> list[InstanceState]:
        return [instance for instance in self.instances if instance.is_bound and not instance.status.is_final]

    @property
    def is_half_allocated(self) -> bool:
        waits = any(
            not instance.is_bound and instance.status is Status.PENDING for instance in self.instances
        )
        has_place = len(self.holding) + self.counts[Status.SUCCEEDED]
        return waits and bool(self.holding) and has_place < self.min_instances

    @property
    def is_beyond_repair(self) -> bool:
        allowed = self.job.restarts_allowed
        may_not = allowed is not None and self.restarts >= allowed
        return may_not and not self.left and self.has(Status.FAILED)


def limit_text(verdict: str) -> str:
    """Return the limit that ended a job, by its operator's reason and message; empty if none did."""
    return next((text for part, text in _LIMITS if part in verdict.lower()), "")


def _why_failed(it: _Counted) -> str:
    # If all were only asked to stop, the operator's reason says more: usually a deadline.
    first = it.first_to_fail
    if first is None or (
        it.job.outcome_reason and all(_was_stopped(instance) for instance in it.of(first.status))
    ):
        return _joined(limit_text(it.job.outcome_reason) or it.job.outcome_reason, _still_held(it))
    name = f"rank {first.ranks[0]}" if len(first.ranks) == 1 else first.name
    order = " first" if len(it.of(first.status)) > 1 else ""
    at = f", {first.ended.astimezone():%H:%M:%S}" if first.ended is not None else ""
    none_left = "" if it.job.outcome is not None else "no restart is left"
    how, colon, message = first.reason.partition(": ")
    return _joined(f"{name} {how}{order}{at}{colon}{message}", none_left, _still_held(it))


def _was_stopped(instance: InstanceState) -> bool:
    return instance.reason.startswith((ASKED_TO_STOP, "DeadlineExceeded"))


def _still_held(it: _Counted) -> str:
    # Pods that end within their grace period are no news; those that cannot give a reason after a comma.
    going = [each for each in it.of(Status.TERMINATING) if "," not in each.reason]
    gpus = sum(instance.gpus for instance in it.holding if instance not in going)
    there = f"{_pods(it.left - len(going))} still there" if it.left > len(going) else ""
    return f"{there}, with {_gpus(gpus)}" if there and gpus else there


def _still_there(it: _Counted) -> str:
    return f"{_pods(it.left)} still there" if it.left else ""


def _runs_on(it: _Counted) -> str:
    verb = "runs" if it.running == 1 else "run"
    return f"{TOLD_TO_SUSPEND}, but {_pods(it.running)} {verb}"


def _going(it: _Counted) -> str:
    if not it.instances:
        return "being deleted"
    named = next((instance for instance in it.of(Status.TERMINATING) if "," in instance.reason), None)
    return _joined(f"{_pods(len(it.instances))} left", _named(named))


def _queue(it: _Counted) -> str:
    return f"waits in queue {it.job.queue}"


def _no_pods(it: _Counted) -> str:
    if it.job.is_elsewhere:
        return "waits for a place on another cluster"
    if it.job.restarts:
        return f"{_attempt(it)}no pods yet"
    return "no pods yet" if it.job.has_status else "no pods yet: its operator has not answered"


def _ended(_: _Counted) -> str:
    return "all pods have ended well"


def _broken(it: _Counted) -> str:
    return _attempt(it) + _named(it.first_to_fail or it.of(Status.TERMINATING)[0])


def _attempt(it: _Counted) -> str:
    allowed = it.job.restarts_allowed
    if it.restarts and allowed is not None and it.restarts <= allowed:
        return f"{it.restarts} of {allowed}: "
    if it.job.restarts:
        return f"restart {it.restarts}: "
    return f"{_up(it)}; " if it.total > 1 else ""


def _half_allocated(it: _Counted) -> str:
    gpus = sum(instance.gpus for instance in it.holding)
    one = len(it.holding) == 1
    what = f"hold{'s' if one else ''} {_gpus(gpus)}" if gpus else f"ha{'s' if one else 've'} a node"
    waits = next(instance for instance in it.of(Status.PENDING) if not instance.is_bound)
    return f"{HALF_ALLOCATED}: {len(it.holding)} of {_pods(it.total)} {what}; {waits.name} not scheduled"


def _late(it: _Counted) -> str:
    others = [
        instance for instance in it.instances if instance.status not in (Status.RUNNING, Status.SUCCEEDED)
    ]
    if it.up >= it.total:
        odd = next((instance for instance in it.of(Status.RUNNING) if instance.reason), None)
        return _named(odd)
    missing = it.total - len(it.instances)
    named = next(
        (instance for instance in others if instance.status is Status.UNKNOWN), others[0] if others else None
    )
    return _joined(_up(it), _named(named) or (f"{missing} not created yet" if missing else ""))


def _waiting(it: _Counted) -> str:
    return _named(it.of(Status.PENDING)[0])


def _up(it: _Counted) -> str:
    if it.total == 1:
        return ""
    is_less = it.min_instances < it.total and it.up >= it.min_instances
    fewer = f", {it.min_instances} {'is' if it.min_instances == 1 else 'are'} enough" if is_less else ""
    return f"{it.up} of {_pods(it.total)}{fewer}"


def _named(instance: InstanceState | None) -> str:
    if instance is None:
        return ""
    is_sentence = instance.status in (Status.UNKNOWN, Status.PENDING)
    return f"{instance.name}{':' if is_sentence else ''} {instance.reason}"


def _joined(*phrases: str) -> str:
    # The message of a pod may be a sentence.
    *others, last = list(filter(None, phrases)) or [""]
    return "; ".join([*(each.removesuffix(".") for each in others), last])


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


class StatusRule(NamedTuple):
    """A condition on a job and its pods, and the resulting status."""

    name: str
    holds: Callable[[_Counted], bool]
    status: Status
    reason: Callable[[_Counted], str]


# The first rule that holds decides.
RULES = (
    StatusRule(
        "cannot be read",
        lambda it: bool(it.job.unreadable),
        Status.UNKNOWN,
        lambda it: f"its object cannot be read: {it.job.unreadable}",
    ),
    # The operator's last word stands, but GPUs that are still held after it are news.
    StatusRule("failed", lambda it: it.job.outcome is Status.FAILED, Status.FAILED, _why_failed),
    StatusRule("succeeded", lambda it: it.job.outcome is Status.SUCCEEDED, Status.SUCCEEDED, _still_held),
    StatusRule("deleted", lambda it: it.job.is_deleting, Status.TERMINATING, _going),
    StatusRule("being read", lambda it: it.job.is_partial, Status.UNKNOWN, lambda _: BEING_READ),
    # Suspended by a queue is waiting for its turn; suspended by a person is not waiting.
    StatusRule(
        "waits for its turn", lambda it: it.is_suspended_by_queue and not it.left, Status.QUEUED, _queue
    ),
    # An operator that does not know the field starts the job, or lets it run on.
    StatusRule("not suspended", lambda it: it.job.is_suspended and it.running > 0, Status.RUNNING, _runs_on),
    StatusRule("suspended", lambda it: it.job.is_suspended, Status.SUSPENDED, _still_there),
    StatusRule(
        "runs elsewhere",
        lambda it: it.job.is_elsewhere and not it.instances and it.job.has_started,
        Status.RUNNING,
        lambda _: ELSEWHERE,
    ),
    # Between two attempts all pods are gone for a moment: that is not a job that never began.
    StatusRule(
        "between attempts", lambda it: not it.instances and it.job.restarts > 0, Status.RESTARTING, _no_pods
    ),
    StatusRule("no pods", lambda it: not it.instances, Status.PENDING, _no_pods),
    StatusRule("all pods go", lambda it: it.all_are(Status.TERMINATING), Status.TERMINATING, _going),
    # An elastic job works on with fewer pods, even if others have failed.
    StatusRule("enough run", lambda it: it.running > 0 and it.up >= it.min_instances, Status.RUNNING, _late),
    # Until its operator says so, the job has not ended: it may start more pods.
    StatusRule("all have ended", lambda it: it.up >= it.total, Status.RUNNING, _ended),
    # It will not be restarted, but its operator has not said so yet, or is not running.
    StatusRule("nothing left to try", lambda it: it.is_beyond_repair, Status.FAILED, _why_failed),
    # One broken pod stops all ranks of a job, so the job is not Running, however many pods are.
    StatusRule("a pod failed", lambda it: it.first_to_fail is not None, Status.RESTARTING, _broken),
    # An eviction or a preemption: the others wait for the pod to come back, or end with it.
    StatusRule(
        "a pod goes", lambda it: it.running > 0 and it.has(Status.TERMINATING), Status.RESTARTING, _broken
    ),
    # Pods that hold GPUs wait for one that finds no node: nothing trains, and others are kept out.
    StatusRule("half-allocated", lambda it: it.is_half_allocated, Status.PENDING, _half_allocated),
    # Pods on a node that is not ready were last seen running, but may no longer be.
    StatusRule("a node is not ready", lambda it: it.has(Status.UNKNOWN), Status.UNKNOWN, _late),
    # The others have nodes or have not been created: usually they run a moment later.
    StatusRule("some run", lambda it: it.running > 0, Status.RUNNING, _late),
    StatusRule("no room", lambda it: it.has(Status.PENDING), Status.PENDING, _waiting),
    StatusRule("starting", lambda _: True, Status.STARTING, _late),
)


def with_cause(reason: str, cause: str) -> str:
    """Return the reason of a failed or restarting job with `cause` in place of the first exit."""
    attempt, left = _ATTEMPT.match(reason), _LEFT.search(reason)
    cause = cause.removesuffix(".") if left and left[0] else cause
    return f"{attempt[0] if attempt else ''}{cause}{left[0] if left else ''}"


def without_leftovers(reason: str) -> str:
    """Return the reason of an ended job without the pods that are still there for a moment."""
    return _PODS_LEFT.sub("", reason)


# Parts of a reason around the end of a container: see `_attempt`, `_why_failed`.
_ATTEMPT = re.compile(r"\d+ of \d+: |restart \d+: ")
_PODS_LEFT = re.compile(r"(?:^|; )\d+ pods? still there(?:, with \d+ GPUs?)?$")
_LEFT = re.compile(r"(; no restart is left)?(; \d+ pods? still there(, with \d+ GPUs?)?)?$")


def job_status(job: DeclaredStatus, instances: Sequence[InstanceState]) -> tuple[Status, str]:
    """Return the status of a job and its reason; times of day in it are those of this machine.

    `instances` are those that have a pod, in their order.
    """
    counted = _Counted(job, instances)
    rule = next(rule for rule in RULES if rule.holds(counted))
    return rule.status, rule.reason(counted)
