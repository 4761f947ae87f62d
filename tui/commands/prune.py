"""`prune`: delete jobs that finished long ago; waiting and running jobs are never touched."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from k8s.client.client import Client, fetch_username
from k8s.jobs.reader_pod import delete_ended_readers
from k8s.kinds import KINDS, kind_of
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.commands.support.confirm import PromptUi
from tui.commands.support.connect import check_may_change, cluster, read_cluster, server_clock
from tui.commands.support.output import (
    add_format,
    add_yes,
    check_can_confirm,
    write_items,
    write_list,
    write_missing,
    write_stderr,
)
from tui.commands.support.parser import seconds
from tui.runs.run_records import NodesAndPods
from tui.runs.store import RunStore
from tui.session.last_facts import record_runs
from tui.settings.options import ConsoleOptions, local_user
from tui.tables.column import Cell, ListColumn, pick, values_of
from tui.tables.jobs import COLUMNS as JOB_COLUMNS
from tui.tables.jobs import JobsNow
from tui.text.change_plans import delete_plan
from tui.text.format import age, plural, seconds_since, timestamp
from tui.verbs.changes import delete

ENDED = (Status.SUCCEEDED, Status.FAILED)


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
        snapshot, reasons = await read_cluster(options, client)
        if not flags.dry_run:
            await _delete_readers(client, snapshot.namespace)
        clock = server_clock(client)
        ended = _ended(snapshot, flags.status)
        old = [job for job in ended if _is_old(job, clock.now, flags.older_than)]
        users = {await fetch_username(client), local_user()} - {""}
        jobs = old if flags.all_users else [job for job in old if job.user in users]
        write_missing(snapshot.missing_jobs)
        _write_retained(ended, old, jobs)
        _write(jobs, snapshot, JobsNow(clock), flags.output)
        if flags.dry_run or not jobs:
            return 0
        plan = delete_plan(snapshot, (job.ref for job in jobs))
        runs = RunStore(options.state_folder, options.history)
        place = NodesAndPods(snapshot.nodes, reasons.mirror.pods)
        ui = PromptUi(flags, is_listed=True)
        deleted = await delete(client, plan, ui, lambda jobs: record_runs(client, jobs, runs, place))
    return 1 if deleted is None or ui.has_failed else 0


async def _delete_readers(client: Client, namespace: str) -> None:
    # Remains of a killed `curves --reader-pod`; the pods have ended, so nobody loses anything.
    with suppress(KubeError):
        if names := await delete_ended_readers(client, namespace):
            write_stderr(f"Deleted ended reader pods: {', '.join(map(sanitize, names))}.")


def _ended(snapshot: ClusterSnapshot, statuses: Sequence[Status]) -> list[Job]:
    # Only for a job's own object is its end certain; other rows are derived from pods.
    return [job for job in snapshot.jobs if job.status in statuses and kind_of(job.ref) in KINDS]


def _is_old(job: Job, now: datetime, older_than_s: int) -> bool:
    since_s = seconds_since(job.finished, now)
    return since_s is not None and since_s >= older_than_s


def _write_retained(ended: Iterable[Job], old: Sequence[Job], jobs: Sequence[Job]) -> None:
    if undated := [job for job in ended if job.finished is None]:
        write_stderr(f"Kept: {plural(len(undated), 'job')} without a known end.")
    if others := len(old) - len(jobs):
        write_stderr(f"Kept: {plural(others, 'job')} of other users; see --all-users.")


def _write(jobs: Sequence[Job], snapshot: ClusterSnapshot, now: JobsNow, output: str) -> None:
    if output != "table":
        items = [values_of(job, now, COLUMNS) for job in jobs]
        write_items(items, snapshot.missing_jobs, output)
    elif not jobs:
        where = f"namespace {snapshot.namespace}" if snapshot.namespace else "any namespace"
        write_stderr(f"Nothing to prune in {where}.")
    else:
        write_list(pick(COLUMNS, KEYS[bool(snapshot.namespace) :]), jobs, now, is_wide=False)


ENDED_COLUMN: ListColumn[Job, JobsNow] = ListColumn(
    "ended",
    "ENDED",
    align="right",
    cell=lambda job, now: Cell(age(seconds_since(job.finished, now.clock.now))),
    printed="table",
    values=lambda job, _: {"finished": timestamp(job.finished)},
)
COLUMNS = (*JOB_COLUMNS, ENDED_COLUMN)
KEYS = ("namespace", "name", "kind", "status", "ended", "user")
