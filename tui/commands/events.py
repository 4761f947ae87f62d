"""`events`: list the events of a job and its dependents, oldest first."""

from __future__ import annotations

import argparse
from contextlib import suppress
from datetime import datetime

import msgspec

from k8s.client.client import Client
from k8s.models import Event, convert
from k8s.models.resources import EVENTS
from tui.commands.support.connect import cluster, read_feed, server_clock
from tui.commands.support.job_name import add_job, find_job, titles
from tui.commands.support.output import OutputColumn, add_format, write_object, write_stderr, write_table
from tui.commands.support.values import Values, seconds_since, timestamp
from tui.jobs.events import FoldedEvent, JobEventFilter, event_order, fold_job_events, select_job_events
from tui.options import ConsoleOptions
from tui.text.format import NOTHING, Clock

COLUMNS = (
    OutputColumn("AGE", "right"),
    OutputColumn("TYPE"),
    OutputColumn("ABOUT"),
    OutputColumn("REASON"),
    OutputColumn("COUNT", "right"),
    OutputColumn("MESSAGE"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the events of a job."""
    async with cluster(options) as client:
        snapshot, feed = await read_feed(options, client)
        job = find_job(snapshot, flags.job, flags.job_type)
        relatives = JobEventFilter(job, feed.pods, snapshot.jobs)
        events = await _fetch_events(client, job.ref.namespace)
        clock = server_clock(client)
    if flags.output in ("json", "yaml"):
        found = sorted(
            select_job_events(events, relatives, job.created), key=lambda each: event_order(each[1])
        )
        write_object({"items": [_values(*each, clock.now) for each in found]}, flags.output)
    elif folded := fold_job_events(events, relatives, job.created):
        write_table(COLUMNS, [_row(each, clock) for each in reversed(folded)])
    else:
        write_stderr(f"No events for {titles([job.ref])}; clusters keep them for about an hour.")
    return 0


async def _fetch_events(client: Client, namespace: str) -> list[Event]:
    found = []
    for obj in await client.list(EVENTS, namespace):
        with suppress(msgspec.ValidationError):
            found.append(convert(obj, Event))
    return found


def _row(folded: FoldedEvent, clock: Clock) -> tuple[str, ...]:
    event = folded.newest
    return (
        clock.age(event.at),
        event.type or NOTHING,
        folded.about,
        event.reason or NOTHING,
        str(folded.count),
        event.message or NOTHING,
    )


def _values(about: str, event: Event, now: datetime) -> Values:
    return {
        "at": timestamp(event.at),
        "age_s": seconds_since(event.at, now),
        "type": event.type or "",
        "reason": event.reason or "",
        "about": about,
        "kind": event.involved_object.kind,
        "name": event.involved_object.name,
        "count": event.count or 1,
        "message": event.message or "",
    }
