"""`diagnose`: report which rank of a failed job failed first, or what each rank of a running job does."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from k8s.reasons.stacks import inspect_ranks
from tui.commands.support.connect import cluster
from tui.commands.support.job_name import add_job
from tui.commands.support.output import add_format, write_object
from tui.commands.why import answer_values, explain_job, pasteable, write_text
from tui.settings.options import ConsoleOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser, ("table", "json", "yaml"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the report."""
    async with cluster(options) as client:
        job, answer = await explain_job(options, client, flags)
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
