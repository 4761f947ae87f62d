"""Print logs, lines to stdout and notices to stderr, and follow a job to its end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.jobs.create import resource_of
from k8s.kinds import JobRef
from k8s.logs import LogLine, Options, Target, printed, read, targets_of
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from tui.commands.support.connect import command_line
from tui.commands.support.job_name import titles
from tui.commands.support.output import write_stderr
from tui.feeds.cluster_feed import ClusterFeed
from tui.options import ConsoleOptions


class FollowedJob:
    """A job watched to its end, with its containers as they appear."""

    def __init__(self, feed: ClusterFeed, ref: JobRef, container: str = "") -> None:
        """Prepare to watch a job.

        Args:
            feed: The job's cluster.
            ref: The job.
            container: Name of the container in each pod; empty for the training container.
        """
        self.job: Job | None = None
        """Last seen state; None before it was seen, or after it was deleted."""
        self._feed = feed
        self._ref = ref
        self._container = container

    async def targets(self) -> AsyncGenerator[Sequence[Target], None]:
        """Yield the containers whenever they change, until the job ends.

        Raises:
            NotFound: The job ended or was deleted before it had a pod.
        """
        snapshots: asyncio.Queue[ClusterSnapshot | None] = asyncio.Queue()
        mirroring = asyncio.create_task(self._feed.run(snapshots.put_nowait))
        mirroring.add_done_callback(lambda _: snapshots.put_nowait(None))
        known: Sequence[Target] = ()
        said = ""
        try:
            while True:
                snapshot = await snapshots.get()
                if snapshot is None:
                    await mirroring  # it ends by an error only, and here that is seen
                    break
                if not snapshot.is_synced or snapshot.stale:
                    continue
                self.job = job = snapshot.job(self._ref)
                if job is None and await self._exists():
                    continue  # its pods were seen before it was, or it was created just now
                found = targets_of(job, container=self._container) if job is not None else ()
                if found and found != known:
                    known = found
                    yield found
                if job is None or job.status.is_final:
                    break
                if not known and job.reason != said:
                    said = job.reason
                    write_stderr(f"-- {titles([self._ref])} is waiting: {said}")
        finally:
            mirroring.cancel()
        if not known:
            raise NotFound(
                "There is no log to print.", f"{titles([self._ref])} ended, and its pods are gone."
            )

    async def _exists(self) -> bool:
        try:
            await self._feed.client.get(resource_of(self._ref), self._ref.name, self._ref.namespace)
        except NotFound:
            return False
        except KubeError:
            return True  # as far as can be told
        return True


async def print_log(
    client: Client,
    targets: Sequence[Target] | AsyncGenerator[Sequence[Target], None],
    wanted: Options,
    *,
    timestamps: bool = False,
) -> None:
    """Print the selected lines, prefixed with the instance if several are merged."""
    out, is_terminal = sys.stdout.buffer, sys.stdout.isatty()
    # Closed before `targets` is, which it reads: a write may fail in the middle.
    async with aclosing(read(client, targets, wanted)) as items:
        async for item in items:
            if isinstance(item, LogLine):
                out.write(printed(item, timestamps=timestamps, name=wanted.every, is_terminal=is_terminal))
                if wanted.follow:
                    out.flush()
            else:
                who = f"{item.source.name}: " if item.source.name else ""
                write_stderr(f"-- {who}{item.text}")


async def follow_to_end(options: ConsoleOptions, client: Client, ref: JobRef) -> int:
    """Print the log of a new job's rank 0 to its end; return 0 if the job succeeded, else 1."""
    sys.stdout.flush()
    followed = FollowedJob(ClusterFeed(client, ref.namespace), ref)
    try:
        async with aclosing(followed.targets()) as targets:
            await print_log(client, targets, Options(follow=True, first_rank=True))
    except NotFound:
        if followed.job is None:
            raise
    except asyncio.CancelledError:
        again = command_line(options, "logs", ref.name, "-f")
        write_stderr(f"-- {titles([ref])} runs on. To follow it again: {again}")
        raise
    job = followed.job
    if job is not None and job.status is Status.SUCCEEDED:
        return 0
    why = "was deleted before it ended" if job is None else f"failed: {job.reason or 'no reason is given'}"
    write_stderr(f"{titles([ref])} {why}.".replace("..", "."))
    if job is not None:
        write_stderr(f"To see why: {command_line(options, 'why', ref.name)}")
    return 1
