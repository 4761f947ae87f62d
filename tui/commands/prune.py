"""`prune`: delete jobs that finished long ago; waiting and running jobs are never touched."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import datetime

from k8s.client.server_version import fetch_username
from k8s.kinds import KINDS, kind_of
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from tui.commands.logs import seconds
from tui.commands.support.confirm import add_yes, check_can_confirm, delete_each, is_confirmed
from tui.commands.support.connect import check_may_change, cluster, read_jobs, server_clock
from tui.commands.support.output import OutputColumn, add_format, write_stderr, write_table
from tui.commands.support.partial import write_items, write_missing
from tui.commands.support.values import Values, job_values, seconds_since, timestamp
from tui.jobs.delete_plan import delete_plan
from tui.options import ConsoleOptions, local_user
from tui.text.format import NOTHING, age, plural

ENDED = (Status.SUCCEEDED, Status.FAILED)
COLUMNS = (
    OutputColumn("NAMESPACE"),
    OutputColumn("NAME"),
    OutputColumn("KIND"),
    OutputColumn("STATUS"),
    OutputColumn("ENDED", "right"),
    OutputColumn("USER"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select jobs."""
    add = parser.add_argument
    add(
        "--older-than",
        type=seconds,
        required=True,
        metavar="TIME",
        help="only jobs that ended longer ago, e.g. 7d or 12h",
    )
    add(
        "--status",
        type=_statuses,
        default=ENDED,
        metavar="STATUS",
        help=f"only jobs of this status: {' or '.join(ENDED)} (default both)",
    )
    add("--all-users", action="store_true", help="jobs of all users, not only yours")
    add("--dry-run", action="store_true", help="list the jobs, delete nothing")
    add_yes(parser)
    add_format(parser, ("table", "json", "yaml"))


def _statuses(text: str) -> tuple[Status, ...]:
    by_word = {status.lower(): status for status in ENDED}
    chosen = [by_word.get(word.strip().lower()) for word in text.split(",")]
    found = tuple(status for status in chosen if status is not None)
    if len(found) < len(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} is not {' or '.join(ENDED)}; separate both with a comma")
    return found


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """List the jobs that finished long ago, ask for confirmation and delete them."""
    if not flags.dry_run:
        check_may_change(options, "prune jobs")
        check_can_confirm(flags, "delete")
    async with cluster(options) as client:
        snapshot = await read_jobs(options, client)
        now = server_clock(client).now
        ended = _ended(snapshot, flags.status)
        old = [job for job in ended if _is_old(job, now, flags.older_than)]
        users = {await fetch_username(client), local_user()} - {""}
        jobs = old if flags.all_users else [job for job in old if job.user in users]
        write_missing(snapshot.missing_jobs)
        _write_retained(ended, old, jobs)
        _write(jobs, snapshot, now, flags.output)
        if flags.dry_run or not jobs:
            return 0
        plan = delete_plan(snapshot, (job.ref for job in jobs))
        if not is_confirmed(flags, plan.question, plan.word):
            return 1
        failed = await delete_each(client, plan, tell=write_stderr)
    return 1 if failed else 0


def _ended(snapshot: ClusterSnapshot, statuses: Sequence[Status]) -> list[Job]:
    # Only for a job's own object is its end certain; other rows are derived from pods.
    return [job for job in snapshot.jobs if job.status in statuses and kind_of(job.ref) in KINDS]


def _is_old(job: Job, now: datetime, older_than_s: int) -> bool:
    """Return True if the job finished that long ago; False if the time is unknown."""
    since_s = seconds_since(ended_at(job), now)
    return since_s is not None and since_s >= older_than_s


def ended_at(job: Job) -> datetime | None:
    """Return the time a job finished, from its object or else from its last pod; None if unknown."""
    ends = [each.finished for each in job.instances if each.finished is not None]
    return job.finished or max(ends, default=None)


def _write_retained(ended: Iterable[Job], old: Sequence[Job], jobs: Sequence[Job]) -> None:
    if undated := [job for job in ended if ended_at(job) is None]:
        write_stderr(f"Kept: {plural(len(undated), 'job')} without a known end.")
    if others := len(old) - len(jobs):
        write_stderr(f"Kept: {plural(others, 'job')} of other users; see --all-users.")


def _write(jobs: Sequence[Job], snapshot: ClusterSnapshot, now: datetime, output: str) -> None:
    if output != "table":
        write_items([_values(job, now) for job in jobs], snapshot.missing_jobs, output)
    elif not jobs:
        where = f"namespace {snapshot.namespace}" if snapshot.namespace else "any namespace"
        write_stderr(f"Nothing to prune in {where}.")
    else:
        skipped = 1 if snapshot.namespace else 0
        write_table(COLUMNS[skipped:], [_row(job, now)[skipped:] for job in jobs])


def _values(job: Job, now: datetime) -> Values:
    return {**job_values(job, now), "finished": timestamp(ended_at(job))}


def _row(job: Job, now: datetime) -> tuple[str, ...]:
    return (
        job.ref.namespace,
        job.ref.name,
        job.ref.kind,
        str(job.status),
        age(seconds_since(ended_at(job), now)),
        job.user or NOTHING,
    )
