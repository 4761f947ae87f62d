"""Watch jobs until they end, and return their exit status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

import msgspec

from k8s.client.client import Client
from k8s.jobs.create import resource_of
from k8s.kinds import JobRef
from k8s.models import Pod, convert
from k8s.models.resources import PODS
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.status.pod import ended_at, exit_code
from k8s.text.errors import KubeError, NotFound
from tui.commands.support.job_name import titles
from tui.commands.support.output import write_stderr
from tui.settings.options import ConsoleOptions, command_line

# Pods of a failed job to read again if the watch has not seen them end.
MAX_READ = 16
SETTLE_S = 2.0


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
