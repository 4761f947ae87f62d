"""Selection of one log of a job, for a pane that shows its tail."""

from __future__ import annotations

import msgspec

from k8s.logs import LogRequest, LogSelection, Target, failed_selection, targets_of
from k8s.snapshot import Job

TAIL = LogRequest(tail=500)


class TailChoice(msgspec.Struct, frozen=True):
    """One rank of a job, or one instance with unknown ranks, and its container."""

    selection: LogSelection
    target: Target

    @property
    def place(self) -> tuple[LogSelection, str]:
        """The rank, and the instance that runs it."""
        return self.selection, self.target.name


def choices(job: Job) -> list[TailChoice]:
    """Return the logs of a job: its ranks in order, then instances without a rank."""
    ranked: list[TailChoice] = []
    others: list[TailChoice] = []
    for target in targets_of(job):
        if target.prints_all_ranks or not target.ranks:
            others.append(TailChoice(LogSelection(instance=target.name), target))
        ranked += [TailChoice(LogSelection(rank=rank), target) for rank in target.ranks]
    return [*sorted(ranked, key=lambda each: each.selection.rank or 0), *others]


def choose(job: Job, wanted: LogSelection | None) -> TailChoice | None:
    """Return the wanted log of a job, else that of its failure or chief; None without pods."""
    found, targets = choices(job), targets_of(job)
    if wanted is None and (failed := failed_selection(job, targets)) is not None and job.culprit:
        return TailChoice(failed, next(each for each in targets if each.name == job.culprit[0]))
    if wanted is not None and (same := [each for each in found if each.selection == wanted]):
        return same[0]
    return min(found, key=lambda each: not each.target.is_chief, default=None)


def step(job: Job, wanted: LogSelection | None, steps: int) -> LogSelection | None:
    """Return the selection `steps` places after the wanted one, cyclically."""
    found, now = choices(job), choose(job, wanted)
    if now is None:
        return None
    return found[(found.index(now) + steps) % len(found) if now in found else 0].selection
