"""Reasons of waiting and failed jobs, which replace the scheduler's message or the exit code.

Waiting jobs are explained while they are visible. The logs of failed and restarting jobs are read once
per failure, for visible jobs and for the user's own, because notices quote the reason.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.client.rate_limiter import background_requests
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.cluster.joiner import Rows
from k8s.kinds import DeclaredJob
from k8s.models import Node
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.status.job import HALF_ALLOCATED
from k8s.text.errors import KubeError

if TYPE_CHECKING:
    from k8s.logs import LogHub
    from k8s.reasons.failures import FailureCause, Triage
    from k8s.reasons.failures.log_tails import LogTails
    from k8s.reasons.pending import PendingReasons

# After each round, idle for this multiple of its duration.
IDLE_FACTOR = 4
# Shortest interval between two explanations of one pending job.
EXPLAIN_S = 30.0
# Interval at which the visible jobs are polled.
POLL_VISIBLE_S = 0.5
# Jobs to explain per round.
MAX_EXPLAINED = 16
# Limits of one command: failed jobs to read, and seconds for all of them.
MAX_FAILED, FAILED_S = 8, 5.0
# Newest failures of the user to read although they are hidden.
MAX_HIDDEN = 16
_WAITING = (Status.PENDING, Status.STARTING, Status.QUEUED)


class JobReasons:
    """Fetched reasons of a cluster's jobs, which its snapshots show."""

    def __init__(
        self,
        mirror: ClusterMirror,
        own_names: Callable[[str], Container[str]],
        causes: Sequence[FailureCause] | None = None,
    ) -> None:
        """Become the explainer of `mirror`; no request is sent before `run` or `explain_once`.

        Args:
            mirror: The cluster.
            own_names: Returns the names of the user, whose hidden failures are read, too, by that in the
                snapshot.
            causes: Known causes of failures; None for the built-in ones.
        """
        self.mirror = mirror
        self.causes = causes
        self.visible_jobs: Callable[[], Iterable[Job]] = tuple
        """Set by the view that shows jobs; their reasons are fetched."""
        self.hub: LogHub | None = None
        """Followed logs, whose held lines are not read again; None if none is followed."""
        self.name = ""  # if set, nothing is explained unless a job of that name is pending
        self.max_hidden = MAX_HIDDEN
        self.own_names = own_names
        self._reasons: PendingReasons | None = None
        self._tails: LogTails | None = None
        self._explained_at_s: dict[str, float] = {}
        self._failures_read: dict[str, object] = {}
        self._failures_known: dict[str, object] = {}
        mirror.explainer = self

    def steps(self, rows: Rows, nodes: Iterable[Node], declared: Iterable[DeclaredJob]) -> Iterable[None]:
        """Explain the rows from mirrored objects and fetched answers, as `PendingReasons.steps` does."""
        if self._reasons is None:
            if not any(job.status is Status.PENDING and self.name in ("", job.ref.name) for job in rows[1]):
                return ()
            self._reasons = self._new_reasons()
        return self._reasons.steps(rows[1], nodes, rows[0], declared)

    def _new_reasons(self) -> PendingReasons:
        # Slow to import, and not needed while no job is pending or failed.
        from k8s.reasons.pending import PendingReasons

        return self._reasons or PendingReasons()

    def shown(self, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """Return the jobs, with the reasons of those that were explained last."""
        return self._reasons.shown(jobs) if self._reasons is not None else jobs

    def has_read(self, job: Job) -> bool:
        """Return True if the logs of a failed job were read, so that its reason is final."""
        return self._failures_known.get(job.uid) == _attempt(job)

    def triage_of(self, uid: str) -> Triage | None:
        """Return the failure found for a job; None if there is none, or it was not read."""
        answer = self._reasons.answer(uid) if self._reasons is not None else None
        return answer.triage if answer is not None else None

    async def run(self) -> None:
        """Explain jobs until cancelled, in at most a fifth of the time."""
        clock = asyncio.get_running_loop().time
        while True:
            began_s = clock()
            snapshot = self.mirror.latest
            if snapshot.is_synced and not snapshot.stale:
                visible = list(self.visible_jobs())
                outdated = sorted(
                    (at_s, job.uid)
                    for job in visible
                    if job.status in _WAITING
                    and (at_s := self._explained_at_s.get(job.uid, -math.inf)) + EXPLAIN_S <= began_s
                )
                with background_requests():
                    await self._explain_waiting([uid for _, uid in outdated[:MAX_EXPLAINED]])
                    for job in self._unread_failures({job.uid for job in visible}):
                        await self._read_failure(job)
            await asyncio.sleep(max(POLL_VISIBLE_S, IDLE_FACTOR * (clock() - began_s)))

    async def explain_once(self, jobs: Iterable[Job]) -> ClusterSnapshot:
        """Explain the first waiting and the newest failed jobs, and return the snapshot with the reasons."""
        jobs, joined = list(jobs), self.mirror.joined_jobs
        waiting = {job.uid for job in jobs if job.status in _WAITING}
        failed = {job.uid for job in jobs if job.status.has_failed}
        with suppress(TimeoutError):
            async with asyncio.timeout(FAILED_S):
                newest = _newest(job for job in joined if job.uid in failed)[:MAX_FAILED]
                await asyncio.gather(*map(self._read_failure, newest))
        found = [job.uid for job in joined if job.uid in waiting]
        await self._explain_waiting(found[:MAX_EXPLAINED])
        return replace(self.mirror.snapshot(), is_synced=True)

    async def _explain_waiting(self, uids: Sequence[str]) -> None:
        if not uids:
            return
        from k8s.reasons.gather import answer_why
        from k8s.reasons.objects import Fetcher

        now_s = asyncio.get_running_loop().time()
        recent = {uid: at_s for uid, at_s in self._explained_at_s.items() if now_s - at_s < EXPLAIN_S}
        self._explained_at_s = recent | dict.fromkeys(uids, now_s)
        reasons = self._reasons = self._new_reasons()
        client, snapshot, nodes = self.mirror.client, self.mirror.latest, list(self.mirror.nodes)
        fetcher = Fetcher(client)
        jobs = [
            job
            for job in self.mirror.joined_jobs
            if job.uid in uids and job.status in _WAITING
            if not job.reason.startswith(HALF_ALLOCATED) and not reasons.has_shortage(job.uid)
        ]
        with suppress(KubeError):  # a lost connection is reported elsewhere
            for job in jobs:
                reasons.remember(job, await answer_why(client, job, snapshot, fetcher, nodes))
                self.mirror.publish_soon()

    def _unread_failures(self, visible: set[str]) -> list[Job]:
        failed = [job for job in self.mirror.joined_jobs if job.status.has_failed]
        if not failed:
            return []
        names = self.own_names(self.mirror.latest.user)
        own = _newest(job for job in failed if job.user in names and job.uid not in visible)
        wanted = [*(job for job in failed if job.uid in visible), *own[: self.max_hidden]]
        uids = {job.uid for job in failed}
        for read in (self._failures_read, self._failures_known):
            for uid in read.keys() - uids:
                del read[uid]
        return [job for job in wanted if self._failures_read.get(job.uid) != _attempt(job)][:MAX_EXPLAINED]

    async def _read_failure(self, job: Job) -> None:
        from k8s.reasons.cause import Cause
        from k8s.reasons.failures import CAUSES
        from k8s.reasons.failures.log_tails import LogTails
        from k8s.reasons.rules import brief_reason

        self._failures_read[job.uid] = _attempt(job)
        tails = self._tails = self._tails or LogTails(self.mirror.client, self.hub)
        pods = self.mirror.pods
        found = [pods[each.pod_uid] for each in job.instances if each.pod_uid in pods]
        statuses = {pod.metadata.name: pod.status for pod in found}
        failure = await tails.triage(job, statuses, CAUSES if self.causes is None else self.causes)
        self._failures_known[job.uid] = _attempt(job)
        if failure is not None:
            reasons = self._reasons = self._new_reasons()
            reasons.remember(job, Cause("", brief=brief_reason(job, failure), triage=failure))
        self.mirror.publish_soon()


def _newest(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=_end, reverse=True)


def _end(job: Job) -> float:
    end = job.finished or job.started or job.created
    return end.timestamp() if end is not None else math.inf


def _attempt(job: Job) -> object:
    # A final job fails only once, although its pods may be deleted later.
    if job.status.is_final:
        return job.status
    return job.restarts, tuple((each.pod_uid, each.restarts) for each in job.instances)
