"""Idle GPU-hours by user and job. Pure.

Unobserved time is unknown: None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from k8s.snapshot import Job, NodeRow
from k8s.telemetry.gpu_warnings import IDLE_PERCENT
from k8s.telemetry.history import LONGEST_GAP
from k8s.telemetry.job_ranks import holders_of
from k8s.telemetry.readings import GpuKey, GpuReading, PodContainer
from tui.text.format import NOTHING, age, plural

# Beyond this, the job not observed for longest is dropped.
MOST_JOBS = 4096
MOST_NAMES = 5
MAX_GPUS = 16_384


@dataclass(frozen=True, slots=True)
class JobUsage:
    """GPU usage of one job, or of all jobs of a user."""

    user: str
    namespace: str = ""
    job: str = ""
    """Empty for all jobs of the user."""
    kind: str = ""
    gpus_held: int = 0
    gpus_requested: int = 0
    """GPUs that it holds or waits for."""
    gpus_seen: int = 0
    gpus_idle: int | None = None
    """None if none of its GPUs is observed."""
    observed_hours: float = 0.0
    """GPU-hours observed while it held them."""
    idle_hours: float | None = None
    """None if nothing was observed."""


@dataclass(frozen=True, slots=True)
class UserUsage:
    """GPU usage of one user, in total and by job."""

    total: JobUsage
    jobs: tuple[JobUsage, ...]


class _PodOwner:
    def __init__(self, jobs: Iterable[Job]) -> None:
        self._found = {
            (job.ref.namespace, each.pod): job for job in jobs for each in job.instances if each.pod
        }

    def usage(self, pod: PodContainer) -> JobUsage:
        """Return the empty usage of a pod's job, or of the pod itself if it has no job."""
        job = self._found.get((pod.namespace, pod.pod))
        if job is None:
            return JobUsage(pod.namespace, pod.namespace, pod.pod)
        return _usage_of(job)


def _usage_of(job: Job) -> JobUsage:
    user = job.user or job.ref.namespace
    return JobUsage(user, job.ref.namespace, job.ref.name, job.ref.kind)


_Key = tuple[str, str, str, str]


def _key(usage: JobUsage) -> _Key:
    return usage.user, usage.namespace, usage.kind, usage.job


class IdleLedger:
    """Adds up idle GPU-hours by job as readings arrive; long gaps between readings count as unknown."""

    def __init__(self) -> None:
        """Start with nothing observed."""
        self.first_at: datetime | None = None
        """None before the first reading."""
        self.last_at: datetime | None = None
        """None before the first reading."""
        self._last: dict[GpuKey, tuple[datetime, frozenset[PodContainer]]] = {}
        self._hours: dict[_Key, tuple[float, float]] = {}
        self._observed_s: dict[GpuKey, float] = {}

    @property
    def observed_s(self) -> float:
        """Return the longest time that any GPU has been observed."""
        return max(self._observed_s.values(), default=0.0)

    def add(self, gpus: Iterable[GpuReading], jobs: Iterable[Job], nodes: Sequence[NodeRow] = ()) -> None:
        """Count the time since each GPU's previous reading for the job that held it throughout.

        Args:
            gpus: Readings, new or repeated.
            jobs: Resolve pods to jobs.
            nodes: Name a GPU's holders if its source does not.
        """
        owner = _PodOwner(jobs)
        for gpu in gpus:
            if gpu.utilisation is None:
                continue
            holders = frozenset(holders_of(gpu, nodes))
            at, before = self._last.pop(gpu.key, (gpu.read_at, holders))
            self._last[gpu.key] = max(at, gpu.read_at), holders
            self.first_at = min(self.first_at or gpu.read_at, gpu.read_at)
            self.last_at = max(self.last_at or gpu.read_at, gpu.read_at)
            took = gpu.read_at - at
            if took.total_seconds() > 0 and took <= LONGEST_GAP:
                seconds = took.total_seconds()
                self._observed_s[gpu.key] = self._observed_s.get(gpu.key, 0.0) + seconds
                if holders and holders == before:
                    self._count(gpu, holders, seconds / 3600, owner)
        _shrink(self._last, MAX_GPUS)
        _shrink(self._observed_s, MAX_GPUS)
        _shrink(self._hours, MOST_JOBS)

    def _count(
        self, gpu: GpuReading, holders: frozenset[PodContainer], hours: float, owner: _PodOwner
    ) -> None:
        # Pods that share a GPU get equal parts.
        share = hours / len(holders)
        is_idle = gpu.utilisation is not None and gpu.utilisation < IDLE_PERCENT
        for holder in holders:
            key = _key(owner.usage(holder))
            observed, idle = self._hours.pop(key, (0.0, 0.0))
            self._hours[key] = observed + share, idle + share * is_idle

    def hours(self) -> Mapping[_Key, tuple[float, float]]:
        """Return the observed and the idle GPU-hours by job."""
        return self._hours


