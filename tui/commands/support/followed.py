"""Watch jobs to their end, for their exit status and their logs: lines to stdout, notices to stderr."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import cast

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.jobs.create import resource_of
from k8s.kinds import JobRef
from k8s.logs import Item, JobRanks, LinePrinter, LogLine, Marker, Options, Target, find_ranks, targets_of
from k8s.logs.lines import rfc3339
from k8s.logs.read import read
from k8s.logs.tail import MAX_PROBED, read_tail
from k8s.models import Pod, convert
from k8s.models.resources import PODS
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.status.pod import ended_at, exit_code
from k8s.text.errors import KubeError, NotFound
from tui.commands.support.job_name import titles
from tui.commands.support.output import write_stderr
from tui.settings.options import ConsoleOptions, command_line
from tui.tables.filters import own_names
from tui.terminal.closed_pipe import ended_by_closed_pipe

# Pods of a failed job to read again if the watch has not seen them end.
MAX_READ = 16
SETTLE_S = 2.0
# Pods named by a message.
MAX_NAMED = 8


@dataclass(slots=True)
class WatchedJob:
    """A job and its last seen state."""

    ref: JobRef
    job: Job | None = None
    """None until it is seen."""
    is_gone: bool = False
    """It was deleted; `job` is its last state."""
    instances: dict[str, Instance] = field(default_factory=dict)
    """Last seen pod of each instance; pods may be deleted before the job ends."""

    def update(self, job: Job | None) -> None:
        """Record the newest state; None if the job was deleted."""
        self.is_gone = job is None or (self.job is not None and self.job.uid != job.uid)
        if job is not None and not self.is_gone:
            self.job = job
            self.instances.update({each.name: each for each in job.instances if each.pod})

    async def exit_status(self, client: Client) -> int | None:
        """Return the job's exit status; None until it has ended, 1 if it was deleted."""
        if self.is_gone:
            return 1
        if self.job is None or not self.job.exit_status:
            return None if self.job is None else self.job.exit_status
        seen = [each if each.pod else self.instances.get(each.name, each) for each in self.job.instances]
        # The watch may see the job fail before its pods.
        unseen = [each for each in seen if each.pod and each.exit_code is None]
        unseen.sort(key=lambda each: not each.is_chief)
        found = await asyncio.gather(*(_read_again(client, self.ref, each) for each in unseen[:MAX_READ]))
        by_name = {each.name: each for each in (*seen, *found)}
        return replace(self.job, instances=tuple(by_name.values())).exit_status


async def watch_jobs(
    reasons: JobReasons, watched: Iterable[WatchedJob], on_trouble: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[None, None]:
    """Update the jobs and yield after each change, never while the cluster is unreachable.

    Args:
        reasons: Reasons and mirror of the jobs' cluster.
        watched: Iterated after each change, so jobs may be dropped in between.
        on_trouble: Receives the reason, in a word or two, if the cluster cannot be watched, then "".
    """
    reasons.max_hidden, mirror = 0, reasons.mirror
    snapshots: asyncio.Queue[ClusterSnapshot | None] = asyncio.Queue()
    mirroring = asyncio.create_task(mirror.run(snapshots.put_nowait))
    mirroring.add_done_callback(lambda _: snapshots.put_nowait(None))
    trouble = ""
    try:
        while (snapshot := await snapshots.get()) is not None:
            current = [each for each in watched if mirror.is_current(each.ref)]
            problem = "" if current else snapshot.trouble
            if problem != trouble:
                trouble = problem
                on_trouble(trouble)
            for each in current:
                job = snapshot.job(each.ref)
                # It may not be listed yet, although it or its pods exist.
                if job is not None or not await _exists(mirror.client, each.ref):
                    each.update(job)
            if current:
                yield
        await mirroring  # raises: it ends only with an error
    finally:
        mirroring.cancel()


def _has_pods_to_end(watched: WatchedJob) -> bool:
    job = None if watched.is_gone else watched.job
    return job is not None and any(each.pod and not each.status.is_final for each in job.instances)


async def explain_failures(reasons: JobReasons, watched: Iterable[WatchedJob]) -> None:
    """Replace the reasons of failed jobs by those found in their logs, once their pods have ended, too.

    A job may be seen to fail before its pods; they have `SETTLE_S` seconds.
    """
    failed = {each.job.uid: each for each in watched if each.job is not None and each.job.status == "Failed"}
    if ending := [each for each in failed.values() if _has_pods_to_end(each)]:
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S), aclosing(watch_jobs(reasons, ending)) as changes:
                async for _ in changes:
                    if not any(map(_has_pods_to_end, ending)):
                        break
    if failed:
        snapshot = await reasons.explain_once([each.job for each in failed.values() if each.job is not None])
        for job in snapshot.jobs:
            if job.uid in failed:
                failed[job.uid].job = job


def write_problem(options: ConsoleOptions, watched: WatchedJob) -> None:
    """Report that a job failed or was deleted, with the command that explains it."""
    job, title = watched.job, titles([watched.ref])
    if watched.is_gone:
        write_stderr(f"{title} was deleted before it ended.")
    elif job is not None and job.status == "Failed":
        write_stderr(f"{title} failed: {job.reason or 'no reason is given'}.".replace("..", "."))
        if options.is_all_namespaces:
            options = replace(options, namespace=job.ref.namespace)
        write_stderr(f"To see why: {command_line(options, 'why', job.ref.name)}")


async def _exists(client: Client, ref: JobRef) -> bool:
    try:
        await client.get(resource_of(ref), ref.name, ref.namespace)
    except KubeError as error:
        return not isinstance(error, NotFound)
    return True


async def _read_again(client: Client, ref: JobRef, instance: Instance) -> Instance:
    with suppress(KubeError, msgspec.ValidationError):  # it may be gone, or forbidden
        pod: Pod = convert(await client.get(PODS, instance.pod, ref.namespace), Pod)
        code = exit_code(pod, instance.containers[0] if instance.containers else "")
        if pod.metadata.uid == instance.pod_uid and code is not None:
            return msgspec.structs.replace(instance, exit_code=code, finished=ended_at(pod))
    return instance


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
    wanted = replace(wanted, raw=not (timestamps or is_terminal))
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
