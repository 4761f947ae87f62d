"""`wait`: block until jobs finish, run or fall silent, and return their exit status."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from k8s.client.client import Client
from k8s.jobs.permissions import Permissions
from k8s.kinds import JobRef
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import NO_SIGNS, LifeSigns
from k8s.status import Status
from k8s.text.errors import FORBIDDEN_HINT, Forbidden
from tui.commands.support.connect import cluster, read_cluster, server_clock
from tui.commands.support.followed import WatchedJob, explain_failures, watch_jobs, write_problem
from tui.commands.support.job_name import add_jobs, find_job, titles
from tui.commands.support.output import write, write_stderr
from tui.commands.support.parser import seconds
from tui.session.life_feed import LOG_PERMISSION, READ_S, LifeFeed
from tui.settings.options import ConsoleOptions, command_line
from tui.terminal.hooks import TIMED_OUT
from tui.text.format import Clock, age, reason_text

CONDITIONS = ("running", "succeeded", "silent", "finished")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the jobs, the condition and the timeout."""
    add_jobs(parser)
    parser.add_argument(
        "--for",
        dest="condition",
        choices=CONDITIONS,
        default="finished",
        help="finished (default); running or succeeded: stop at the first failure; silent: until one of the "
        "jobs has shown no sign of life for much longer than usual",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="TIME",
        help=f"give up after this time, such as 90s or 1h30m, with exit status {TIMED_OUT}",
    )


@dataclass(slots=True)
class AwaitedJob(WatchedJob):
    """A job to wait for."""

    words: str = ""
    """Its name as given."""
    status: int | None = None
    """Exit status; None until the wait for it is over."""
    signs: LifeSigns = NO_SIGNS
    """Trouble in its output while waiting for silence."""
    is_unknown: bool = False
    """The cluster cannot be watched, so `job` is out of date."""

    @property
    def state(self) -> str:
        """Return its status in a word."""
        if self.signs.silence or self.is_unknown:
            return "Silent" if self.signs.silence else "Unknown"
        return "Deleted" if self.is_gone or self.job is None else str(self.job.status)

    def reason(self, clock: Clock) -> str:
        """Return the reason of its status; empty if there is none."""
        if self.is_gone or self.job is None:
            return ""
        return reason_text(self.job, self.signs, clock)


class Wait:
    """Waits until a condition holds for all jobs, or no longer can."""

    def __init__(
        self, client: Client, jobs: Sequence[AwaitedJob], condition: str, *, read_s: float = READ_S
    ) -> None:
        """Prepare to wait; for silence, logs are read every `read_s`."""
        self.jobs = jobs
        self.client = client
        self.trouble = ""
        """Reason, in a word or two, why the cluster cannot be watched; empty if it can."""
        self._condition = condition
        self._read_s = read_s
        self._shown: dict[str, str] = {}

    @property
    def status(self) -> int:
        """Return the first exit status other than 0; 1 if no job fell silent that had to."""
        if any(each.signs.silence for each in self.jobs):
            return 0
        return next((each.status for each in self.jobs if each.status), int(self._condition == "silent"))

    def __iter__(self) -> Iterator[AwaitedJob]:
        """Iterate over the remaining jobs."""
        return iter([each for each in self.jobs if each.status is None])

    async def run(self, reasons: JobReasons) -> None:
        """Watch until the wait is over."""
        mirror = reasons.mirror
        async with AsyncExitStack() as stack:
            if self._condition == "silent":
                feed = LifeFeed(self.client, None, tuple, on_signs=mirror.publish_soon, read_s=self._read_s)
                feed.life.watch(self, lambda: [each.job for each in self if each.job is not None])
                mirror.evidence, mirror.life = feed.evidence, feed.signs
                stack.callback(asyncio.create_task(feed.run()).cancel)
            changes = watch_jobs(reasons, self, self._report_trouble)
            await stack.enter_async_context(aclosing(changes))
            async for _ in changes:
                for each in self:
                    each.signs = mirror.latest.signs(each.job)
                if await self.is_over():
                    return

    async def is_over(self) -> bool:
        """Update the remaining jobs, and return True if the wait is over."""
        for each in self:
            self._report(each)
            is_met = each.signs.silence or (self._condition == "running" and each.state == Status.RUNNING)
            each.status = 0 if is_met else await each.exit_status(self.client)
        if self._condition in ("running", "succeeded") and self.status:
            return True
        return not list(self) or any(each.signs.silence for each in self.jobs)

    def _report_trouble(self, trouble: str) -> None:
        self.trouble = trouble
        lost = f"-- Lost the connection ({trouble}); retrying."
        write_stderr(lost if trouble else "-- Connected again.")

    def _report(self, awaited: AwaitedJob) -> None:
        text = ", ".join(filter(None, (awaited.state, awaited.reason(server_clock(self.client)))))
        text = f"-- {awaited.words}: {text}"
        is_failed = awaited.state == Status.FAILED  # its logs are read first, and then it is reported
        if self._shown.get(awaited.words) != text and sys.stderr.isatty() and not is_failed:
            self._shown[awaited.words] = text
            write_stderr(text)