def _shrink(kept: dict[Any, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]


def held_nodes(jobs: Iterable[Job], nodes: Iterable[NodeRow]) -> list[str]:
    """Return the names of the nodes whose GPUs these jobs hold."""
    held = {each.node for job in jobs for each in job.instances if each.gpus}
    return [node.name for node in nodes if node.name in held and node.gpus_allocated]


def usage_by_user(
    jobs: Sequence[Job],
    gpus: Iterable[GpuReading],
    ledger: IdleLedger,
    nodes: Sequence[NodeRow] = (),
) -> tuple[UserUsage, ...]:
    """Return the GPUs that each user's jobs hold, wait for and leave idle; most idle hours first.

    Args:
        jobs: The jobs to report.
        gpus: The newest readings of the observed GPUs.
        ledger: The observations so far.
        nodes: Name a GPU's holders if its source does not.
    """
    seen = _seen_now(jobs, gpus, nodes)
    found: dict[str, list[JobUsage]] = {}
    for job in jobs:
        usage = _usage_of(job)
        observed, idle = ledger.hours().get(_key(usage), (0.0, 0.0))
        requested = job.gpus_allocated + job.gpus_waiting
        if not (requested or observed):
            continue
        gpus_seen, gpus_idle = seen.get(_key(usage), (0, 0))
        found.setdefault(usage.user, []).append(
            replace(
                usage,
                gpus_held=job.gpus_allocated,
                gpus_requested=requested,
                gpus_seen=gpus_seen,
                gpus_idle=gpus_idle if gpus_seen else None,
                observed_hours=observed,
                idle_hours=idle if observed else None,
            )
        )
    users = [
        UserUsage(_sum(user, usages), tuple(sorted(usages, key=_most_idle))) for user, usages in found.items()
    ]
    return tuple(sorted(users, key=lambda each: _most_idle(each.total)))


def _seen_now(
    jobs: Sequence[Job], gpus: Iterable[GpuReading], nodes: Sequence[NodeRow]
) -> dict[_Key, tuple[int, int]]:
    owner = _PodOwner(jobs)
    found: dict[_Key, tuple[int, int]] = {}
    for gpu in gpus:
        if gpu.utilisation is None:
            continue
        for key in {_key(owner.usage(holder)) for holder in holders_of(gpu, nodes)}:
            seen, idle = found.get(key, (0, 0))
            found[key] = seen + 1, idle + (gpu.utilisation < IDLE_PERCENT)
    return found


def _sum(user: str, usages: Sequence[JobUsage]) -> JobUsage:
    idle_now = [each.gpus_idle for each in usages if each.gpus_idle is not None]
    idle_hours = [each.idle_hours for each in usages if each.idle_hours is not None]
    return JobUsage(
        user,
        gpus_held=sum(each.gpus_held for each in usages),
        gpus_requested=sum(each.gpus_requested for each in usages),
        gpus_seen=sum(each.gpus_seen for each in usages),
        gpus_idle=sum(idle_now) if idle_now else None,
        observed_hours=sum(each.observed_hours for each in usages),
        idle_hours=sum(idle_hours) if idle_hours else None,
    )


def _most_idle(usage: JobUsage) -> tuple[float, int, int, str, str]:
    idle_hours, gpus_idle = usage.idle_hours or 0.0, usage.gpus_idle or 0
    return -idle_hours, -gpus_idle, -usage.gpus_held, usage.user, usage.job


def format_observed(ledger: IdleLedger) -> str:
    """Format the observed time: `12m since 14:02 CET`; empty if nothing was observed."""
    if ledger.first_at is None or not ledger.observed_s:
        return ""
    return f"{age(ledger.observed_s)} since {ledger.first_at.astimezone():%H:%M %Z}"


def message_to_owner(usage: JobUsage, jobs: Sequence[JobUsage] = (), observed: str = "") -> str:
    """Return a text to send to the owner of GPUs: observations only, and a question.

    Args:
        usage: One job, or a user's total.
        jobs: The jobs of a user's total.
        observed: The observed time; see `format_observed`.
    """
    gpus = plural(usage.gpus_held, "GPU")
    if usage.job:
        holder, it = f"{usage.job} in namespace {usage.namespace} holds {gpus}", "it uses"
        question = "Does it still need them?"
    else:
        names = [each.job for each in jobs if each.gpus_held]
        listed = f" ({', '.join(names[:MOST_NAMES])}{', …' * (len(names) > MOST_NAMES)})" if names else ""
        holder, it = (
            f"your {plural(len(names), 'job')}{listed} hold{'s' * (len(names) == 1)} {gpus}",
            "they use",
        )
        question = "Do they still need them?"
    seen = []
    if usage.gpus_idle is not None:
        seen.append(f"{usage.gpus_idle} of {usage.gpus_seen} seen now are idle")
    if usage.idle_hours is not None and observed:
        hours = f"{_hours(usage.idle_hours)} of {_hours(usage.observed_hours)} GPU-hours"
        seen.append(f"over {observed} {hours} were idle (below {IDLE_PERCENT:.0f} % utilisation)")
    if not seen:
        return f"Hi {usage.user}, {holder}; whether {it} them is not known. {question}"
    return f"Hi {usage.user}, {holder}; {', and '.join(seen)}. {question}"


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 0.95 else f"{hours:.2f}"


def format_hours(hours: float | None) -> str:
    """Format GPU-hours: `3.2`, `0.25`; a dash if nothing was observed."""
    return NOTHING if hours is None else _hours(hours)
