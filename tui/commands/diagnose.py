"""`diagnose`: report which rank of a failed job failed first, or what each rank of a running job does."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.reasons.cause import Cause
from k8s.reasons.stacks import inspect_ranks
from k8s.text.errors import NotFound, Unreachable
from tui.commands.events import event_values
from tui.commands.support.connect import cluster, server_clock
from tui.commands.support.job_name import add_job
from tui.commands.support.output import add_format, write, write_fields, write_list, write_object
from tui.commands.why import answer_values, explain_job, pasteable, write_text
from tui.settings.options import ConsoleOptions
from tui.tables.column import output_columns
from tui.tables.events import COLUMNS, fold_named_events
from tui.text.format import Clock, number

if TYPE_CHECKING:
    from tui.commands.support.past_run import PastRun

# Lines of each container's kept log: in the text, and in JSON.
SHOWN_LINES, MAX_LINES = 20, 200
# Containers in the text.
MAX_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser, ("table", "json", "yaml"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the report."""
    async with cluster(options) as client:
        try:
            job, answer = await explain_job(options, client, flags)
        except (NotFound, Unreachable) as error:
            from tui.commands.support.past_run import explain_past, find_past

            past = await find_past(options, client, flags.job, flags.job_type, error)
            if past is None:
                raise
            answer = pasteable(options, past.record.namespace, await explain_past(options, past))
            _print_past(past, answer, server_clock(client), flags.output)
            return 0
        report = None
        if job.status == "Running":
            report, answer = await inspect_ranks(client, job), replace(answer, help=())
    answer = pasteable(options, job.ref.namespace, answer)
    if flags.output in ("json", "yaml"):
        write_object(
            {**answer_values(job.status, answer), "stacks": report and report.values()}, flags.output
        )
    else:
        write_text(answer.as_text())
        write_text(f"\n{report.as_text()}" if report else "")
    return 0


def _print_past(past: PastRun, answer: Cause, clock: Clock, form: str) -> None:
    """Print the explanation, events, values and ends of logs of a job that is gone."""
    from tui.commands.support.past_run import past_values  # slow to import

    record, logs = past_values(past), past.logs
    if form in ("json", "yaml"):
        lines = [
            {"instance": each.name, "container": each.container, "lines": logs.last_lines(each, MAX_LINES)}
            for each in logs.targets
        ]
        facts = {"record": record, "events": event_values(past.events, clock), "logs": lines}
        write_object({**answer_values(past.record.status, answer), "stacks": None, **facts}, form)
        return
    write_text(answer.as_text())
    if past.events:
        write("\nEvents:")
        folded = list(reversed(fold_named_events(past.events)))
        write_list(output_columns(COLUMNS), folded, clock, is_wide=False)
    if tags := past.record.tags:
        write("\nLast values:")
        write_fields([(tag, f"{number(each.last)} at step {each.step}") for tag, each in tags.items()])
    for text in islice(logs.texts(SHOWN_LINES), MAX_SHOWN):
        write_text(f"\n{text.rstrip()}")
