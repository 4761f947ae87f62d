"""The table of rules from what a job's object and its pods say to one word, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from k8s.status import Status
from k8s.status.pod import ASKED_TO_STOP

_LAST = datetime.max.replace(tzinfo=UTC)


class DeclaredStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a job's object says that bears on its status."""

    total: int
    """How many instances it asks for."""
    outcome: Status | None = None
    """Succeeded or Failed once the operator has said so for good."""
    outcome_reason: str = ""
    """The operator's words for that outcome."""
    is_suspended: bool = False
    """It asks not to run."""
    queue: str = ""
    """Who suspended it until there is room for it, empty when nobody."""
    is_deleting: bool = False
    """Somebody has deleted it."""
    enough: int | None = None
    """Fewest instances that can work together; None: all of them."""
    restarts: int = 0
    """How often its operator has started it anew."""
    restarts_allowed: int | None = None
    """How often it may be started anew; None: the object does not tell."""
    has_status: bool = True
    """An operator has said anything at all about it."""


class InstanceState(msgspec.Struct, frozen=True, gc=False):
    """One instance of a job that has a pod."""

    name: str
    ranks: tuple[int, ...]
    status: Status
    reason: str
    gpus: int = 0
    """Devices it holds once it is bound to a node."""
    ended: datetime | None = None
    """When its container last ended."""
    is_bound: bool = True
    """It has a node."""
    restarts: int = 0
    """How often its node has started its containers again."""


class _Counted:
    """A job and its pods, counted once for all rules."""

    def __init__(self, job: DeclaredStatus, instances: Sequence[InstanceState]) -> None:
        counts = Counter(instance.status for instance in instances)
        self.job, self.instances, self.counts = job, instances, counts
        self.total = max(job.total, 1)
        self.enough = self.total if job.enough is None else min(max(job.enough, 1), self.total)
        self.running = counts[Status.RUNNING]
        self.up = self.running + counts[Status.SUCCEEDED]
        self.left = len(instances) - counts[Status.SUCCEEDED] - counts[Status.FAILED]
        self.restarts = job.restarts + sum(instance.restarts for instance in instances)

    def of(self, status: Status) -> list[InstanceState]:
        """Return the instances that have this status."""
        return (
            [instance for instance in self.instances if instance.status is status]
            if self.counts[status]
            else []
        )

    def has(self, status: Status) -> bool:
        """Tell whether any instance has this word."""
        return self.counts[status] > 0

    def all_are(self, status: Status) -> bool:
        """Tell whether all instances have this word."""
        return self.counts[status] == len(self.instances)

    @property
    def is_suspended_by_queue(self) -> bool:
        """Tell whether it is held back until there is room for it."""
        return self.job.is_suspended and bool(self.job.queue)

    @property
    def first_to_fail(self) -> InstanceState | None:
        """Return the instance that failed before the others; else one that its node restarts all the time."""
        bad = self.of(Status.FAILED) or self.of(Status.RESTARTING)
        return min(bad, key=lambda instance: instance.ended or _LAST, default=None)

    @property
    def holding(self) -> list[InstanceState]:
        """Return the instances that have a node and have not ended."""
        return [instance for instance in self.instances if instance.is_bound and not instance.status.is_final]

    @property
    def is_half_allocated(self) -> bool:
        """Tell whether too few pods have nodes, and at least one other waits for one."""
        waits = any(
            not instance.is_bound and instance.status is Status.PENDING for instance in self.instances
        )
        has_place = len(self.holding) + self.counts[Status.SUCCEEDED]
        return waits and bool(self.holding) and has_place < self.enough

    @property
    def is_beyond_repair(self) -> bool:
        """Tell whether a instance failed, none goes on, and the job may not be started anew."""
        allowed = self.job.restarts_allowed
        may_not = allowed is not None and self.restarts >= allowed
        return may_not and not self.left and self.has(Status.FAILED)


def _why_failed(it: _Counted) -> str:
    """Name the first instance that failed, by its rank where it has just one.

    Where all were only asked to stop, say why the operator did so: a deadline, as a rule.
    """
    first = it.first_to_fail
    if first is None or (
        it.job.outcome_reason and all(_was_stopped(instance) for instance in it.of(first.status))
    ):
        return _joined(it.job.outcome_reason, _still_held(it))
    name = f"rank {first.ranks[0]}" if len(first.ranks) == 1 else first.name
    order = " first" if len(it.of(first.status)) > 1 else ""
    at = f", {first.ended.astimezone(UTC):%H:%M:%S}" if first.ended is not None else ""
    none_left = "" if it.job.outcome is not None else "no restart is left"
    return _joined(f"{name} {first.reason}{order}{at}", none_left, _still_held(it))


def _was_stopped(instance: InstanceState) -> bool:
    return instance.reason.startswith((ASKED_TO_STOP, "DeadlineExceeded"))


def _still_held(it: _Counted) -> str:
    gpus = sum(instance.gpus for instance in it.holding)
    return f"{_still_there(it)}, with {_gpus(gpus)}" if gpus else _still_there(it)


def _still_there(it: _Counted) -> str:
    return f"{_pods(it.left)} still there" if it.left else ""


def _going(it: _Counted) -> str:
    """Say how many pods are left, and what keeps one of them or took it, where that is known."""
    if not it.instances:
        return "being deleted"
    named = next((instance for instance in it.of(Status.TERMINATING) if "," in instance.reason), None)
    return _joined(f"{_pods(len(it.instances))} left", _named(named))


