"""`list`: list jobs of every kind, newest first."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from k8s.snapshot import Job
from tui.commands.support.connect import cluster, read_cluster, read_mirror, server_clock
from tui.commands.support.job_name import add_type, jobs_of_type
from tui.commands.support.listing import ItemList, add_list_flags
from tui.commands.support.output import no_jobs, write_missing
from tui.settings.options import ConsoleOptions, OwnColumn
from tui.settings.served_kinds import open_mirror
from tui.tables.column import configured_columns, output_columns
from tui.tables.jobs import COLUMNS, JobsNow
from tui.text.format import in_namespace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a list and the job kind."""
    add_list_flags(parser, COLUMNS)
    add_type(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the jobs."""
    listing = job_listing(flags, options.columns.get("jobs", ()))
    async with cluster(options, is_brief=not flags.watch) as client:
        if listing.uses("reason"):
            snapshot, reasons = await read_cluster(options, client)
            mirror = reasons.mirror
            of_type = jobs_of_type(snapshot, flags.job_type).jobs
            snapshot = jobs_of_type(await reasons.explain_once(of_type), flags.job_type)
        else:
            mirror = open_mirror(options, client, is_narrow=True)
            snapshot = jobs_of_type(await read_mirror(mirror), flags.job_type)
        now = JobsNow(server_clock(client))
        if listing.uses("loss", "best_loss", "silent_s", "reason"):
            from tui.commands.support.life import read_life  # slow to import
            from tui.runs.store import RunStore

            runs = RunStore(options.state_folder, options.history)
            snapshot, now = await read_life(mirror, snapshot.jobs, runs)
            snapshot = jobs_of_type(snapshot, flags.job_type)
        jobs = listing.select(snapshot.jobs, now)
        columns = output_columns(COLUMNS, without=("namespace",) if snapshot.namespace else ())
        if listing.form == "wide" and listing.chosen:
            columns = list(listing.chosen)
        if jobs or listing.is_document:
            listing.write(jobs, now, columns, snapshot.missing_jobs)
        else:
            listing.write_none("job", in_namespace(snapshot.namespace), no_jobs(snapshot, flags.job_type))
        write_missing(snapshot.missing_jobs)
        if flags.watch:
            await listing.watch(
                mirror,
                jobs,
                lambda: JobsNow(server_clock(client)),
                columns,
                lambda newest: jobs_of_type(newest, flags.job_type).jobs,
                lambda job: job.uid,
            )
    return 0


def job_listing(
    flags: argparse.Namespace, chosen: tuple[str | OwnColumn, ...] = ()
) -> ItemList[Job, JobsNow]:
    """Return the list of jobs that the flags ask for, wide with the columns that config.yaml chooses."""
    return ItemList(
        flags,
        COLUMNS,
        name_of=lambda job: f"{job.ref.kind}/{job.ref.name}",
        labels_of=lambda job: job.labels,
        chosen=[replace(column, printed="table") for column in configured_columns(COLUMNS, chosen)],
    )
