"""Watch jobs until they end, and find the status with which they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.jobs.create import resource_of
from k8s.kinds import JobRef
from k8s.models import Pod, convert
from k8s.models.resources import PODS
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.status.pod import ended_at, exit_code
from tui.commands.support.connect import command_line
from tui.commands.support.job_name import titles
from tui.commands.support.output import write_stderr
from tui.feeds.cluster_feed import ClusterFeed
from tui.options import ConsoleOptions

# Pods of a failed job that are read again because the watch has not seen them end.
MAX_READ = 16


@dataclass(slots=True)
class WatchedJob:
    """A job and its last seen state."""

    ref: JobRef
    job: Job | None = None
    """None before it was seen."""
    is_gone: bool = False
    """It was deleted; `job` is its last state."""
    instances: dict[str, Instance] = field(default_factory=dict)
    """The last seen pod of each instance; the pods may be gone when the job has ended."""

    def update(self, job: Job | None) -> None:
        """Record the newest state; None if the job was deleted."""
        self.is_gone = job is None or (self.job is not None and self.job.uid != job.uid)
        if job is not None and not self.is_gone:
            self.job = job
            self.instances.update({each.name: each for each in job.instances if each.pod})

    async def exit_status(self, client: Client) -> int | None:
        """Return the exit status of the job as of a command; None before it ended, 1 if it was deleted."""
        if self.is_gone:
            return 1
        if self.job is None or not self.job.exit_status:
            return None if self.job is None else self.job.exit_status
        seen = [each if each.pod else self.instances.get(each.name, each) for each in self.job.instances]
        # The job's failure may be seen before the failure of its pods.
        unseen = [each for each in seen if each.pod and each.exit_code is None]
        unseen.sort(key=lambda each: not each.is_chief)
        found = await asyncio.gather(*(_read_again(client, self.ref, each) for each in unseen[:MAX_READ]))
        by_name = {each.name: each for each in (*seen, *found)}
        return replace(self.job, instances=tuple(by_name.values())).exit_status


async def watch_jobs(
    feed: ClusterFeed, watched: Iterable[WatchedJob], on_trouble: Callable[[str], None] = lambda _: None
) -> AsyncGenerator[None, None]:
    """Yield after each change of the cluster, with the jobs updated; never while it is unreachable.

    Args:
        feed: The jobs' cluster.
        watched: The jobs; read at each change, so that some may be left out meanwhile.
        on_trouble: Receives the reason, in a word or two, when the cluster cannot be watched, and "" when
            it can again.
    """
    feed.reasons.max_hidden = 0
    snapshots: asyncio.Queue[ClusterSnapshot | None] = asyncio.Queue()
    mirroring = asyncio.create_task(feed.run(snapshots.put_nowait))
    mirroring.add_done_callback(lambda _: snapshots.put_nowait(None))
    trouble = ""
    try:
        while (snapshot := await snapshots.get()) is not None:
            current = [each for each in watched if feed.is_current(each.ref)]
            problem = "" if current else snapshot.trouble
            if problem != trouble:
                trouble = problem
                on_trouble(trouble)
            for each in current:
                job = snapshot.job(each.ref)
                # Its pods may be seen before it is, or it was created just now.
                if job is not None or not await _exists(feed.client, each.ref):
                    each.update(job)
            if current:
                yield
        await mirroring  # it ends by an error only
    finally:
        mirroring.cancel()


async def explain_failures(feed: ClusterFeed, watched: Iterable[WatchedJob]) -> None:
    """Read why failed jobs failed, for their reasons."""
    failed = {each.job.uid: each for each in watched if each.job is not None and each.job.status == "Failed"}
    if not failed:
        return
    snapshot = await feed.explain_once([each.job for each in failed.values() if each.job is not None])
    for job in snapshot.jobs:
        if job.uid in failed:
            failed[job.uid].job = job


def write_problem(options: ConsoleOptions, watched: WatchedJob) -> None:
    """Report that a job failed or was deleted, and the command that explains it; nothing for others."""
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
    except NotFound:
        return False
    except KubeError:
        return True  # as far as can be told
    return True


async def _read_again(client: Client, ref: JobRef, instance: Instance) -> Instance:
    with suppress(KubeError, msgspec.ValidationError):  # it may be gone, or forbidden
        pod: Pod = convert(await client.get(PODS, instance.pod, ref.namespace), Pod)
        code = exit_code(pod, instance.containers[0] if instance.containers else "")
        if pod.metadata.uid == instance.pod_uid and code is not None:
            return msgspec.structs.replace(instance, exit_code=code, finished=ended_at(pod))
    return instance
