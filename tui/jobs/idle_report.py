"""GPUs held, requested and idle by user and job. Pure.

Whether an unobserved GPU is idle is unknown: None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from k8s.snapshot import Job, NodeRow, shares_by_pod
from k8s.telemetry.gpu_warnings import IDLE_PERCENT
from k8s.telemetry.readings import GpuReading, holders_of
from tui.text.format import devices, plural

MOST_NAMES = 5


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
    shares_held: int = 0
    """Those of `gpus_held` that are parts of GPUs."""
    gpus_seen: int = 0
    gpus_idle: int | None = None
    """None if none of its GPUs is observed."""


@dataclass(frozen=True, slots=True)
class UserUsage:
    """GPU usage of one user, in total and by job."""

    total: JobUsage
    jobs: tuple[JobUsage, ...]


_Key = tuple[str, str, str, str]


def _usage_of(job: Job) -> JobUsage:
    return JobUsage(job.user or job.ref.namespace, job.ref.namespace, job.ref.name, job.ref.kind)


def _key(usage: JobUsage) -> _Key:
    return usage.user, usage.namespace, usage.kind, usage.job


def held_nodes(jobs: Iterable[Job], nodes: Iterable[NodeRow]) -> list[str]:
    """Return the names of the nodes whose GPUs these jobs hold."""
    held = {each.node for job in jobs for each in job.instances if each.gpus}
    return [node.name for node in nodes if node.name in held and node.gpus_allocated]


def usage_by_user(
    jobs: Sequence[Job], gpus: Iterable[GpuReading], nodes: Sequence[NodeRow] = ()
) -> tuple[UserUsage, ...]:
    """Return the GPUs that each user's jobs hold, wait for and leave idle; most idle GPUs first.

    Args:
        jobs: The jobs to report.
        gpus: The newest readings of the observed GPUs.
        nodes: Name a GPU's holders if its source does not.
    """
    seen, shares = _seen_now(jobs, gpus, nodes), shares_by_pod(nodes)
    found: dict[str, list[JobUsage]] = {}
    for job in jobs:
        usage, requested = _usage_of(job), job.gpus_allocated + job.gpus_waiting
        if not requested:
            continue
        gpus_seen, gpus_idle = seen.get(_key(usage), (0, 0))
        found.setdefault(usage.user, []).append(
            replace(
                usage,
                gpus_held=job.gpus_allocated,
                gpus_requested=requested,
                shares_held=sum(shares.get((job.ref.namespace, each.pod), 0) for each in job.instances),
                gpus_seen=gpus_seen,
                gpus_idle=gpus_idle if gpus_seen else None,
            )
        )
    users = [
        UserUsage(_sum(user, usages), tuple(sorted(usages, key=_most_idle))) for user, usages in found.items()
    ]
    return tuple(sorted(users, key=lambda each: _most_idle(each.total)))


def _seen_now(
    jobs: Sequence[Job], gpus: Iterable[GpuReading], nodes: Sequence[NodeRow]
) -> dict[_Key, tuple[int, int]]:
    owners = {
        (job.ref.namespace, each.pod): _key(_usage_of(job))
        for job in jobs
        for each in job.instances
        if each.pod
    }
    found: dict[_Key, tuple[int, int]] = {}
    for gpu in gpus:
        if gpu.utilisation is None:
            continue
        holders = ((holder.namespace, holder.pod) for holder in holders_of(gpu, nodes))
        for key in {owners[holder] for holder in holders if holder in owners}:
            seen, idle = found.get(key, (0, 0))
            found[key] = seen + 1, idle + (gpu.utilisation < IDLE_PERCENT)
    return found


def _sum(user: str, usages: Sequence[JobUsage]) -> JobUsage:
    idle_now = [each.gpus_idle for each in usages if each.gpus_idle is not None]
    return JobUsage(
        user,
        gpus_held=sum(each.gpus_held for each in usages),
        gpus_requested=sum(each.gpus_requested for each in usages),
        shares_held=sum(each.shares_held for each in usages),
        gpus_seen=sum(each.gpus_seen for each in usages),
        gpus_idle=sum(idle_now) if idle_now else None,
    )


def _most_idle(usage: JobUsage) -> tuple[int, int, str, str]:
    return -(usage.gpus_idle or 0), -usage.gpus_held, usage.user, usage.job


def message_to_owner(usage: JobUsage, jobs: Sequence[JobUsage] = ()) -> str:
    """Return a text to send to the owner of GPUs: observations only, and a question.

    Args:
        usage: One job, or a user's total.
        jobs: The jobs of a user's total.
    """
    gpus = devices(usage.gpus_held, usage.shares_held)
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
    if usage.gpus_idle is None:
        return f"Hi {usage.user}, {holder}; whether {it} them is not known. {question}"
    seen = f"{usage.gpus_idle} of {usage.gpus_seen} seen are idle now"
    return f"Hi {usage.user}, {holder}; {seen} (below {IDLE_PERCENT:.0f} % utilisation). {question}"