def _queue(it: _Counted) -> str:
    return f"waits in queue {it.job.queue}"


def _no_pods(it: _Counted) -> str:
    if it.job.restarts:
        return f"{_attempt(it)}no pods yet"
    return "no pods yet" if it.job.has_status else "no pods yet: its operator has not answered"


def _ended(_: _Counted) -> str:
    return "all pods have ended well"


def _broken(it: _Counted) -> str:
    return _attempt(it) + _named(it.first_to_fail or it.of(Status.TERMINATING)[0])


def _attempt(it: _Counted) -> str:
    """Say which attempt this is, "2 of 3: "; where nobody counts them, how many pods are up."""
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
    return f"half-allocated: {len(it.holding)} of {_pods(it.total)} {what}; {waits.name} not scheduled"


def _late(it: _Counted) -> str:
    """Say how many are up and what keeps the first that is not; nothing when all is well."""
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
    return _joined(_up(it), _named(named) or (f"{missing} not made yet" if missing else ""))


def _waiting(it: _Counted) -> str:
    return _named(it.of(Status.PENDING)[0])


def _up(it: _Counted) -> str:
    if it.total == 1:
        return ""
    is_less = it.enough < it.total and it.up >= it.enough
    fewer = f", {it.enough} {'is' if it.enough == 1 else 'are'} enough" if is_less else ""
    return f"{it.up} of {_pods(it.total)}{fewer}"


def _named(instance: InstanceState | None) -> str:
    """Put a instance's name before its reason, which may be a sentence of its own."""
    if instance is None:
        return ""
    is_sentence = instance.status in (Status.UNKNOWN, Status.PENDING)
    return f"{instance.name}{':' if is_sentence else ''} {instance.reason}"


def _joined(*phrases: str) -> str:
    return "; ".join(filter(None, phrases))


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


class StatusRule(NamedTuple):
    """A condition on a job and its pods, and the status that follows where it holds."""

    name: str
    holds: Callable[[_Counted], bool]
    status: Status
    words: Callable[[_Counted], str]


RULES = (
    # The operator's last word stands, but GPUs that are still held after it are news.
    StatusRule("failed", lambda it: it.job.outcome is Status.FAILED, Status.FAILED, _why_failed),
    StatusRule("succeeded", lambda it: it.job.outcome is Status.SUCCEEDED, Status.SUCCEEDED, _still_held),
    StatusRule("deleted", lambda it: it.job.is_deleting, Status.TERMINATING, _going),
    # Suspended by a queue is waiting for its turn; suspended by a person is not waiting.
    StatusRule(
        "waits for its turn", lambda it: it.is_suspended_by_queue and not it.left, Status.QUEUED, _queue
    ),
    StatusRule("suspended", lambda it: it.job.is_suspended, Status.SUSPENDED, _still_there),
    # Between two attempts all pods are gone for a moment: that is not a job that never began.
    StatusRule(
        "between attempts", lambda it: not it.instances and it.job.restarts > 0, Status.RESTARTING, _no_pods
    ),
    StatusRule("no pods", lambda it: not it.instances, Status.PENDING, _no_pods),
    StatusRule("all pods go", lambda it: it.all_are(Status.TERMINATING), Status.TERMINATING, _going),
    # An elastic job works on with fewer pods, whatever became of the others.
    StatusRule("enough run", lambda it: it.running > 0 and it.up >= it.enough, Status.RUNNING, _late),
    # Until its operator says so, the job has not ended: it may have more in mind.
    StatusRule("all have ended", lambda it: it.up >= it.total, Status.RUNNING, _ended),
    # Nobody will start it again, and whoever should say so has not yet, or is not there.
    StatusRule("nothing left to try", lambda it: it.is_beyond_repair, Status.FAILED, _why_failed),
    # One broken pod stops all ranks of a job, so the job is not Running, however many pods are.
    StatusRule("a pod failed", lambda it: it.first_to_fail is not None, Status.RESTARTING, _broken),
    # An eviction or a preemption: the others wait for the pod to come back, or end with it.
    StatusRule(
        "a pod goes", lambda it: it.running > 0 and it.has(Status.TERMINATING), Status.RESTARTING, _broken
    ),
    # Pods that hold GPUs wait for one that finds no node: nothing trains, and others are kept out.
    StatusRule("half-allocated", lambda it: it.is_half_allocated, Status.PENDING, _half_allocated),
    # The pods of a node that is not ready were last seen running; whether they still do, nobody knows.
    StatusRule("a node is not ready", lambda it: it.has(Status.UNKNOWN), Status.UNKNOWN, _late),
    # The others have nodes or have not been made: as a rule they run a moment later.
    StatusRule("some run", lambda it: it.running > 0, Status.RUNNING, _late),
    StatusRule("no room", lambda it: it.has(Status.PENDING), Status.PENDING, _waiting),
    StatusRule("starting", lambda _: True, Status.STARTING, _late),
)
"""The first rule that holds decides."""


def job_status(job: DeclaredStatus, instances: Sequence[InstanceState]) -> tuple[Status, str]:
    """Return how a job is, and why, from what its object and its pods say together.

    Times of day in the reason are UTC, as in everything that the cluster sends.

    Args:
        job: What its object says.
        instances: Its instances that have a pod, in their order.
    """
    counted = _Counted(job, instances)
    rule = next(rule for rule in RULES if rule.holds(counted))
    return rule.status, rule.words(counted)
