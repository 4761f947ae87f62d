"""Filters of the job list: own jobs, jobs that need attention, old jobs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from k8s.snapshot import NO_SIGNS, Job, LifeSigns
from k8s.status import BEING_READ, Status
from tui.settings.options import FINISHED_DAYS, local_user

_FAULTS = (Status.FAILED, Status.RESTARTING, Status.UNKNOWN)
_AT_REST = (Status.SUCCEEDED, Status.SUSPENDED)


class FilteredJobs(msgspec.Struct, frozen=True):
    """The visible jobs, and counts of the others."""

    jobs: Sequence[Job]
    mine: int
    is_mine: bool
    """Only the user's jobs are shown: it was requested, and there are some."""
    older: int
    """Number of jobs hidden because they finished long ago."""


def filter_jobs(
    jobs: Sequence[Job],
    users: Iterable[str],
    now: datetime,
    *,
    signs: Callable[[Job], LifeSigns] = lambda _job: NO_SIGNS,
    only_mine: bool = False,
    only_faults: bool = False,
    with_older: bool = False,
    finished_days: float = FINISHED_DAYS,
) -> FilteredJobs:
    """Return the jobs that pass the filters.

    Args:
        jobs: All jobs.
        users: The user's names; see `own_names`.
        now: The cluster's time.
        signs: Returns the trouble in the output of a job.
        only_mine: Leave out other users' jobs, unless none is known to be the user's.
        only_faults: Leave out jobs that need no attention.
        with_older: Include jobs that finished long ago.
        finished_days: Age at which a finished job is old.
    """
    names = frozenset(users)
    mine = [job for job in jobs if job.user in names]
    is_mine = only_mine and bool(mine)
    shown: Sequence[Job] = mine if is_mine else jobs
    if only_faults:
        shown = [job for job in shown if is_fault(job, signs(job))]
    if with_older:
        return FilteredJobs(shown, len(mine), is_mine, 0)
    oldest = now - timedelta(days=finished_days)
    # Without a known end the job counts as just finished, so that it is not hidden.
    young = [job for job in shown if not job.status.is_final or (job.finished or now) >= oldest]
    return FilteredJobs(young, len(mine), is_mine, len(shown) - len(young))


def own_names(user: str) -> frozenset[str]:
    """Return the user's names on the cluster and on this machine.

    Args:
        user: The name in the cluster or kubeconfig: `li`, `li@lab.org`, `oidc:li`.
    """
    names = {user, user.partition("@")[0], user.rpartition(":")[2].partition("@")[0]}
    return frozenset({*names, local_user()} - {""})


class _Everyone:
    def __contains__(self, _name: object) -> bool:
        return True


def everyone(_user: str) -> Container[str]:
    """Return names among which everybody's are, in place of `own_names`."""
    return _Everyone()


def is_fault(job: Job, signs: LifeSigns) -> bool:
    """Return True if a job needs attention: it failed, restarts, its output shows trouble, or it is stuck."""
    return (job.status in _FAULTS and job.reason != BEING_READ) or is_loud(job, signs)


def is_loud(job: Job, signs: LifeSigns) -> bool:
    """Return True if a job's reason must be visible, or the trouble of a running one."""
    return (job.reason not in ("", BEING_READ) and job.status not in _AT_REST) or signs.is_trouble


def silent_ranks(job: Job) -> int:
    """Return the number of ranks on nodes that do not respond."""
    return sum(len(each.ranks) for each in job.instances if each.pod and each.status is Status.UNKNOWN)


def gpu_totals(jobs: Iterable[Job]) -> tuple[int, int]:
    """Return the GPUs that these jobs hold, and those that they still wait for."""
    held = waiting = 0
    for job in jobs:
        held += job.gpus_allocated
        waiting += job.gpus_waiting
    return held, waiting
