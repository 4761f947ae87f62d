"""`get`: show one job, its instances and its operator's conditions."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from k8s.jobs.tensorboard import Listed, find_tensorboard, find_tensorboard_url, services_of
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.text.errors import KubeError, NotFound, Unreachable
from tui.commands.list import job_listing
from tui.commands.support.connect import cluster, read_cluster, server_clock
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import add_format, write, write_fields, write_object, write_table
from tui.commands.support.parser import make_parser
from tui.settings.options import ConsoleOptions, command_line
from tui.tables.column import OutputColumn, Values, output_columns, values_of
from tui.tables.jobs import COLUMNS, JobsNow, duration_text, failure_values, queued_s, span_text
from tui.text.format import NOTHING, Clock, local_time, seconds_since, timestamp
from tui.text.instances import format_ranks

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.reasons.failures import Triage  # slow to import
    from k8s.reasons.job_reasons import JobReasons

INSTANCE_COLUMNS = (
    OutputColumn("NAME"),
    OutputColumn("STATUS"),
    OutputColumn("AGE", "right"),
    OutputColumn("CHIEF"),
    OutputColumn("RANKS"),
    OutputColumn("GPU", "right"),
    OutputColumn("NODE"),
    OutputColumn("RESTARTS", "right"),
    OutputColumn("POD", is_wide=True),
    OutputColumn("REASON"),
)
CONDITION_COLUMNS = (
    OutputColumn("TYPE"),
    OutputColumn("IS"),
    OutputColumn("SINCE", "right"),
    OutputColumn("REASON"),
    OutputColumn("MESSAGE", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument, `-o` and `-w`."""
    add_job(parser)
    add_format(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="print its line of the list at each change"
    )


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print one job, or its line of the list at each change."""
    if flags.watch:
        return await _watch(options, flags)
    is_object = flags.output in ("json", "yaml")
    async with cluster(options, is_brief=True) as client:
        try:
            snapshot, reasons = await read_cluster(options, client, flags.job.rpartition("/")[2])
            job = find_job(snapshot, flags.job, flags.job_type)
        except (NotFound, Unreachable) as error:
            from tui.commands.support.past_run import find_past, print_past  # slow to import

            past = await find_past(options, client, flags.job, flags.job_type, error)
            if past is None:
                raise
            print_past(past, flags.output)
            return 0
        services = asyncio.ensure_future(services_of(client, job))
        tensorboard, forwarded, (job, now) = await asyncio.gather(
            find_tensorboard_url(client, job, services),
            _is_forwarded(client, job, services, is_needed=not is_object),
            _explained(options, reasons, job),
        )
    if is_object:
        failure = reasons.triage_of(job.uid)
        write_object(_values(job, now, tensorboard, failure), flags.output)
    else:
        if tensorboard is None and forwarded:
            tensorboard = command_line(options, "forward", job.ref.name)
        _print(job, now, tensorboard, is_wide=flags.output == "wide")
    return 0


async def _is_forwarded(client: Client, job: Job, services: Listed, *, is_needed: bool) -> bool:
    with suppress(KubeError):
        return is_needed and bool(await find_tensorboard(client, job, services))
    return False


async def _explained(options: ConsoleOptions, reasons: JobReasons, job: Job) -> tuple[Job, JobsNow]:
    # With its reason and the signs of life in its log.
    job = (await reasons.explain_once([job])).job(job.ref) or job
    if job.status is not Status.RUNNING and not job.status.is_final:  # others have no log to read
        return job, JobsNow(server_clock(reasons.mirror.client))
    from tui.commands.support.life import read_life  # slow to import
    from tui.runs.store import RunStore

    runs = RunStore(options.state_folder, options.history)
    snapshot, now = await read_life(reasons.mirror, [job], runs)
    return snapshot.job(job.ref) or job, now


async def _watch(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    listing = job_listing(make_parser().parse_args(["list", "-o", flags.output]))
    async with cluster(options) as client:
        snapshot, reasons = await read_cluster(options, client)
        job = find_job(snapshot, flags.job, flags.job_type)
        columns = output_columns(COLUMNS, without=("namespace",) if snapshot.namespace else ())
        listing.write_rows([job], JobsNow(server_clock(client)), columns, has_titles=True)
        await listing.watch(
            reasons.mirror,
            [job],
            lambda: JobsNow(server_clock(client)),
            columns,
            lambda newest: filter(None, [newest.job(job.ref)]),
            lambda each: each.uid,
        )
    return 0


def _print(job: Job, now: JobsNow, tensorboard: str | None, *, is_wide: bool) -> None:
    clock = now.clock
    write_fields(
        (
            ("Name", job.ref.name),
            ("Kind", f"{job.ref.kind} {job.ref.api_version}"),
            ("Namespace", job.ref.namespace),
            ("Status", str(job.status)),
            ("Reason", now.reason(job)),
            ("User", job.user),
            ("Priority", job.priority),
            ("Trainer", job.trainer),
            ("GPUs", f"{job.gpus_requested} requested, {job.gpus_allocated} allocated"),
            ("Created", f"{local_time(job.created) or NOTHING}, {clock.age(job.created)} ago"),
            ("Queued", span_text(queued_s(job, clock.now))),
            ("Started", local_time(job.started)),
            ("Ended", local_time(job.finished)),
            ("Duration", duration_text(job, clock.now)),
            ("Event files", job.log_dir),
            ("TensorBoard", tensorboard or ""),
        )
    )
    write("\nInstances:")
    write_table(
        INSTANCE_COLUMNS, [_instance_row(each, clock) for each in job.instances], is_wide=is_wide, indent="  "
    )
    if job.conditions:
        rows = [
            (
                each.type,
                each.status,
                clock.age(each.last_transition_time),
                each.reason or NOTHING,
                each.message or NOTHING,
            )
            for each in job.conditions
        ]
        write("\nConditions:")
        write_table(CONDITION_COLUMNS, rows, is_wide=is_wide, indent="  ")


def _instance_row(instance: Instance, clock: Clock) -> tuple[str, ...]:
    return (
        instance.name,
        str(instance.status),
        clock.age(instance.created),
        "yes" if instance.is_chief else "no",
        format_ranks(instance.ranks, instance.ranks_proof),
        str(instance.gpus),
        instance.node or NOTHING,
        str(instance.restarts),
        instance.pod or NOTHING,
        instance.reason or NOTHING,
    )


def _values(job: Job, now: JobsNow, tensorboard: str | None, failure: Triage | None) -> Values:
    return {
        **values_of(job, now, COLUMNS),
        "trainer": job.trainer,
        "log_dir": job.log_dir,
        "started": timestamp(job.started),
        "finished": timestamp(job.finished),
        "instances": [_instance_values(each, now.clock.now) for each in job.instances],
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason or "",
                "message": each.message or "",
                "since": timestamp(each.last_transition_time),
            }
            for each in job.conditions
        ],
        "tensorboard": tensorboard,
        "failure": failure_values(failure),
    }


def _instance_values(instance: Instance, now: datetime) -> Values:
    return {
        "name": instance.name,
        "role": instance.role,
        "index": instance.index,
        "is_chief": instance.is_chief,
        "ranks": list(instance.ranks),
        "ranks_proof": instance.ranks_proof,
        "status": str(instance.status),
        "reason": instance.reason,
        "gpus": instance.gpus,
        "node": instance.node,
        "restarts": instance.restarts,
        "exit_code": instance.exit_code,
        "age_s": seconds_since(instance.created, now),
        "pod": instance.pod,
    }
