"""`edit`: edit a job with `kubectl edit`, on the cluster and in the namespace in use."""

from __future__ import annotations

import argparse
import asyncio

from tui.commands.support.connect import check_may_change, cluster, read_jobs, with_sandbox
from tui.commands.support.job_name import add_job, find_job
from tui.settings.options import ConsoleOptions
from tui.terminal.pod_shell import signals_left_to_program
from tui.verbs.changes import edit_argv


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job argument."""
    add_job(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Run `kubectl edit`, and exit as it does."""
    check_may_change(options, "edit a job")
    options = await with_sandbox(options)
    async with cluster(options) as client:
        ref = find_job(await read_jobs(options, client), flags.job, flags.job_type).ref
        argv = edit_argv(options, client.config, ref)
    with signals_left_to_program():
        process = await asyncio.create_subprocess_exec(*argv)
        status = await process.wait()
    return status if status >= 0 else 128 - status
