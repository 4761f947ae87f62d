"""What is asked before jobs are deleted: which they are, what goes with them, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Instance, Job
from k8s.text.sanitize import sanitize
from tui.text.format import plural

MOST_WITHOUT_TYPING = 5
"""Jobs that may be deleted by a button alone; for more the answer has to be typed."""
_MOST_NAMED = 10
Propagation = Literal["Background", "Foreground", "Orphan"]
"""What becomes of a job's pods, as the API calls it."""
PROPAGATIONS: Mapping[Propagation, str] = {
    "Background": "the jobs go at once, then their pods",
    "Foreground": "the pods go first, the jobs last",
    "Orphan": "the jobs alone go; their pods run on and hold their GPUs",
}
"""What can be chosen, the usual one first, and what each means."""


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """Jobs that are to be deleted, as they were when that was asked."""

    context: str
    """On which cluster."""
    jobs: tuple[Job, ...]
    propagation: Propagation = "Background"
    hidden: int = 0
    """How many of them are not to be seen where they were marked."""

    @property
    def pods(self) -> tuple[Instance, ...]:
        """Return the instances that have pods."""
        return tuple(each for job in self.jobs for each in pods_of(job))

    @property
    def running(self) -> int:
        """Return how many of them have not ended yet."""
        return sum(not each.status.is_final for each in self.pods)

    @property
    def gpus(self) -> int:
        """Return the GPUs that they hold now."""
        return sum(job.gpus_allocated for job in self.jobs)

    @property
    def question(self) -> str:
        """Return what is asked: `Delete 3 jobs?`."""
        return f"Delete {plural(len(self.jobs), 'job')}?"

    @property
    def word(self) -> str:
        """Return what has to be typed before it is done; nothing for a few jobs."""
        return f"delete {len(self.jobs)}" if len(self.jobs) > MOST_WITHOUT_TYPING else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return what to read before answering: the jobs, then what goes and what stays."""
        return *self.names, "", *self.consequences

    @property
    def names(self) -> tuple[str, ...]:
        """Return the jobs, each with how it is, or the first of very many."""
        named = [_line(job) for job in self.jobs[:_MOST_NAMED]]
        if len(self.jobs) > _MOST_NAMED:
            named.append(f"and {len(self.jobs) - _MOST_NAMED} more")
        return (*named, *hidden_words(self.hidden))

    @property
    def consequences(self) -> tuple[str, ...]:
        """Return what goes and what stays, in sentences."""
        return _CONSEQUENCES[self.propagation](self), "Volume claims stay, with what was written there."

    @property
    def sentence(self) -> str:
        """Return all of it as one question, for a command line."""
        names = ", ".join(sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}") for job in self.jobs)
        return f"Delete {names}, {_ENDS[self.propagation](self)}?"


def delete_plan(
    snapshot: ClusterSnapshot,
    refs: Iterable[JobRef],
    *,
    propagation: Propagation = "Background",
    hidden: int = 0,
) -> DeletePlan:
    """Return what deleting these jobs means; those that are gone already are left out.

    Args:
        snapshot: The newest picture.
        refs: The jobs, in the order in which they are named.
        propagation: What becomes of their pods.
        hidden: How many of them are marked but hidden by a filter.
    """
    by_ref = {job.ref: job for job in reversed(snapshot.jobs)}
    jobs = tuple(by_ref[ref] for ref in dict.fromkeys(refs) if ref in by_ref)
    return DeletePlan(snapshot.context, jobs, propagation, min(hidden, len(jobs)))


def pods_of(job: Job) -> tuple[Instance, ...]:
    """Return the instances of a job that have a pod."""
    return tuple(each for each in job.instances if each.pod)


def hidden_words(hidden: int) -> tuple[str, ...]:
    """Say how many of the jobs that are meant cannot be seen in the list; nothing where all can be."""
    return (f"{hidden} of these {'is' if hidden == 1 else 'are'} hidden by the filter.",) if hidden else ()


def _line(job: Job) -> str:
    pods = len(pods_of(job))
    has = [plural(pods, "pod")] if pods else []
    has += [plural(job.gpus_allocated, "GPU")] if job.gpus_allocated else []
    said = ", ".join([str(job.status), *has])
    return sanitize(f"{job.ref.kind} {job.ref.namespace}/{job.ref.name}  {said}")


def _going(plan: DeletePlan) -> str:
    pods, running = len(plan.pods), plan.running
    if not pods:
        return "There are no pods to end."
    logs = "its logs" if pods == 1 else "their logs"
    if not running:
        return f"{plural(pods, 'pod')} that {'has' if pods == 1 else 'have'} ended and {logs} go too."
    freed = f" and {plural(plan.gpus, 'GPU')} freed" if plan.gpus else ""
    return f"{plural(running, 'pod')} will be ended{freed}; {logs} go too."


def _pods_first(plan: DeletePlan) -> str:
    return f"{_going(plan)} The jobs stay in the list until their pods are gone."


def _running_on(plan: DeletePlan) -> str:
    if not plan.running:
        return "Only the jobs go: no pod of theirs runs, and those that have ended stay with their logs."
    one = plan.running == 1
    runs, holds, them = ("runs", "holds", "it") if one else ("run", "hold", "them")
    held = f" and {holds} {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    pods = plural(plan.running, "pod")
    return f"Only the jobs go: {pods} {runs} on{held}, and nobody ends {them} or starts {them} anew."


_CONSEQUENCES: Mapping[Propagation, Callable[[DeletePlan], str]] = {
    "Background": _going,
    "Foreground": _pods_first,
    "Orphan": _running_on,
}


def _freeing(plan: DeletePlan) -> str:
    logs = "its logs" if len(plan.pods) == 1 else "their logs"
    freed = f", freeing {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    return f"with {plural(len(plan.pods), 'pod')} and {logs}{freed}"


def _leaving(plan: DeletePlan) -> str:
    if not plan.running:
        return "but leave the pods, which have ended"
    held = f", holding {plural(plan.gpus, 'GPU')}" if plan.gpus else ""
    return f"but leave {plural(plan.running, 'pod')} running{held}"


_ENDS: Mapping[Propagation, Callable[[DeletePlan], str]] = {
    "Background": _freeing,
    "Foreground": _freeing,
    "Orphan": _leaving,
}
