"""`why`: explain in one sentence why a job waits, fails or restarts, with evidence and advice."""

from __future__ import annotations

import argparse
import asyncio

from msgspec.structs import replace

from k8s.client.client import Client
from k8s.reasons.cause import Cause
from k8s.reasons.gather import gather, with_life
from k8s.reasons.rules import explain
from k8s.snapshot import Job
from k8s.status import Status
from k8s.text.errors import NotFound, Unreachable
from k8s.text.sanitize import sanitize
from tui.commands.support.connect import cluster, known_causes, read_mirror, with_cluster_flags
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.life import read_life
from tui.commands.support.output import add_format, write, write_object
from tui.runs.store import RunStore
from tui.session.life import FIRST_LINES
from tui.session.telemetry_feed import open_telemetry
from tui.settings.options import ConsoleOptions
from tui.settings.served_kinds import open_mirror
from tui.tables.column import Values
from tui.tables.jobs import failure_values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)
    add_format(parser, ("table", "json", "yaml"))


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the explanation."""
    async with cluster(options, is_brief=True) as client:
        try:
            job, answer = await explain_job(options, client, flags)
            status, answer = str(job.status), pasteable(options, job.ref.namespace, answer)
        except (NotFound, Unreachable) as error:
            from k8s.reasons.failures.log_tails import LINES
            from tui.commands.support.past_run import explain_past, find_past

            past = await find_past(options, client, flags.job, flags.job_type, error, tail=LINES)
            if past is None:
                raise
            answer = pasteable(options, past.record.namespace, await explain_past(options, past))
            status = past.record.status
    if flags.output in ("json", "yaml"):
        write_object(answer_values(status, answer), flags.output)
    else:
        write_text(answer.as_text())
    return 0


async def explain_job(
    options: ConsoleOptions, client: Client, flags: argparse.Namespace
) -> tuple[Job, Cause]:
    """Read the named job and explain its state.

    Raises:
        NotFound: There is no such job.
        KubeError: The cluster cannot be read.
    """
    mirror = open_mirror(options, client)
    snapshot = await read_mirror(mirror)
    job = find_job(snapshot, flags.job, flags.job_type)
    telemetry = open_telemetry(client, lambda: snapshot.jobs, lambda: snapshot.nodes, options.prometheus)
    waits = any(each.status is not Status.RUNNING and not each.status.is_final for each in job.instances)
    nodes = tuple(mirror.nodes) if waits and not snapshot.missing_gpus else ()
    pods = {each.pod: mirror.pods[each.pod_uid] for each in job.instances if each.pod_uid in mirror.pods}
    (newest, _), evidence, _ = await asyncio.gather(
        read_life(mirror, [job], RunStore(options.state_folder, options.history), lines=FIRST_LINES),
        gather(client, job, snapshot, nodes=nodes, pods=pods),
        telemetry.read_gpus(job),
    )
    job = newest.job(job.ref) or job
    answer = explain(replace(with_life(evidence, job, newest), causes=known_causes(options)))
    return job, telemetry.with_warnings(job, answer)


def pasteable(options: ConsoleOptions, namespace: str, answer: Cause) -> Cause:
    """Return the answer with the cluster's flags in the commands that it advises."""
    if options.is_all_namespaces:
        options = replace(options, namespace=namespace)
    return replace(answer, help=tuple(with_cluster_flags(options, each) for each in answer.help))


def write_text(text: str) -> None:
    """Print text that may quote the cluster."""
    for line in text.splitlines():
        write(sanitize(line))


def answer_values(status: str, answer: Cause) -> Values:
    """Return an answer as JSON."""
    return {
        "status": status,
        "sentence": answer.sentence,
        "facts": [{"kind": fact.kind, "text": fact.text} for fact in answer.facts],
        "help": list(answer.help),
        "failure": failure_values(answer.triage),
    }
