"""`scale`: change the number of replicas of an elastic job; `scalein` and `scaleout` as in Arena."""

from __future__ import annotations

import argparse
import re

from k8s.jobs.create import resource_of
from k8s.jobs.modify import scale_job, size_of, why_not_scaled
from k8s.kinds import kind_of
from k8s.text.errors import KubeError
from tui.commands.support.connect import check_may_change, cluster, read_jobs
from tui.commands.support.job_name import add_job, find_job, titles
from tui.commands.support.output import (
    WrongUsage,
    add_yes,
    check_can_confirm,
    is_confirmed,
    write,
    write_stderr,
)
from tui.settings.options import ConsoleOptions
from tui.text.format import plural
from tui.text.kind_words import KINDS_OF_OTHERS

OF_ET_OPERATOR = "Alibaba's et-operator scales it through its own objects: use arena."
_ET_JOB = KINDS_OF_OTHERS["etjob"]
_TIMES = re.compile(r"(\d{1,9}(\.\d+)?(ms|s|m|h))+|0")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job and the replica count, and Arena's flags."""
    add_job(parser)
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="number of replicas, within the job's bounds; for a PyTorchJob its workers, without the master",
    )
    add_yes(parser)
    add = parser.add_argument_group("scalein and scaleout KIND, as in Arena").add_argument
    add("--name", help="name of the job; KIND may be etjob, for any elastic job")
    add("--count", type=int, metavar="N", help="replicas to remove or to add (default 1)")
    for flags in (("--timeout",), ("--retry",), ("--script",), ("-e", "--env")):
        add(*flags, help=argparse.SUPPRESS)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Scale a job after confirmation.

    Raises:
        KubeError: The job cannot have that many replicas.
    """
    sign = {"scalein": -1, "scaleout": 1}.get(flags.chosen, 0)
    _check(flags, is_relative=bool(sign))
    check_may_change(options, "scale a job")
    check_can_confirm(flags, "scale")
    name, job_type = (flags.name, flags.job) if sign else (flags.job, flags.job_type)
    if sign and KINDS_OF_OTHERS.get(job_type.lower()) == _ET_JOB:
        job_type = ""  # Arena has elastic jobs of one kind only; here they are of several.
    async with cluster(options) as client:
        job = find_job(await read_jobs(options, client), name, job_type)
        could_not = f"Could not scale {job.ref.kind} {job.ref.name}."
        if job.ref.kind.lower() == _ET_JOB:
            raise KubeError(could_not, OF_ET_OPERATOR)
        obj = await client.get(resource_of(job.ref), job.ref.name, job.ref.namespace)
        size = size_of(kind_of(job.ref), obj)
        current = size.replicas if size is not None else None
        count = 1 if flags.count is None else flags.count
        replicas = (current or 0) + sign * count if sign else flags.replicas
        if replicas < 0 and size is not None:
            raise KubeError(could_not, f"It has {plural(current or 0, 'replica')}.")
        if why := why_not_scaled(job, obj, replicas):
            raise KubeError(could_not, why)
        before = "?" if current is None else current
        words = plural(replicas, "replica")
        if not is_confirmed(flags, f"Scale {titles([job.ref])} from {before} to {words}?"):
            return 1
        await scale_job(client, job.ref, job.uid, replicas)
    write(f"{titles([job.ref])} scaled from {before} to {words}.")
    return 0


def _check(flags: argparse.Namespace, *, is_relative: bool) -> None:
    """Reject options of the other form and those of Alibaba's et-operator, and warn of those without effect.

    Raises:
        WrongUsage: An option is missing or unsupported, or a number is invalid.
    """
    needed, needless = ("name", ("replicas",)) if is_relative else ("replicas", ("name", "count"))
    if getattr(flags, needed) is None:
        raise WrongUsage(f"--{needed} is required.")
    for flag in needless:
        if getattr(flags, flag) is not None:
            raise WrongUsage(f"--{flag}: {flags.chosen} does not take it.")
    number, given, least = ("count", flags.count, 1) if is_relative else ("replicas", flags.replicas, 0)
    if given is not None and given < least:
        raise WrongUsage(f"--{number}: Must be at least {least}.")
    if flags.timeout is not None and not _TIMES.fullmatch(flags.timeout):
        raise WrongUsage(f"--timeout: {flags.timeout!r} is not a duration such as 60s.")
    for flag in ("script", "env"):
        if getattr(flags, flag):
            why = "only Alibaba's et-operator runs a script when it scales; torchrun needs none."
            raise WrongUsage(f"--{flag}: {why}")
    if ignored := [f"--{name}" for name in ("timeout", "retry") if getattr(flags, name) is not None]:
        write_stderr(f"Without effect here: {', '.join(ignored)}.")
