"""`list`: list jobs of every kind, newest first."""

from __future__ import annotations

import argparse

from tui.commands.support.connect import cluster, read_feed, server_clock
from tui.commands.support.job_name import add_type, jobs_of_type
from tui.commands.support.output import FORMATS, add_format, write, write_list, write_stderr
from tui.commands.support.partial import no_jobs, write_items, write_missing
from tui.options import ConsoleOptions
from tui.tables.column import output_columns, values_of
from tui.tables.jobs import COLUMNS, JobsNow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `-o` and the job kind."""
    add_format(parser, (*FORMATS, "name"))
    add_type(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the jobs."""
    async with cluster(options) as client:
        snapshot, feed = await read_feed(options, client)
        snapshot = jobs_of_type(snapshot, flags.job_type)
        if flags.output in ("wide", "json", "yaml"):
            snapshot = jobs_of_type(await feed.explain_once(snapshot.jobs), flags.job_type)
            from tui.commands.support.life import read_jobs_now  # slow to import

            now = await read_jobs_now(options, client, snapshot.jobs)
        else:
            now = JobsNow(server_clock(client))
    if flags.output in ("json", "yaml"):
        jobs = [values_of(job, now, COLUMNS) for job in snapshot.jobs]
        write_items(jobs, snapshot.missing_jobs, flags.output)
    elif not snapshot.jobs:
        write_stderr(no_jobs(snapshot, flags.job_type))
    elif flags.output == "name":
        for job in snapshot.jobs:
            write(f"{job.ref.kind}/{job.ref.name}")
    else:
        write_list(
            output_columns(COLUMNS, without=("namespace",) if snapshot.namespace else ()),
            snapshot.jobs,
            now,
            is_wide=flags.output == "wide",
        )
    write_missing(snapshot.missing_jobs)
    return 0
