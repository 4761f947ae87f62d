"""Reasons of waiting and failed jobs, which replace the scheduler's message or the exit code.

Waiting jobs are explained while they are visible. The logs of failed and restarting jobs are read once
per failure, for visible jobs and for the user's own, because notices quote the reason.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k8s.client.client import Client
from k8s.client.rate_limiter import background_requests
from k8s.cluster.joiner import Rows
from k8s.errors import KubeError
from k8s.kinds import DeclaredJob
from k8s.models import Node, Pod
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from tui.jobs.filters import own_names

if TYPE_CHECKING:
    from k8s.diagnosis.failures import FailureCause, Triage
    from k8s.diagnosis.failures.log_tails import LogTails
    from k8s.diagnosis.pending import PendingReasons

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
_WAITING = (Status.PENDING, Status.STARTING)


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Current objects from which reasons are derived."""

    snapshot: ClusterSnapshot
    jobs: Sequence[Job]
    """Jobs of all namespaces, without the reasons of this feed."""
    nodes: Sequence[Node]
    pods: Mapping[str, Pod]
    """By UID."""


class ReasonFeed:
    """Fetched reasons of jobs."""

    def __init__(
        self,
        client: Client,
        mirrored: Callable[[], Mirrored],
        visible: Callable[[], Iterable[Job]],
        on_change: Callable[[], None],
    ) -> None:
        """Prepare; no request is sent before `run` or `explain_once`.

        `on_change` is called when a job has a new reason.
        """
        self.causes: Sequence[FailureCause] | None = None
        """Known causes of failures; None for the built-in ones."""
        self.max_hidden = MAX_HIDDEN
        self._client, self._mirrored, self._visible, self._on_change = client, mirrored, visible, on_change
        self._reasons: PendingReasons | None = None
        self._tails: LogTails | None = None
        self._explained_at_s: dict[str, float] = {}
        self._failures_read: dict[str, object] = {}
        self._failures_known: dict[str, object] = {}

    def steps(self, rows: Rows, nodes: Iterable[Node], declared: Iterable[DeclaredJob]) -> Iterable[None]:
        """Explain the rows from mirrored objects and fetched answers, as `PendingReasons.steps` does."""
        if self._reasons is None:
            if not any(job.status is Status.PENDING for job in rows[1]):
                return ()
            self._reasons = self._new_reasons()
        return self._reasons.steps(rows[1], nodes, rows[0], declared)

    def _new_reasons(self) -> PendingReasons:
        # Slow to import, and not needed while no job is pending or failed.
        from k8s.diagnosis.pending import PendingReasons

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
            mirrored = self._mirrored()
            if mirrored.snapshot.is_synced and not mirrored.snapshot.stale:
                visible = list(self._visible())
                outdated = sorted(
                    (at_s, job.uid)
                    for job in visible
                    if job.status in _WAITING
                    and (at_s := self._explained_at_s.get(job.uid, -math.inf)) + EXPLAIN_S <= began_s
                )
                with background_requests():
                    await self._explain_waiting(mirrored, [uid for _, uid in outdated[:MAX_EXPLAINED]])
                    for job in self._unread_failures(mirrored, {job.uid for job in visible}):
                        await self._read_failure(job, mirrored.pods)
            await asyncio.sleep(max(POLL_VISIBLE_S, IDLE_FACTOR * (clock() - began_s)))

    async def explain_once(self, jobs: Iterable[Job], max_failed: int = MAX_FAILED) -> None:
        """Explain the first waiting and the newest failed of these jobs."""
        jobs, mirrored = list(jobs), self._mirrored()
        waiting = {job.uid for job in jobs if job.status in _WAITING}
        failed = {job.uid for job in jobs if job.status.has_failed}
        with suppress(TimeoutError):
            async with asyncio.timeout(FAILED_S):
                newest = _newest(job for job in mirrored.jobs if job.uid in failed)[:max_failed]
                await asyncio.gather(*(self._read_failure(job, mirrored.pods) for job in newest))
        found = [job.uid for job in mirrored.jobs if job.uid in waiting]
        await self._explain_waiting(mirrored, found[:MAX_EXPLAINED])

    async def _explain_waiting(self, mirrored: Mirrored, uids: Sequence[str]) -> None:
        if not uids:
            return
        from k8s.diagnosis.gather import answer_why
        from k8s.diagnosis.pending import is_waiting_job
        from k8s.reasons.fetcher import Fetcher

        now_s = asyncio.get_running_loop().time()
        recent = {uid: at_s for uid, at_s in self._explained_at_s.items() if now_s - at_s < EXPLAIN_S}
        self._explained_at_s = recent | dict.fromkeys(uids, now_s)
        reasons = self._reasons = self._new_reasons()
        fetcher = Fetcher(self._client)
        jobs = [
            job
            for job in mirrored.jobs
            if job.uid in uids and is_waiting_job(job) and not reasons.has_shortage(job.uid)
        ]
        with suppress(KubeError):  # a lost connection is reported elsewhere
            for job in jobs:
                answer = await answer_why(self._client, job, mirrored.snapshot, fetcher, mirrored.nodes)
                reasons.remember(job, answer)
                self._on_change()

    def _unread_failures(self, mirrored: Mirrored, visible: set[str]) -> list[Job]:
        failed = [job for job in mirrored.jobs if job.status.has_failed]
        if not failed:
            return []
        names = own_names(mirrored.snapshot.user)
        own = _newest(job for job in failed if job.user in names and job.uid not in visible)
        wanted = [*(job for job in failed if job.uid in visible), *own[: self.max_hidden]]
        uids = {job.uid for job in failed}
        for read in (self._failures_read, self._failures_known):
            for uid in read.keys() - uids:
                del read[uid]
        return [job for job in wanted if self._failures_read.get(job.uid) != _attempt(job)][:MAX_EXPLAINED]

    async def _read_failure(self, job: Job, pods: Mapping[str, Pod]) -> None:
        from k8s.diagnosis.answer import Answer
        from k8s.diagnosis.failures import CAUSES
        from k8s.diagnosis.failures.log_tails import LogTails
        from k8s.diagnosis.rules import brief_reason

        self._failures_read[job.uid] = _attempt(job)
        tails = self._tails = self._tails or LogTails(self._client)
        found = [pods[each.pod_uid] for each in job.instances if each.pod_uid in pods]
        statuses = {pod.metadata.name: pod.status for pod in found}
        failure = await tails.triage(job, statuses, CAUSES if self.causes is None else self.causes)
        self._failures_known[job.uid] = _attempt(job)
        if failure is not None:
            reasons = self._reasons = self._new_reasons()
            reasons.remember(
                job, Answer(str(job.status), "", brief=brief_reason(job, failure), triage=failure)
            )
        self._on_change()


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
