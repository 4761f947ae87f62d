"""Effects of suspending or resuming jobs, for the confirmation, and the jobs that are skipped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from k8s.jobs.modify import why_not
from k8s.snapshot import Job
from k8s.text.sanitize import sanitize
from tui.jobs.delete_plan import deleted_pods, hidden_text, pods_of
from tui.text.format import plural

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class SuspendPlan:
    """Jobs to suspend or resume."""

    jobs: tuple[Job, ...]
    refused: tuple[tuple[Job, str], ...]
    """The skipped jobs, each with a reason."""
    is_suspended: bool
    """True to suspend, False to resume."""
    hidden: int = 0
    """Number of these jobs that are marked but hidden by a filter."""

    @property
    def question(self) -> str:
        """The question: `Suspend 3 jobs?`."""
        return f"{self._verb} {plural(len(self.jobs), 'job')}?"

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the jobs, the consequences, and the skipped jobs."""
        named = [_title(job) for job in self.jobs[:_MOST_NAMED]]
        if len(self.jobs) > _MOST_NAMED:
            named.append(f"and {len(self.jobs) - _MOST_NAMED} more")
        skipped = [f"{_title(job)} is skipped: {sanitize(why)}" for job, why in self.refused[:_MOST_NAMED]]
        if len(self.refused) > _MOST_NAMED:
            skipped.append(f"and {len(self.refused) - _MOST_NAMED} more are skipped.")
        return (*named, *hidden_text(self.hidden), "", self._consequence, *skipped)

    @property
    def sentence(self) -> str:
        """The question and the consequence in one sentence, for the command line."""
        names = ", ".join(map(_title, self.jobs))
        return f"{self._verb} {names}? {self._consequence}"

    @property
    def _verb(self) -> str:
        return "Suspend" if self.is_suspended else "Resume"

    @property
    def _consequence(self) -> str:
        if not self.is_suspended:
            wanted = plural(sum(job.gpus_requested for job in self.jobs), "GPU")
            return f"Starts over, from the last checkpoint if it loads one, and requests {wanted}."
        pods = [each for job in self.jobs for each in pods_of(job)]
        finished = sum(each.status.is_final for each in pods)
        gpus = sum(job.gpus_allocated for job in self.jobs)
        return f"{deleted_pods(len(pods), finished, gpus)} Progress since the last checkpoint is lost."


def suspend_plan(jobs: Iterable[Job], *, is_suspended: bool, hidden: int = 0) -> SuspendPlan:
    """Return the effects of suspending or resuming these jobs; `hidden` of them are hidden by a filter."""
    answers = [(job, why_not(job, is_suspended=is_suspended)) for job in jobs]
    return SuspendPlan(
        tuple(job for job, why in answers if not why),
        tuple((job, why) for job, why in answers if why),
        is_suspended,
        hidden,
    )


def _title(job: Job) -> str:
    return sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}")
