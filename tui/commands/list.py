"""`list`: list jobs of every kind, newest first."""

from __future__ import annotations

import argparse

from k8s.kinds import KINDS
from k8s.snapshot import Job
from tui.commands.support.connect import cluster, read_feed, server_clock
from tui.commands.support.job_name import add_type, jobs_of_type
from tui.commands.support.kind_words import words_of
from tui.commands.support.output import FORMATS, OutputColumn, add_format, write, write_stderr, write_table
from tui.commands.support.partial import no_jobs, write_items, write_missing
from tui.commands.support.values import duration_text, job_values
from tui.options import ConsoleOptions
from tui.text.format import NOTHING, Clock

_SHORT_KINDS = {kind.resource.kind: words_of(kind)[0] for kind in reversed(KINDS)}
COLUMNS = (
    OutputColumn("NAMESPACE"),
    OutputColumn("NAME"),
    OutputColumn("KIND", narrow_cell=lambda kind: _SHORT_KINDS.get(kind, kind), is_optional=True),
    OutputColumn("STATUS"),
    OutputColumn("PODS", "right"),
    OutputColumn("GPU(Requested)", "right", narrow_title="GPU"),
    OutputColumn("GPU(Allocated)", "right", narrow_title="HELD"),
    OutputColumn("DURATION", "right", narrow_title="TIME"),
    OutputColumn("NODES", is_optional=True),
    OutputColumn("USER", is_wide=True),
    OutputColumn("PRIORITY", is_wide=True),
    OutputColumn("AGE", "right", is_wide=True),
    OutputColumn("REASON", is_wide=True),
)


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
        clock = server_clock(client)
    if flags.output in ("json", "yaml"):
        jobs = [job_values(job, clock.now) for job in snapshot.jobs]
        write_items(jobs, snapshot.missing_jobs, flags.output)
    elif not snapshot.jobs:
        write_stderr(no_jobs(snapshot, flags.job_type))
    elif flags.output == "name":
        for job in snapshot.jobs:
            write(f"{job.ref.kind}/{job.ref.name}")
    else:
        skipped = 1 if snapshot.namespace else 0
        rows = [_row(job, clock)[skipped:] for job in snapshot.jobs]
        write_table(COLUMNS[skipped:], rows, is_wide=flags.output == "wide")
    write_missing(snapshot.missing_jobs)
    return 0


def _row(job: Job, clock: Clock) -> tuple[str, ...]:
    return (
        job.ref.namespace,
        job.ref.name,
        job.ref.kind,
        str(job.status),
        f"{job.instances_running}/{len(job.instances)}",
        str(job.gpus_requested),
        str(job.gpus_allocated),
        duration_text(job, clock.now),
        ",".join(job.nodes) or NOTHING,
        job.user or NOTHING,
        job.priority or NOTHING,
        clock.age(job.created),
        job.reason or NOTHING,
    )
