"""Print logs, lines to stdout and notices to stderr, and follow a job to its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import replace
from itertools import groupby
from typing import cast

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.kinds import JobRef
from k8s.logs import (
    Item,
    JobRanks,
    LinePrinter,
    LogLine,
    Marker,
    Options,
    Target,
    find_ranks,
    read,
    targets_of,
)
from k8s.logs.lines import rfc3339
from k8s.logs.tail import MAX_PROBED, read_tail
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import Job
from k8s.text.errors import KubeError, NotFound
from tui.commands.support.job_name import titles
from tui.commands.support.job_watch import WatchedJob, explain_failures, watch_jobs, write_problem
from tui.commands.support.output import write_stderr
from tui.settings.options import ConsoleOptions, command_line
from tui.tables.filters import own_names
from tui.terminal.closed_pipe import ended_by_closed_pipe

# Pods named by a message.
MAX_NAMED = 8


class FollowedJob:
    """A job watched to its end, with its containers as they appear."""

    def __init__(self, reasons: JobReasons, ref: JobRef, container: str = "", rank: int = 0) -> None:
        """Prepare to watch a job.

        Args:
            reasons: Reasons and mirror of the job's cluster.
            ref: The job.
            container: Name of the container in each pod; empty for the training container.
            rank: Rank to be found among its pods.
        """
        self.watched = WatchedJob(ref)
        self.known: Sequence[Target] = ()
        """The containers yielded last."""
        self._reasons = reasons
        self._container = container
        self._rank = rank
        self._ranks: JobRanks | None = None

    async def targets(self) -> AsyncGenerator[Sequence[Target], None]:
        """Yield the containers whenever they change, until the job ends.

        Raises:
            NotFound: The job ended or was deleted before it had a pod.
        """
        said, title = "", titles([self.watched.ref])
        async with aclosing(watch_jobs(self._reasons, [self.watched])) as changes:
            async for _ in changes:
                job = self.watched.job
                is_gone = self.watched.is_gone
                found = await self._containers(job) if job is not None and not is_gone else ()
                if found and found != self.known:
                    self.known = found
                    yield found
                if is_gone or (job is not None and job.status.is_final):
                    break
                if job is not None and not self.known and job.reason != said:
                    said = job.reason
                    write_stderr(f"-- {title} is waiting: {said}")
        if not self.known:
            raise NotFound("There is no log to print.", f"{title} ended, and its pods are gone.")

    async def _containers(self, job: Job) -> Sequence[Target]:
        if self._ranks is None and any(each.pod for each in job.instances):
            self._ranks = JobRanks()
            await find_ranks(self._reasons.mirror.client, job, self._rank, ranks=self._ranks)
        return targets_of(self._ranks.apply(job) if self._ranks else job, container=self._container)


async def print_log(
    client: Client,
    targets: Sequence[Target] | AsyncGenerator[Sequence[Target], None],
    wanted: Options,
    *,
    timestamps: bool = False,
) -> bool:
    """Print the selected lines, and return True if there were any."""
    has_lines = False
    out, is_terminal = sys.stdout.buffer, sys.stdout.isatty()
    wanted = replace(wanted, raw=not (timestamps or wanted.every or is_terminal))
    printer = LinePrinter(timestamps=timestamps, name=wanted.every, is_terminal=is_terminal)
    # Closed before `targets` is, which it reads: a write may fail in the middle.
    async with aclosing(read(client, targets, wanted)) as batches:
        while True:
            # Not around the writing and closing as well: these end by themselves, and must not be cancelled.
            with ended_by_closed_pipe() if wanted.follow else nullcontext():
                batch = await anext(batches, None)
            if batch is None:
                break
            for kind, items in groupby(batch, type):
                if kind is Marker:
                    _write_markers(items)
                else:
                    has_lines = True
                    out.write(printer.format(cast("Iterable[LogLine]", items)))
            if wanted.follow:
                out.flush()
    return has_lines


async def require_lines(client: Client, targets: Sequence[Target], wanted: Options) -> None:
    """Check that no pod has lines, after a rank had none.

    Raises:
        NotFound: Some pods have; the message names them.
    """

    async def has_lines(target: Target) -> bool:
        with suppress(KubeError):
            return bool(await read_tail(client, target, 1, previous=wanted.previous, since_time=since))
        return False

    if wanted.instance or wanted.every or wanted.tail == 0:
        return
    since = wanted.since_time
    if wanted.since_s is not None:
        since = rfc3339(int(time.time() + client.server_clock_offset_s) - wanted.since_s)
    targets = targets[:MAX_PROBED]
    found = await asyncio.gather(*map(has_lines, targets))
    if names := [target.name for target, has in zip(targets, found, strict=True) if has]:
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        raise NotFound(
            f"Rank {wanted.rank or 0} has printed no line.",
            f"There are lines of {', '.join(names[:MAX_NAMED])}{more}.",
            f"Read an instance with -i {names[0]}, or all with --all.",
        )


def _write_markers(items: Iterable[Item]) -> None:
    for item in items:
        if isinstance(item, Marker):
            who = f"{item.source.name}: " if item.source.name else ""
            write_stderr(f"-- {who}{item.text}")


async def follow_to_end(options: ConsoleOptions, client: Client, ref: JobRef) -> int:
    """Print the log of a new job's rank 0 to its end; return the job's exit status."""
    sys.stdout.flush()
    reasons = JobReasons(ClusterMirror(client, ref.namespace), own_names)
    followed = FollowedJob(reasons, ref)
    watched = followed.watched
    try:
        async with aclosing(followed.targets()) as targets:
            await print_log(client, targets, Options(follow=True, first_rank=True))
    except NotFound:
        if watched.job is None or watched.is_gone:
            raise
    except asyncio.CancelledError:
        again = command_line(options, "logs", ref.name, "-f")
        write_stderr(f"-- {titles([ref])} runs on. To follow it again: {again}")
        raise
    await explain_failures(reasons, [watched])
    status = await watched.exit_status(client)
    write_problem(options, watched)
    return 1 if status is None else status
