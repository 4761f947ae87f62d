"""Delete, suspend and resume jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.snapshot import Job
from tui.jobs.change_plans import ChangePlan


class Ui(Protocol):
    """Asks the user and reports to them: dialogs and notices, or a prompt and lines."""

    async def confirm(self, plan: ChangePlan) -> ChangePlan | None:
        """Report why jobs cannot be changed, and ask; return the plan to carry out, or None."""

    def report(self, jobs: Sequence[Job], words: str) -> None:
        """Report what happened to jobs, such as `is being deleted.`."""

    def fail(self, error: KubeError) -> None:
        """Report a failed change."""


async def delete(
    client: Client, plan: ChangePlan, ui: Ui, record: Callable[[Sequence[Job]], Awaitable[None]]
) -> ChangePlan | None:
    """Delete jobs after confirmation; `record` keeps records of their runs first.

    Returns:
        The confirmed plan with the jobs that were deleted; None if it was declined.
    """
    if (confirmed := await ui.confirm(plan)) is None:
        return None
    from k8s.jobs.create import delete_job  # slow to import: the question comes first

    await record(confirmed.jobs)

    async def end(job: Job) -> None:
        await delete_job(client, job.ref, job.uid, propagation=confirmed.propagation)

    return await _change(confirmed, end, "is being deleted.", ui)


async def suspend(client: Client, plan: ChangePlan, ui: Ui) -> ChangePlan | None:
    """Suspend or resume jobs after confirmation; return the plan as `delete` does."""
    if (confirmed := await ui.confirm(plan)) is None:
        return None
    from k8s.jobs.modify import suspend_job

    is_suspended = plan.verb == "Suspend"
    done = "is being suspended." if is_suspended else "is being resumed."

    async def do(job: Job) -> None:
        await suspend_job(client, job.ref, job.uid, is_suspended=is_suspended)

    return await _change(confirmed, do, done, ui)


async def _change(
    plan: ChangePlan, change: Callable[[Job], Awaitable[None]], done: str, ui: Ui
) -> ChangePlan:
    # A failure does not stop the others. An interrupt does, but what was done is reported.
    reports: dict[str, list[Job]] = {}
    try:
        for job in plan.jobs:
            try:
                await change(job)
                reports.setdefault(done, []).append(job)
            except NotFound:
                reports.setdefault("is already gone.", []).append(job)
            except KubeError as error:
                ui.fail(error)
    finally:
        for words, jobs in reports.items():
            ui.report(jobs, words)
    return replace(plan, jobs=tuple(reports.get(done, ())))
