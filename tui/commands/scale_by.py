"""`scalein` and `scaleout`: Arena's `scale`, with a relative number of replicas."""

from __future__ import annotations

import argparse
import re

from k8s.kinds import ElasticSize
from tui.commands.scale import scale
from tui.commands.support.confirm import add_yes, check_can_confirm
from tui.commands.support.connect import check_may_change
from tui.commands.support.output import WrongUsage, write_stderr
from tui.jobs.kind_words import KINDS_OF_OTHERS
from tui.options import ConsoleOptions

_OF_ET = "etjob"
_TIMES = re.compile(r"(\d{1,9}(\.\d+)?(ms|s|m|h))+|0")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job kind, name and count, as Arena does."""
    add = parser.add_argument
    add("job_type", metavar="KIND", help="etjob: an elastic job of any kind; or a kind, e.g. pytorchjob")
    add("--name", required=True, help="name of the job")
    add("--count", type=int, default=1, metavar="N", help="replicas to remove or to add (default 1)")
    add_yes(parser)
    for flag in ("--timeout", "--retry", "--script"):
        add(flag, help=argparse.SUPPRESS)
    add("-e", "--env", action="append", help=argparse.SUPPRESS)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Scale a job."""
    _check(flags)
    check_may_change(options, "scale a job")
    check_can_confirm(flags, "scale")
    is_in = flags.chosen == "scalein"
    change = -flags.count if is_in else flags.count

    def wanted(size: ElasticSize | None) -> int:
        return (size.replicas or 0) + change if size is not None else 0

    # Arena has elastic jobs of one kind only; here they are of several.
    job_type = (
        "" if KINDS_OF_OTHERS.get(flags.job_type.lower()) == KINDS_OF_OTHERS[_OF_ET] else flags.job_type
    )
    return await scale(options, flags, flags.name, job_type, wanted)


def _check(flags: argparse.Namespace) -> None:
    """Reject options that only Alibaba's et-operator supports, and warn of those without effect.

    Raises:
        WrongUsage: An option is unsupported, or a number is invalid.
    """
    if flags.count < 1:
        raise WrongUsage("--count: Must be at least 1.")
    if flags.timeout is not None and not _TIMES.fullmatch(flags.timeout):
        raise WrongUsage(f"--timeout: {flags.timeout!r} is not a duration such as 60s.")
    for flag, value in (("--script", flags.script), ("--env", flags.env)):
        if value:
            raise WrongUsage(
                f"{flag}: only Alibaba's et-operator runs a script when it scales; torchrun needs none."
            )
    ignored = [f"--{name}" for name in ("timeout", "retry") if getattr(flags, name) is not None]
    if ignored:
        write_stderr(f"Without effect here: {', '.join(ignored)}.")