async def run(options: ConsoleOptions, flags: argparse.Namespace) -> int:
    """Wait, print a line per job, and return the first exit status that is not 0."""
    async with cluster(options) as client:
        snapshot, reasons = await read_cluster(options, client)
        awaited: dict[JobRef, AwaitedJob] = {}
        for words in flags.jobs:
            job = find_job(snapshot, words, flags.job_type)
            awaited.setdefault(job.ref, AwaitedJob(job.ref, words=words)).update(job)
        if flags.condition == "silent":
            await _check_may_read(client, awaited)
        wait = Wait(client, list(awaited.values()), flags.condition)
        status = await _status_after(wait, reasons, options, flags)
    for each in wait.jobs:
        write(f"{each.words} {each.state}")
    return status


async def _check_may_read(client: Client, refs: Iterable[JobRef]) -> None:
    permissions = Permissions(client)
    for namespace in sorted({ref.namespace for ref in refs}):
        found = await permissions.fetch(LOG_PERMISSION, namespace)
        if found.is_allowed is False:
            raise Forbidden("Could not wait for silence: the logs cannot be read.", found.why, FORBIDDEN_HINT)


async def _status_after(
    wait: Wait, reasons: JobReasons, options: ConsoleOptions, flags: argparse.Namespace
) -> int:
    again = f"To wait again: {_again(options, flags)}"
    try:
        if not await wait.is_over():
            async with asyncio.timeout(flags.timeout) as limit:
                await wait.run(reasons)
    except TimeoutError:
        if not limit.expired():
            raise
        for each in wait:
            reason = f": {each.job.reason}" if each.job is not None and each.job.reason else ""
            was = f"was last seen {each.state} ({wait.trouble})" if wait.trouble else f"is {each.state}"
            each.is_unknown = bool(wait.trouble)
            write_stderr(f"{titles([each.ref])} {was} after {age(flags.timeout)}{reason}.")
        write_stderr(again)
        return TIMED_OUT
    except asyncio.CancelledError:
        write_stderr(f"-- Stopped waiting for {titles(each.ref for each in wait)}. {again}")
        raise
    await explain_failures(reasons, wait.jobs)
    for each in wait.jobs:
        if each.status:  # its pods may have ended since
            each.status = await each.exit_status(wait.client) or each.status
        write_problem(options, each)
    if flags.condition == "silent" and wait.status:
        write_stderr("No job fell silent before it ended.")
    return wait.status


def _again(options: ConsoleOptions, flags: argparse.Namespace) -> str:
    words = ["wait", *flags.jobs]
    words += ["-A"] if options.is_all_namespaces else []
    words += ["-T", flags.job_type] if flags.job_type else []
    words += [f"--for={flags.condition}"] if flags.condition != CONDITIONS[-1] else []
    words += ["--timeout", f"{flags.timeout}s"] if flags.timeout is not None else []
    return command_line(options, *words)
