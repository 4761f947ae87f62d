"""Which of the jobs the list shows: mine or all, those that need somebody, and the old ones or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from k8s.snapshot import Job
from k8s.status import Status
from tui.options import FINISHED_DAYS, login_name

_FAULTS = (Status.FAILED, Status.RESTARTING, Status.UNKNOWN)
_AT_REST = (Status.SUCCEEDED, Status.SUSPENDED)


@dataclass(frozen=True, slots=True)
class FilteredJobs:
    """The jobs that are shown, and what becomes of the others."""

    jobs: Sequence[Job]
    mine: int
    """How many of all are known to be the user's."""
    is_mine: bool
    """Only those are shown: it was asked for, and there are any."""
    older: int
    """How many are hidden because they finished long ago."""


def filter_jobs(
    jobs: Sequence[Job],
    users: Iterable[str],
    now: datetime,
    *,
    only_mine: bool = False,
    only_faults: bool = False,
    with_older: bool = False,
    finished_days: float = FINISHED_DAYS,
) -> FilteredJobs:
    """Choose what is shown.

    Args:
        jobs: All of them.
        users: The names by which the user goes; see `own_names`.
        now: By the cluster's clock.
        only_mine: Leave out other people's, unless none is known to be the user's.
        only_faults: Leave out what needs nobody.
        with_older: Show also those that finished long ago.
        finished_days: How long ago that is.
    """
    names = frozenset(users)
    mine = [job for job in jobs if job.user in names]
    is_mine = only_mine and bool(mine)
    shown: Sequence[Job] = mine if is_mine else jobs
    if only_faults:
        shown = [job for job in shown if is_fault(job)]
    if with_older:
        return FilteredJobs(shown, len(mine), is_mine, 0)
    oldest = now - timedelta(days=finished_days)
    young = [job for job in shown if not job.status.is_final or _ended(job, now) >= oldest]
    return FilteredJobs(young, len(mine), is_mine, len(shown) - len(young))


def own_names(user: str) -> frozenset[str]:
    """Return the names by which the user goes: those of the login to the cluster, and of the one here.

    Args:
        user: As the cluster or the kubeconfig calls them: `li`, `li@lab.org`, `oidc:li`.
    """
    names = {user, user.partition("@")[0], user.rpartition(":")[2].partition("@")[0]}
    return frozenset({*names, login_name()} - {""})


def is_fault(job: Job) -> bool:
    """Tell whether a job needs somebody: it failed, restarts, is silent, or has a reason not to go on."""
    return job.status in _FAULTS or is_loud(job)


def is_loud(job: Job) -> bool:
    """Tell whether a job has a reason that has to be read."""
    return bool(job.reason) and job.status not in _AT_REST


def silent_ranks(job: Job) -> int:
    """Return how many ranks are on nodes that do not answer."""
    return sum(len(each.ranks) for each in job.instances if each.pod and each.status is Status.UNKNOWN)


def _ended(job: Job, now: datetime) -> datetime:
    """Return when a job finished, as far as it or its pods tell; else that it just did."""
    if job.finished is not None:
        return job.finished
    return max((each.finished for each in job.instances if each.finished is not None), default=now)


def gpu_totals(jobs: Iterable[Job]) -> tuple[int, int]:
    """Return how many GPUs these jobs hold, and how many more they request and wait for."""
    held = waiting = 0
    for job in jobs:
        held += job.gpus_allocated
        waiting += job.gpus_waiting
    return held, waiting
