"""`why`: explain in one sentence why a job waits, fails or restarts, with evidence and advice."""

from __future__ import annotations

import argparse
from dataclasses import replace

from k8s.diagnosis.answer import Answer
from k8s.diagnosis.gather import answer_why
from k8s.text.sanitize import sanitize
from tui.commands.support.connect import cluster, read_jobs, with_cluster_flags
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import add_format, write, write_object
from tui.feeds.telemetry_feed import open_telemetry
from tui.options import ConsoleOptions
from tui.tables.column import Values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser, ("table", "json", "yaml"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the explanation."""
    async with cluster(options) as client:
        snapshot = await read_jobs(options, client)
        job = find_job(snapshot, flags.job, flags.job_type)
        telemetry = open_telemetry(client, lambda: snapshot.jobs, lambda: snapshot.nodes, options.prometheus)
        answer = await telemetry.explain(job, await answer_why(client, job, snapshot))
    if options.is_all_namespaces:
        options = replace(options, namespace=job.ref.namespace)
    answer = replace(answer, help=tuple(with_cluster_flags(options, each) for each in answer.help))
    if flags.output in ("json", "yaml"):
        write_object(_values(answer), flags.output)
    else:
        for line in answer.as_text().splitlines():
            write(sanitize(line))
    return 0


def _values(answer: Answer) -> Values:
    return {
        "status": answer.status,
        "sentence": answer.sentence,
        "facts": [{"kind": fact.kind, "text": fact.text} for fact in answer.facts],
        "help": list(answer.help),
    }
