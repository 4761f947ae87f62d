"""`events`: what happened to a job and its pods, oldest first."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import msgspec

from k8s.client import Client
from k8s.models import Event, convert
from k8s.resources import EVENTS
from k8s.snapshot import Job
from tui.commands.connect import cluster, read_jobs, server_clock
from tui.commands.errors import say
from tui.commands.output import Column, add_format, write_object, write_table
from tui.commands.values import Values, seconds_since, timestamp
from tui.commands.which_job import NAME_HELP, find_job, titles
from tui.format import NOTHING, Clock
from tui.settings import ConsoleOptions

COLUMNS = (
    Column("AGE", "right"),
    Column("TYPE"),
    Column("ABOUT"),
    Column("REASON"),
    Column("COUNT", "right"),
    Column("MESSAGE"),
)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command take a job."""
    parser.add_argument("job", metavar="JOB", help=NAME_HELP)
    add_format(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the events of a job."""
    async with cluster(options) as client:
        job = find_job(await read_jobs(options, client), flags.job)
        events = await fetch_events(client, job)
        clock = server_clock(client)
    if flags.output in ("json", "yaml"):
        write_object({"items": [_values(event, clock.now) for event in events]}, flags.output)
    elif not events:
        say(f"No events of {titles([job.ref])}; clusters forget them after an hour.")
    else:
        write_table(COLUMNS, [_row(event, clock) for event in events])
    return 0


async def fetch_events(client: Client, job: Job) -> list[Event]:
    """Return the events of a job and of its pods, oldest first; those of an earlier namesake are left out."""
    names = {(job.ref.kind, job.ref.name)} | {("Pod", each.pod) for each in job.instances if each.pod}
    began = job.created or _LONG_AGO
    found = []
    for obj in await client.list(EVENTS, job.ref.namespace):
        try:
            event: Event = convert(obj, Event)
        except msgspec.ValidationError:
            continue
        about = event.involved_object
        if (about.kind, about.name) in names and (event.at or began) >= began:
            found.append(event)
    return sorted(found, key=_order)


def _order(event: Event) -> tuple[datetime, str]:
    """Sort by the second, for some events know no more, and within it by when they were first seen.

    Source: client-go `makeEvent`: a name ends in the time in ns, 16 hexadecimal digits.
    """
    return (event.at or _LONG_AGO).replace(microsecond=0), event.metadata.name.rpartition(".")[2]


def _row(event: Event, clock: Clock) -> tuple[str, ...]:
    about = event.involved_object
    return (
        clock.age(event.at),
        event.type or NOTHING,
        f"{about.kind}/{about.name}",
        event.reason or NOTHING,
        str(event.count or 1),
        event.message or NOTHING,
    )


def _values(event: Event, now: datetime) -> Values:
    return {
        "at": timestamp(event.at),
        "age_s": seconds_since(event.at, now),
        "type": event.type or "",
        "reason": event.reason or "",
        "kind": event.involved_object.kind,
        "name": event.involved_object.name,
        "count": event.count or 1,
        "message": event.message or "",
    }
