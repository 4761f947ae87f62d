"""A view of one job that finds out why the job waits, or did not end well."""

from __future__ import annotations

import asyncio

from textual import work

from k8s.client.client import Client
from k8s.diagnosis import answer_why
from k8s.errors import KubeError
from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.screens.job.job_actions import JobActions

WHY_REST_S = 10.0
"""Shortest time between two looks for why it waits."""


class ExplainedJob(JobActions):
    """Knows the sentence that explains how its job is; `redraw` is called when there is another."""

    def __init__(self, client: Client, ref: JobRef, *, why_rest_s: float = WHY_REST_S) -> None:
        """Prepare; nothing is asked yet. See `JobView` for what is given."""
        super().__init__()
        self.ref = ref
        self.why = ""
        """Why it waits, in a sentence; empty where there is nothing to explain."""
        self._client = client
        self._asked_about: tuple[str, ...] = ()
        self._why_rest_s = why_rest_s
        self._ask_again_at_s = 0.0

    def consider_why(self, job: Job | None) -> None:
        """Ask why it waits when that is not known yet; what is known is dropped when it is no longer so."""
        if job is None or not _waits(job):
            self._asked_about, self.why = (), ""
            return
        about = (str(job.status), job.reason)
        if self.snapshot.is_synced and not self.snapshot.stale and about != self._asked_about:
            self._asked_about = about
            self._ask_why(job)

    @work(group="why", exclusive=True)
    async def _ask_why(self, job: Job) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._ask_again_at_s - clock()))
        self._ask_again_at_s = clock() + self._why_rest_s
        try:
            answer = await answer_why(self._client, job, self.snapshot)
        except KubeError:
            return  # that the cluster is away is said elsewhere; the reason stays where this would be
        self.why = sanitize(answer.sentence)
        self.redraw()


def _waits(job: Job) -> bool:
    """Tell whether there is something to explain: it has not ended well, nor do all of its pods run."""
    if job.status is Status.RUNNING:
        return job.instances_running < len([each for each in job.instances if not each.status.is_final])
    return job.status is not Status.SUCCEEDED
