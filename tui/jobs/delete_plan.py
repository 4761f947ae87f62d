"""Effects of deleting jobs, for the confirmation in the console and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.text.sanitize import sanitize
from tui.text.format import plural

# More jobs are deleted only after typing a word.
MOST_WITHOUT_TYPING = 5
_MOST_NAMED = 10
# The API's propagationPolicy.
Propagation = Literal["Background", "Foreground", "Orphan"]
# The default first.
PROPAGATIONS: Mapping[Propagation, str] = {
    "Background": "jobs now, pods afterwards",
    "Foreground": "pods first, jobs last",
    "Orphan": "jobs only; pods keep running and hold their GPUs",
}


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """Jobs to delete, as they were when the user requested it."""

    context: str
    jobs: tuple[Job, ...]
    propagation: Propagation = "Background"
    hidden: int = 0
    """Number of these jobs that are marked but hidden by a filter."""

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
        return f"Delete {plural(len(self.jobs), 'job')}?"

    @property
    def word(self) -> str:
        """Return the word to type as confirmation; empty for a few jobs."""
        return f"delete {len(self.jobs)}" if len(self.jobs) > MOST_WITHOUT_TYPING else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the jobs, then the consequences."""
        return *self.names, "", *self.consequences

    @property
    def names(self) -> tuple[str, ...]:
        """Return the jobs with their statuses; the first ones if there are many."""
        named = [_line(job) for job in self.jobs[:_MOST_NAMED]]
        if len(self.jobs) > _MOST_NAMED:
            named.append(f"and {len(self.jobs) - _MOST_NAMED} more")
        return (*named, *hidden_text(self.hidden))

    @property
    def consequences(self) -> tuple[str, ...]:
        """Return sentences that name the objects deleted and kept."""
        return _CONSEQUENCES[self.propagation](self), "Volume claims and their files are kept."

    @property
    def sentence(self) -> str:
        """The question and the consequences in one sentence, for the command line."""
        names = ", ".join(sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}") for job in self.jobs)
        return f"Delete {names}, {_ENDS[self.propagation](self)}?"


def delete_plan(
    snapshot: ClusterSnapshot,
    refs: Iterable[JobRef],
    *,
    propagation: Propagation = "Background",
    hidden: int = 0,
) -> DeletePlan:
    """Return the effects of deleting these jobs; those already gone are left out.

    Args:
        snapshot: The newest snapshot.
        refs: The jobs, in order.
        propagation: The propagation policy.
        hidden: Number of these jobs that are marked but hidden by a filter.
    """
    by_ref = {job.ref: job for job in reversed(snapshot.jobs)}
    jobs = tuple(by_ref[ref] for ref in dict.fromkeys(refs) if ref in by_ref)
    return DeletePlan(snapshot.context, jobs, propagation, min(hidden, len(jobs)))


def pods_of(job: Job) -> tuple[Instance, ...]:
    """Return the instances of a job that have a pod."""
    return tuple(each for each in job.instances if each.pod)


def hidden_text(hidden: int) -> tuple[str, ...]:
    """Describe the number of jobs hidden in the list; empty for none."""
    return (f"{hidden} of these {'is' if hidden == 1 else 'are'} hidden by the filter.",) if hidden else ()


def _line(job: Job) -> str:
    pods = len(pods_of(job))
    has = [plural(pods, "pod")] if pods else []
    has += [plural(job.gpus_allocated, "GPU")] if job.gpus_allocated else []
    said = ", ".join([str(job.status), *has])
    return sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}  {said}")


def deleted_pods(pods: int, finished: int, gpus: int) -> str:
    """Describe the deleted pods: `Deletes 4 pods (1 finished) and their logs, and frees 24 GPUs.`."""
    if not pods:
        return "There are no pods to delete."
    noun = "finished pod" if finished == pods else "pod"
    some = f" ({finished} finished)" if 0 < finished < pods else ""
    logs = "its logs" if pods == 1 else "their logs"
    freed = f", and frees {plural(gpus, 'GPU')}" if gpus and finished < pods else ""
    return f"Deletes {plural(pods, noun)}{some} and {logs}{freed}."


def _background(plan: DeletePlan) -> str:
    return deleted_pods(len(plan.pods), len(plan.pods) - plan.running, plan.gpus)


def _foreground(plan: DeletePlan) -> str:
    return f"{_background(plan)} The jobs stay listed until their pods are gone."


def _orphan(plan: DeletePlan) -> str:
    if not plan.running:
        return "Deletes the jobs only: finished pods and their logs are kept."
    verbs = ("keeps", "holds", "is") if plan.running == 1 else ("keep", "hold", "are")
    held = f", {verbs[1]} {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    pods = plural(plan.running, "pod")
    return f"Deletes the jobs only: {pods} {verbs[0]} running{held} and {verbs[2]} no longer managed."


_CONSEQUENCES: Mapping[Propagation, Callable[[DeletePlan], str]] = {
    "Background": _background,
    "Foreground": _foreground,
    "Orphan": _orphan,
}


def _with_pods(plan: DeletePlan) -> str:
    logs = "its logs" if len(plan.pods) == 1 else "their logs"
    freed = f", freeing {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    return f"with {plural(len(plan.pods), 'pod')} and {logs}{freed}"


def _without_pods(plan: DeletePlan) -> str:
    if not plan.running:
        return "but leave the finished pods"
    held = f", holding {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    return f"but leave {plural(plan.running, 'pod')} running{held}"


_ENDS: Mapping[Propagation, Callable[[DeletePlan], str]] = {
    "Background": _with_pods,
    "Foreground": _with_pods,
    "Orphan": _without_pods,
}
