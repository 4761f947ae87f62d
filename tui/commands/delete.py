"""`delete`: ends jobs and removes them with all that they own."""

from __future__ import annotations

import argparse

from k8s.errors import KubeError, NotFound
from k8s.snapshot import Job
from k8s.submit import delete_job
from tui.commands.connect import check_may_change, cluster, read_jobs
from tui.commands.errors import WrongUsage, say
from tui.commands.output import confirm, is_interactive, write
from tui.commands.which_job import NAME_HELP, find_job, titles
from tui.format import plural
from tui.settings import ConsoleOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command take jobs."""
    parser.add_argument("jobs", metavar="JOB", nargs="+", help=NAME_HELP)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask; needed in scripts")


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Delete jobs; one that cannot be deleted does not keep the others."""
    check_may_change(options, "delete jobs")
    if not flags.yes and not is_interactive():
        raise WrongUsage("There is nobody to ask here: say --yes to delete.")
    is_done = True
    async with cluster(options) as client:
        snapshot = await read_jobs(options, client)
        jobs: list[Job] = []
        for words in dict.fromkeys(flags.jobs):
            try:
                jobs.append(find_job(snapshot, words))
            except KubeError as error:
                say(str(error))
                is_done = False
        if not jobs or not (flags.yes or confirm(_question(jobs))):
            return 1
        for job in jobs:
            try:
                await delete_job(client, job.ref, job.uid)
            except NotFound:
                write(f"{titles([job.ref])} is gone already.")
            except KubeError as error:
                say(str(error))
                is_done = False
            else:
                write(f"{titles([job.ref])} is being deleted.")
    return 0 if is_done else 1


def _question(jobs: list[Job]) -> str:
    pods = sum(bool(each.pod) for job in jobs for each in job.instances)
    gpus = sum(job.gpus_allocated for job in jobs)
    names = titles(job.ref for job in jobs)
    return f"Delete {names}, with {plural(pods, 'pod')} and their logs, freeing {plural(gpus, 'GPU')}?"
