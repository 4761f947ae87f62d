"""`events`: list the events of a job and its dependents, oldest first."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from k8s.models.event import Event
from k8s.text.errors import NotFound, Unreachable
from tui.commands.support.connect import cluster, read_cluster, server_clock
from tui.commands.support.job_name import add_job, find_job, titles
from tui.commands.support.output import add_format, write_list, write_object, write_stderr
from tui.runs.journal.kept_facts import kept_events
from tui.runs.store import RunStore
from tui.session.last_facts import fetch_events
from tui.settings.options import ConsoleOptions
from tui.tables.column import Values, output_columns, values_of
from tui.tables.events import COLUMNS, JobEventFilter, event_order, fold, fold_named_events, select_job_events
from tui.text.format import Clock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the events of a job, or those that were kept of one that is gone."""
    async with cluster(options, is_brief=True) as client:
        try:
            snapshot, reasons = await read_cluster(options, client, is_narrow=True, has_nodes=False)
            job = find_job(snapshot, flags.job, flags.job_type)
        except (NotFound, Unreachable) as error:
            from tui.commands.support.past_run import find_past  # slow to import

            past = await find_past(options, client, flags.job, flags.job_type, error, "events")
            if past is None:
                raise
            found = past.events
        else:
            relatives = JobEventFilter(job, reasons.mirror.pods, snapshot.jobs)
            events = await fetch_events(client, job.ref.namespace)
            # The cluster forgets the older ones.
            kept = kept_events(RunStore(options.state_folder, options.history).journal, job.uid)
            live = list(select_job_events(events, relatives, job.created))
            uids = {event.metadata.uid for _, event in live}
            found = [*(each for each in kept if each[1].metadata.uid not in uids), *live]
        clock = server_clock(client)
    if flags.output in ("json", "yaml"):
        write_object({"items": event_values(found, clock)}, flags.output)
    elif found:
        folded = list(reversed(fold_named_events(found)))
        write_list(output_columns(COLUMNS), folded, clock, is_wide=flags.output == "wide")
    else:
        write_stderr(f"No events for {titles([job.ref])}; clusters keep them for about an hour.")
    return 0


def event_values(found: Iterable[tuple[str, Event]], clock: Clock) -> list[Values]:
    """Return events as JSON, the oldest first."""
    ordered = sorted(found, key=lambda each: event_order(each[1]))
    return [values_of(fold([each]), clock, COLUMNS) for each in ordered]
