"""`bundle`: write a support bundle for a job."""

from __future__ import annotations

import argparse
import time

from k8s.text.home import expand_home
from tui.commands.support.connect import cluster, read_jobs
from tui.commands.support.job_name import add_job, find_job
from tui.commands.support.output import WrongUsage, write, write_progress, write_stderr
from tui.files.support_bundle import TAIL, Progress, bundle_name, make_bundle
from tui.options import ConsoleOptions
from tui.text.format import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and file arguments."""
    add_job(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="", help="path of the .tar.gz (default: in this folder)"
    )
    parser.add_argument(
        "-t", "--tail", type=int, default=TAIL, metavar="N", help=f"log lines per rank (default {TAIL})"
    )


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Write the bundle and print its path."""
    if flags.tail < 0:
        raise WrongUsage("--tail: must be 0 or more.")
    async with cluster(options) as client:
        snapshot = await read_jobs(options, client)
        job = find_job(snapshot, flags.job, flags.job_type)
        path = expand_home(flags.output or bundle_name(job, time.time()))
        bundle = await make_bundle(client, snapshot, job, path, tail=flags.tail, progress=_progress())
    for problem in bundle.problems:
        write_stderr(f"Left out: {problem}")
    places = plural(sum(bundle.removed.values()), "place")
    write_stderr(
        f"{plural(len(bundle.parts), 'file')}, secrets redacted in {places}. Check it before you share it."
    )
    write(str(bundle.path))
    return 0


def _progress() -> Progress:

    def tell(done: int, total: int, words: str) -> None:
        write_progress(f"{done + 1}/{total} {words}", is_last=done + 1 == total)

    return tell
