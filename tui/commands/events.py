"""`events`: list the events of a job and its dependents, oldest first."""

from __future__ import annotations

import argparse
from contextlib import suppress

import msgspec

from k8s.client.client import Client
from k8s.models import convert
from k8s.models.event import Event
from k8s.models.resources import EVENTS
from tui.commands.support.connect import cluster, read_cluster, server_clock
from tui.commands.support.job_name import add_job, find_job, titles
from tui.commands.support.output import add_format, write_list, write_object, write_stderr
from tui.settings.options import ConsoleOptions
from tui.tables.column import output_columns, values_of
from tui.tables.events import COLUMNS, JobEventFilter, event_order, fold, fold_job_events, select_job_events


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the events of a job."""
    async with cluster(options, is_brief=True) as client:
        snapshot, reasons = await read_cluster(options, client, is_narrow=True, has_nodes=False)
        job = find_job(snapshot, flags.job, flags.job_type)
        relatives = JobEventFilter(job, reasons.mirror.pods, snapshot.jobs)
        events = await _fetch_events(client, job.ref.namespace)
        clock = server_clock(client)
    if flags.output in ("json", "yaml"):
        found = sorted(
            select_job_events(events, relatives, job.created), key=lambda each: event_order(each[1])
        )
        write_object({"items": [values_of(fold([each]), clock, COLUMNS) for each in found]}, flags.output)
    elif folded := fold_job_events(events, relatives, job.created):
        write_list(output_columns(COLUMNS), list(reversed(folded)), clock, is_wide=flags.output == "wide")
    else:
        write_stderr(f"No events for {titles([job.ref])}; clusters keep them for about an hour.")
    return 0


async def _fetch_events(client: Client, namespace: str) -> list[Event]:
    found = []
    for obj in await client.list(EVENTS, namespace):
        with suppress(msgspec.ValidationError):
            found.append(convert(obj, Event))
    return found
