"""`logs`: print the output of a job's processes; rank 0 by default."""

from __future__ import annotations

import argparse
from contextlib import aclosing, suppress
from datetime import datetime
from typing import cast

from msgspec.structs import replace

from k8s.client.client import Client
from k8s.logs import Options, failed_selection, find_ranks, targets_of
from k8s.snapshot import Job
from k8s.text.errors import Invalid, KubeError, NotFound, Unreachable
from tui.commands.support.connect import cluster, read_cluster
from tui.commands.support.followed import FollowedJob, print_log, require_lines
from tui.commands.support.job_name import add_job, find_job, titles
from tui.commands.support.output import write_stderr
from tui.commands.support.parser import seconds
from tui.settings.options import ConsoleOptions, command_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and the options that select its logs."""
    add = parser.add_argument
    add_job(parser)
    add("-f", "--follow", action="store_true", help="follow the log until the job ends")
    add("-t", "--tail", type=_line_count, default=-1, metavar="N", help="print the last N lines")
    add("--since", type=seconds, metavar="TIME", help="only lines newer than this, e.g. 90s, 10m, 2h")
    add(
        "--since-time",
        type=_moment,
        default="",
        metavar="TIME",
        help="only lines after this time, e.g. 2026-11-20T18:00:00Z",
    )
    add("--previous", action="store_true", help="print the log of the container before its last restart")
    add("--timestamps", action="store_true", help="print the timestamp of each line")
    add("-c", "--container", default="", metavar="NAME", help="container name")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-i", "--instance", default="", metavar="NAME", help="one instance, e.g. worker-2")
    which.add_argument("-r", "--rank", type=int, metavar="N", help="one rank")
    which.add_argument("--all", action="store_true", help="all instances, merged by time")


def _line_count(text: str) -> int:
    with suppress(ValueError):
        if (count := int(text)) >= -1:
            return count
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines; -1 prints all")


def _moment(text: str) -> str:
    with suppress(ValueError):
        if not text or datetime.fromisoformat(text).tzinfo is not None:
            return text
    raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-20T18:00:00Z")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the log."""
    wanted = Options(
        follow=flags.follow and not flags.previous,
        tail=flags.tail if flags.tail >= 0 else None,
        since_s=flags.since or None,  # 0 is kubectl's default, and no server accepts it
        since_time=flags.since_time,
        instance=flags.instance,
        rank=flags.rank,
        container=flags.container,
        previous=flags.previous,
        every=flags.all,
    )
    async with cluster(options) as client:
        # Whoever follows is told what the job waits for.
        is_wide = wanted.follow
        try:
            snapshot, reasons = await read_cluster(options, client, is_narrow=not is_wide, has_nodes=is_wide)
            job = find_job(snapshot, flags.job, flags.job_type)
        except (NotFound, Unreachable) as error:
            if not await _print_kept(options, client, flags, wanted, error):
                raise
            return 0
        _check_container(job, flags.container)
        if job.log_file and not (flags.container or flags.instance or flags.all):
            here = replace(options, namespace=job.ref.namespace)
            chief = next((each.name for each in job.instances if each.is_chief), "")
            command = command_line(here, "shell", job.ref.name, "-i", chief, "--", "cat", job.log_file)
            write_stderr(f"-- the program prints to a file, not to this log; to read it: {command}")
        is_default = not (wanted.every or wanted.instance or wanted.container) and wanted.rank is None
        has_choice = is_default and max(len(job.instances), job.ranks_total) > 1
        if has_choice and job.status.has_failed and not (wanted.follow and job.instances_running):
            job = (await reasons.explain_once([job])).job(job.ref) or job
            job = await find_ranks(client, job, (job.culprit or ("", None))[1] or 0)
            if (failed := failed_selection(job, targets_of(job))) is not None and failed.rank != 0:
                wanted = replace(wanted, rank=failed.rank, instance=failed.instance)
                write_stderr(f"-- {failed} failed first; for rank 0: -r 0, for all: --all")
        if not wanted.follow:
            if not (wanted.instance or wanted.every):
                job = await find_ranks(client, job, wanted.rank or 0, previous=wanted.previous)
            targets = targets_of(job, container=flags.container)
            if not targets:
                why = f"It has no pods: {job.reason}." if job.reason else "It has no pods."
                hint = f"Ask why with: gpuconsole why {job.ref.name}"
                nothing = NotFound(f"{titles([job.ref])} has no log to read yet.", why, hint)
                if job.status.is_final and await _print_kept(options, client, flags, wanted, nothing, job):
                    return 0
                raise NotFound(nothing.what, nothing.why, nothing.hint)
            if await print_log(client, targets, wanted, timestamps=flags.timestamps):
                return 0
            is_limited = wanted.previous or wanted.tail == 0 or wanted.since_s or wanted.since_time
            if not is_limited and any(each.restarts for each in job.instances):
                write_stderr("-- the run since the last restart has printed nothing; this is the run before:")
                with suppress(Invalid, NotFound):  # that of another instance, or it is gone
                    if await print_log(
                        client, targets, replace(wanted, previous=True), timestamps=flags.timestamps
                    ):
                        return 0
            await require_lines(client, targets, wanted)
            return 0
        followed = FollowedJob(reasons, job.ref, flags.container, wanted.rank or 0)
        async with aclosing(followed.targets()) as coming:
            has_lines = await print_log(client, coming, wanted, timestamps=flags.timestamps)
        if not has_lines:
            await require_lines(client, followed.known, wanted)
    return 0


async def _print_kept(
    options: ConsoleOptions,
    client: Client,
    flags: argparse.Namespace,
    wanted: Options,
    error: KubeError,
    job: Job | None = None,
) -> bool:
    """Print the lines of a job whose pods are gone; False if there is no such run."""
    from tui.commands.support.past_run import find_past

    words = flags.job, flags.job_type
    past = await find_past(options, client, *words, error, "logs", tail=wanted.tail, job=job)
    if past is None:
        return False
    targets = past.logs.in_container(flags.container) if flags.container else past.logs.targets
    if not targets:
        raise NotFound(f"There is no log of a container {flags.container}.")
    logs, once = cast("Client", past.logs), replace(wanted, follow=False)
    await print_log(logs, targets, once, timestamps=flags.timestamps)
    if past.logs.problem:
        write_stderr(f"-- {past.logs.problem}")
    return True


def _check_container(job: Job, container: str) -> None:
    names = dict.fromkeys(name for each in job.instances for name in each.containers)
    if container and names and container not in names:
        raise NotFound(
            f"There is no container {container} in {titles([job.ref])}.",
            f"Its containers: {', '.join(names)}.",
        )
