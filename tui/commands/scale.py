"""`scale`: gives an elastic job more or fewer replicas."""

from __future__ import annotations

import argparse

from k8s.errors import KubeError
from k8s.jobs.create import resource_of
from k8s.jobs.scale import scale_job, size_of, why_not_scaled
from k8s.kinds import kind_of
from tui.commands.support.confirm import add_yes, check_can_confirm, is_confirmed
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import NAME_HELP, add_type, find_job, titles
from tui.commands.support.output import WrongUsage, write
from tui.options import ConsoleOptions
from tui.text.format import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command take a job and a number."""
    parser.add_argument("job", metavar="JOB", help=NAME_HELP)
    parser.add_argument(
        "--replicas",
        type=int,
        required=True,
        metavar="N",
        help="replicas that it is to have, within its bounds; the workers of a PyTorchJob, its master aside",
    )
    add_type(parser)
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Scale a job."""
    if flags.replicas < 0:
        raise WrongUsage("--replicas: Must be at least 0.")
    check_may_change(options, "scale a job")
    check_can_confirm(flags, "scale")
    async with cluster(options) as client:
        job = find_job(await read_jobs(options, client), flags.job, flags.job_type)
        obj = await client.get(resource_of(job.ref), job.ref.name, job.ref.namespace)
        if why := why_not_scaled(job, obj, flags.replicas):
            raise KubeError(f"Could not scale {job.ref.kind} {job.ref.name}.", why)
        size = size_of(kind_of(job.ref), obj)
        before = size.replicas if size is not None and size.replicas is not None else "?"
        wanted = plural(flags.replicas, "replica")
        if not is_confirmed(flags, f"Scale {titles([job.ref])} from {before} to {wanted}?"):
            return 1
        await scale_job(client, job.ref, job.uid, flags.replicas)
    write(f"{titles([job.ref])} scaled from {before} to {wanted}.")
    return 0
