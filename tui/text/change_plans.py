"""Effects of deleting, suspending and resuming jobs, for the confirmation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from k8s.jobs.modify import why_not
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.text.format import plural

# More jobs are deleted only after typing a word.
MOST_WITHOUT_TYPING = 5
_MOST_NAMED = 10
Verb = Literal["Delete", "Suspend", "Resume"]
# The API's propagationPolicy.
Propagation = Literal["Background", "Foreground", "Orphan"]
# The default first.
PROPAGATIONS: Mapping[Propagation, str] = {
    "Background": "jobs now, pods afterwards",
    "Foreground": "pods first, jobs last",
    "Orphan": "jobs only; pods keep running and hold their GPUs",
}


class ChangePlan(msgspec.Struct, frozen=True):
    """Jobs to change, as they were when the user requested it."""

    verb: Verb
    jobs: tuple[Job, ...]
    """The jobs; empty if there is nothing to do."""
    hidden: int = 0
    """Number of these jobs that are marked but hidden by a filter."""
    problems: tuple[KubeError, ...] = ()
    """One error for each requested job that cannot be changed."""
    context: str = ""
    propagation: Propagation = "Background"

    @property
    def pods(self) -> tuple[Instance, ...]:
        """The instances that have pods."""
        return tuple(each for job in self.jobs for each in pods_of(job))

    @property
    def running(self) -> int:
        """Return the number of unfinished pods."""
        return sum(not each.status.is_final for each in self.pods)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs the jobs hold."""
        return sum(job.gpus_allocated for job in self.jobs)

    @property
    def question(self) -> str:
        """The question: `Delete 3 jobs?`."""
        return f"{self.verb} {plural(len(self.jobs), 'job')}?"

    @property
    def word(self) -> str:
        """Return the word to type as confirmation; empty if yes is enough."""
        is_typed = self.verb == "Delete" and len(self.jobs) > MOST_WITHOUT_TYPING
        return f"delete {len(self.jobs)}" if is_typed else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the jobs with their statuses; the first ones if there are many."""
        named = [_line(job) for job in self.jobs[:_MOST_NAMED]]
        if len(self.jobs) > _MOST_NAMED:
            named.append(f"and {len(self.jobs) - _MOST_NAMED} more")
        if self.hidden:
            named.append(
                f"{self.hidden} of these {'is' if self.hidden == 1 else 'are'} hidden by the filter."
            )
        return tuple(named)

    @property
    def consequences(self) -> tuple[str, ...]:
        """Return sentences that name what is lost, what is kept, and the jobs that are skipped."""
        skipped = [sanitize(f"{each.what} {each.why}") for each in self.problems[:_MOST_NAMED]]
        if len(self.problems) > _MOST_NAMED:
            skipped.append(f"and {len(self.problems) - _MOST_NAMED} more are skipped.")
        return *self._effects, *skipped

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the jobs, then the consequences."""
        return *self.names, "", *self.consequences

    @property
    def sentence(self) -> str:
        """The question with names, and the consequences, for the command line."""
        return f"{self.verb} {', '.join(map(_title, self.jobs))}? {' '.join(self._effects)}"

    @property
    def _effects(self) -> tuple[str, ...]:
        if self.verb == "Delete":
            return _DELETED[self.propagation](self), "Volume claims and their files are kept."
        if self.verb == "Suspend":
            return _deleted_pods(self), "Progress since the last checkpoint is lost."
        wanted = plural(sum(job.gpus_requested for job in self.jobs), "GPU")
        return (f"Starts over, from the last checkpoint if it loads one, and requests {wanted}.",)


def delete_plan(
    snapshot: ClusterSnapshot,
    refs: Iterable[JobRef],
    *,
    propagation: Propagation = "Background",
    hidden: int = 0,
) -> ChangePlan:
    """Return the effects of deleting these jobs; those already gone are left out.

    Args:
        snapshot: The newest snapshot.
        refs: The jobs, in order.
        propagation: The propagation policy.
        hidden: Number of these jobs that are marked but hidden by a filter.
    """
    by_ref = {job.ref: job for job in reversed(snapshot.jobs)}
    jobs = tuple(by_ref[ref] for ref in dict.fromkeys(refs) if ref in by_ref)
    return ChangePlan("Delete", jobs, min(hidden, len(jobs)), (), snapshot.context, propagation)


def suspend_plan(jobs: Iterable[Job], *, is_suspended: bool, hidden: int = 0) -> ChangePlan:
    """Return the effects of suspending or resuming these jobs; `hidden` of them are hidden by a filter."""
    verb: Verb = "Suspend" if is_suspended else "Resume"
    answers = [(job, why_not(job, is_suspended=is_suspended)) for job in jobs]
    errors = [
        KubeError(f"Could not {verb.lower()} {job.ref.kind} {job.ref.name}.", why)
        for job, why in answers
        if why
    ]
    changed = tuple(job for job, why in answers if not why)
    return ChangePlan(verb, changed, min(hidden, len(answers)), tuple(errors))


def pods_of(job: Job) -> tuple[Instance, ...]:
    """Return the instances of a job that have a pod."""
    return tuple(each for each in job.instances if each.pod)


def _title(job: Job) -> str:
    return sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}")


def _line(job: Job) -> str:
    pods = len(pods_of(job))
    has = [plural(pods, "pod")] if pods else []
    has += [plural(job.gpus_allocated, "GPU")] if job.gpus_allocated else []
    return f"{_title(job)}  {', '.join([str(job.status), *has])}"


def _deleted_pods(plan: ChangePlan) -> str:
    pods = len(plan.pods)
    if not pods:
        return "There are no pods to delete."
    finished = pods - plan.running
    noun = "finished pod" if finished == pods else "pod"
    some = f" ({finished} finished)" if 0 < finished < pods else ""
    logs = "its logs" if pods == 1 else "their logs"
    freed = f", and frees {plural(plan.gpus, 'GPU')}" if plan.gpus and finished < pods else ""
    return f"Deletes {plural(pods, noun)}{some} and {logs}{freed}."


def _foreground(plan: ChangePlan) -> str:
    return f"{_deleted_pods(plan)} The jobs stay listed until their pods are gone."


def _orphan(plan: ChangePlan) -> str:
    if not plan.running:
        return "Deletes the jobs only: finished pods and their logs are kept."
    verbs = ("keeps", "holds", "is") if plan.running == 1 else ("keep", "hold", "are")
    held = f", {verbs[1]} {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    pods = plural(plan.running, "pod")
    return f"Deletes the jobs only: {pods} {verbs[0]} running{held} and {verbs[2]} no longer managed."


_DELETED: Mapping[Propagation, Callable[[ChangePlan], str]] = {
    "Background": _deleted_pods,
    "Foreground": _foreground,
    "Orphan": _orphan,
}
