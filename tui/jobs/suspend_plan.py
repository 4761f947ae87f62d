"""What is asked before jobs are suspended or resumed: which they are, which cannot be, and what it does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from k8s.jobs.suspend import why_not
from k8s.snapshot import Job
from k8s.text.sanitize import sanitize
from tui.jobs.delete_plan import hidden_words, pods_of
from tui.text.format import plural

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class SuspendPlan:
    """Jobs that are to be suspended, or resumed."""

    jobs: tuple[Job, ...]
    """Those with which it can be tried."""
    refused: tuple[tuple[Job, str], ...]
    """The others, each with why not, as a sentence."""
    is_suspended: bool
    """What they are to be."""
    hidden: int = 0
    """How many of those that were meant are not to be seen where they were marked."""

    @property
    def question(self) -> str:
        """Return what is asked: `Suspend 3 jobs?`."""
        return f"{self._verb} {plural(len(self.jobs), 'job')}?"

    @property
    def lines(self) -> tuple[str, ...]:
        """Return what to read before answering: the jobs, what it does, and which are left as they are."""
        named = [_title(job) for job in self.jobs[:_MOST_NAMED]]
        if len(self.jobs) > _MOST_NAMED:
            named.append(f"and {len(self.jobs) - _MOST_NAMED} more")
        left = [f"{_title(job)} stays as it is: {sanitize(why)}" for job, why in self.refused[:_MOST_NAMED]]
        if len(self.refused) > _MOST_NAMED:
            left.append(f"and so do {len(self.refused) - _MOST_NAMED} more.")
        return (*named, *hidden_words(self.hidden), "", self._consequence, *left)

    @property
    def sentence(self) -> str:
        """Return it as one question, for a command line."""
        names = ", ".join(map(_title, self.jobs))
        return f"{self._verb} {names}? {self._consequence}"

    @property
    def _verb(self) -> str:
        return "Suspend" if self.is_suspended else "Resume"

    @property
    def _consequence(self) -> str:
        if not self.is_suspended:
            wanted = plural(sum(job.gpus_requested for job in self.jobs), "GPU")
            return f"It starts anew, from its last checkpoint if it reads one, and asks for {wanted}."
        pods = sum(len(pods_of(job)) for job in self.jobs)
        gpus = sum(job.gpus_allocated for job in self.jobs)
        they, their = ("it has", "its") if pods == 1 else ("they have", "their")
        freed = f" and {plural(gpus, 'GPU')} freed" if gpus else ""
        ended = f"{plural(pods, 'pod')} will be ended{freed}"
        return f"{ended}; what {they} not saved is lost, and {their} logs go."


def suspend_plan(jobs: Iterable[Job], *, is_suspended: bool, hidden: int = 0) -> SuspendPlan:
    """Return what suspending, or resuming, these jobs means; `hidden` of them cannot be seen in the list."""
    answers = [(job, why_not(job, is_suspended=is_suspended)) for job in jobs]
    return SuspendPlan(
        tuple(job for job, why in answers if not why),
        tuple((job, why) for job, why in answers if why),
        is_suspended,
        hidden,
    )


def _title(job: Job) -> str:
    return sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}")
