"""From what objects say to one honest word about a job or an instance, with the reason.

The words are DESIGN.md's: Queued Pending Starting Running Restarting Suspended Succeeded
Failed Terminating Unknown. A job's word comes from the job *and* its pods, never from the
last condition in its list, which by the operator's own order is often not the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from k8s.models import ContainerStatus, Pod


class Status(StrEnum):
    """How a job or an instance is."""

    QUEUED = "Queued"
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"

    @property
    def is_final(self) -> bool:
        """Tell whether nothing more will happen by itself."""
        return self in (Status.SUCCEEDED, Status.FAILED)


PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Why a container waits when its image cannot be had."""

NOBODY_SILENT: Mapping[str, str] = {}
"""When nothing is known against any node."""


def pod_status(pod: Pod, silent: Mapping[str, str] = NOBODY_SILENT) -> tuple[Status, str]:
    """Return how a pod is, and why in a few words.

    Args:
        pod: The pod.
        silent: Nodes whose word cannot be had, each with why in words.

    Source: the STATUS column of `kubectl get pods` (printPod), with its words sorted into ours.
    """
    if pod.metadata.deletion_timestamp is not None and not pod.is_finished:
        return Status.TERMINATING, "being deleted"
    match pod.status.phase:
        case "Succeeded":
            return Status.SUCCEEDED, ""
        case "Failed":
            return Status.FAILED, _why_failed(pod)
        case "Running":
            return _running(pod)
        case "Pending" | "":
            return _pending(pod)
        case _:
            return Status.UNKNOWN, "its node does not answer"


def exit_words(status: ContainerStatus) -> str:
    """Return how a container ended: "exit 1", "OOMKilled", "signal 9"; empty when it has not."""
    ended = status.state.terminated or status.last_state.terminated
    if ended is None:
        return ""
    if ended.reason and ended.reason not in ("Error", "Completed"):
        return f"{ended.reason}, exit {ended.exit_code}"
    return f"signal {ended.signal}" if ended.signal else f"exit {ended.exit_code}"


def _why_failed(pod: Pod) -> str:
    if pod.status.reason:
        message = f": {pod.status.message}" if pod.status.message else ""
        return f"{pod.status.reason}{message}"
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    for status in statuses:
        ended = status.state.terminated
        if ended is not None and ended.exit_code != 0:
            message = f": {ended.message}" if ended.message else ""
            return exit_words(status) + message
    return pod.status.message or "failed"


def _running(pod: Pod) -> tuple[Status, str]:
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None:
            how = exit_words(status)
            return Status.RESTARTING, f"{waiting.reason}{', last ' + how if how else ''}"
        if status.state.terminated is not None and status.state.terminated.exit_code != 0:
            if pod.spec.restart_policy == "Never":
                return Status.FAILED, f"{status.name} {exit_words(status)}, its other containers run on"
            return Status.RESTARTING, exit_words(status)
    return Status.RUNNING, ""


def _pending(pod: Pod) -> tuple[Status, str]:
    if not pod.spec.node_name:
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return Status.PENDING, condition.message or condition.reason or "not scheduled"
        return Status.PENDING, "not scheduled"
    total = len(pod.spec.init_containers or ())
    done = 0
    for status in pod.status.init_container_statuses or ():
        if status.state.terminated is not None and status.state.terminated.exit_code == 0:
            done += 1
        elif status.state.terminated is not None:
            return Status.STARTING, f"init {done}/{total}: {status.name} {exit_words(status)}"
        elif status.state.waiting is not None and status.state.waiting.reason not in ("", "PodInitializing"):
            return Status.STARTING, f"init {done}/{total}: {status.name} {status.state.waiting.reason}"
        elif status.state.running is not None:
            return Status.STARTING, f"init {done}/{total}: {status.name} runs"
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason in PULL_REASONS:
            return Status.STARTING, f"waits for image: {waiting.reason}"
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return (
                Status.STARTING,
                f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason,
            )
    return Status.STARTING, "bound, its node has not started it"


class Declaration(msgspec.Struct, frozen=True, gc=False, kw_only=True):
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


class Part(msgspec.Struct, frozen=True, gc=False):
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


def ended_at(pod: Pod) -> datetime | None:
    """Return when the first of a pod's containers to fail ended, or else the last one to end."""
    return None


def job_status(job: Declaration, parts: Sequence[Part]) -> tuple[Status, str]:
    """Return how a job is, and why, from what its object and its pods say together."""
    instances = [(part.name, part.status, part.reason) for part in parts]
    outcome, outcome_reason, is_suspended = job.outcome, job.outcome_reason, job.is_suspended
    queue, is_deleting, instances_total = job.queue, job.is_deleting, job.total
    failed = [(name, reason) for name, status, reason in instances if status is Status.FAILED]
    if outcome is Status.FAILED:
        first = f"{failed[0][0]} {failed[0][1]}" if failed else outcome_reason
        return Status.FAILED, first
    if outcome is Status.SUCCEEDED:
        return Status.SUCCEEDED, ""
    if is_deleting:
        return Status.TERMINATING, f"{_pods(len(instances))} left" if instances else "being deleted"
    by_status = Counter(status for _, status, _ in instances)
    if is_suspended:
        still = len(instances) - by_status[Status.SUCCEEDED] - by_status[Status.FAILED]
        if queue and not still:
            return Status.QUEUED, f"waits in queue {queue}"
        return Status.SUSPENDED, f"{_pods(still)} still there" if still else ""
    up = by_status[Status.RUNNING] + by_status[Status.SUCCEEDED]
    words = f"{up} of {instances_total}"
    for status in (Status.RESTARTING, Status.FAILED):
        for name, found, reason in instances:
            if found is status:
                return Status.RESTARTING, f"{words} pods; {name} {reason}"
    if instances and up >= instances_total:
        return Status.RUNNING, "" if by_status[Status.RUNNING] else "all pods have ended"
    lagging = next(((n, r) for n, s, r in instances if s not in (Status.RUNNING, Status.SUCCEEDED)), None)
    late = f"{words} pods; {lagging[0]} {lagging[1]}" if lagging else f"{words} pods"
    if by_status[Status.RUNNING]:
        return Status.RUNNING, late
    if not instances:
        return Status.PENDING, "no pods yet"
    if all(status is Status.TERMINATING for _, status, _ in instances):
        return Status.TERMINATING, f"{_pods(len(instances))} left"
    if by_status[Status.UNKNOWN]:
        return Status.UNKNOWN, late
    if by_status[Status.PENDING]:
        waiting = next((n, r) for n, s, r in instances if s is Status.PENDING)
        return Status.PENDING, f"{waiting[0]} {waiting[1]}"
    return Status.STARTING, late


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
