"""`tensorboard`: serve the event files of jobs and folders in a TensorBoard here, until ctrl+c."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from k8s.snapshot import Job
from k8s.text.home import expand_home
from tui.commands.forward import port
from tui.commands.support.connect import cluster, read_jobs
from tui.commands.support.job_name import NAME_HELP, find_job
from tui.commands.support.output import WrongUsage, write, write_stderr
from tui.runs.curve_feed import CurveFeed
from tui.runs.tensorboard import free_name, local_tensorboard, ssh_line
from tui.settings.options import ConsoleOptions
from tui.terminal.tty_state import caught_signal
from tui.text.format import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the jobs, folders and the port."""
    parser.add_argument(
        "sources", metavar="JOB|FOLDER", nargs="+", help=f"{NAME_HELP}, or a folder with event files"
    )
    parser.add_argument("--port", type=port, default=0, help="port on this machine (default: a free one)")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Print the address and serve until ctrl+c or another signal."""
    folders, names = _folders(flags.sources)
    async with AsyncExitStack() as stack:
        feeds: dict[str, CurveFeed] = {}
        if names:
            client = await stack.enter_async_context(cluster(options))
            snapshot = await read_jobs(options, client)
            for job in [find_job(snapshot, name) for name in names]:
                name = free_name(job.ref.name, (*folders, *feeds))
                feeds[name] = CurveFeed(client, job.ref, partial(_same, job))
        serving = local_tensorboard(folders, feeds, write_stderr, flags.port)
        address = await stack.enter_async_context(serving)
        caught = caught_signal()
        write(address)
        if line := ssh_line(address):
            write_stderr(f"-- from your own machine: {line}")
        runs = plural(len(folders) + len(feeds), "run")
        write_stderr(f"-- TensorBoard serves {runs}; ctrl+c to stop")
        return await caught


def _folders(sources: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    folders: dict[str, Path] = {}
    names = []
    for source in sources:
        folder = expand_home(source)
        if folder.is_dir():
            folders[free_name(folder.resolve().name or "root", folders)] = folder
        elif source.startswith((".", "/", "~")):
            raise WrongUsage(f"There is no folder {folder}.")
        else:
            names.append(source)
    return folders, names


def _same(job: Job) -> Job:
    return job
