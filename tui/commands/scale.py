"""`scale`: change the number of replicas of an elastic job."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from k8s.errors import KubeError
from k8s.jobs.create import resource_of
from k8s.jobs.modify import scale_job, size_of, why_not_scaled
from k8s.kinds import ElasticSize, kind_of
from tui.commands.support.confirm import add_yes, check_can_confirm, is_confirmed
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import add_job, find_job, titles
from tui.commands.support.output import WrongUsage, write
from tui.jobs.kind_words import KINDS_OF_OTHERS
from tui.options import ConsoleOptions
from tui.text.format import plural

OF_ET_OPERATOR = "Alibaba's et-operator scales it through its own objects: use arena."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and the replica count."""
    add_job(parser)
    parser.add_argument(
        "--replicas",
        type=int,
        required=True,
        metavar="N",
        help="number of replicas, within the job's bounds; for a PyTorchJob its workers, without the master",
    )
    add_yes(parser)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Scale a job."""
    if flags.replicas < 0:
        raise WrongUsage("--replicas: Must be at least 0.")
    check_may_change(options, "scale a job")
    check_can_confirm(flags, "scale")
    return await scale(options, flags, flags.job, flags.job_type, lambda _: int(flags.replicas))


async def scale(
    options: ConsoleOptions,
    flags: argparse.Namespace,
    name: str,
    job_type: str,
    wanted: Callable[[ElasticSize | None], int],
) -> int:
    """Set a job's replica count after confirmation; return the exit status.

    Args:
        options: Names the cluster.
        flags: Has `yes`.
        name: NAME or KIND/NAME.
        job_type: Required kind, as the user typed it; empty for any.
        wanted: Maps the current size (None if the job is not elastic) to the new replica count.

    Raises:
        KubeError: The job cannot have that many replicas.
    """
    async with cluster(options) as client:
        job = find_job(await read_jobs(options, client), name, job_type)
        if job.ref.kind.lower() == KINDS_OF_OTHERS["etjob"]:
            raise KubeError(f"Could not scale {job.ref.kind} {job.ref.name}.", OF_ET_OPERATOR)
        obj = await client.get(resource_of(job.ref), job.ref.name, job.ref.namespace)
        size = size_of(kind_of(job.ref), obj)
        replicas = wanted(size)
        if replicas < 0 and size is not None:
            raise KubeError(
                f"Could not scale {job.ref.kind} {job.ref.name}.",
                f"It has {plural(size.replicas or 0, 'replica')}.",
            )
        if why := why_not_scaled(job, obj, replicas):
            raise KubeError(f"Could not scale {job.ref.kind} {job.ref.name}.", why)
        before = size.replicas if size is not None and size.replicas is not None else "?"
        words = plural(replicas, "replica")
        if not is_confirmed(flags, f"Scale {titles([job.ref])} from {before} to {words}?"):
            return 1
        await scale_job(client, job.ref, job.uid, replicas)
    write(f"{titles([job.ref])} scaled from {before} to {words}.")
    return 0
