"""One log of a job, from near its end: whose it is, and how it is read, for a pane that shows one."""

from __future__ import annotations

from dataclasses import dataclass

from k8s.client.client import Client
from k8s.logs import JobLogs, LogRequest, LogSelection, Target, targets_of
from k8s.snapshot import Job

TAIL = LogRequest(tail=500)
"""Where it begins."""


@dataclass(frozen=True, slots=True)
class TailChoice:
    """One rank of a job, or one instance of which no rank is known, and the container that says it."""

    selection: LogSelection
    target: Target


def choices(job: Job) -> list[TailChoice]:
    """Return what can be shown of a job: its ranks in order, then the instances without a rank."""
    ranked: list[TailChoice] = []
    others: list[TailChoice] = []
    for target in targets_of(job):
        if target.prints_all_ranks or not target.ranks:
            others.append(TailChoice(LogSelection(instance=target.name), target))
        ranked += [TailChoice(LogSelection(rank=rank), target) for rank in target.ranks]
    return [*sorted(ranked, key=lambda each: each.selection.rank or 0), *others]


def choose(job: Job, wanted: LogSelection | None) -> TailChoice | None:
    """Return what is wanted of a job, else what its chief says first; None where it has no pod."""
    found = choices(job)
    if wanted is not None and (same := [each for each in found if each.selection == wanted]):
        return same[0]
    return min(found, key=lambda each: not each.target.is_chief, default=None)


def step(job: Job, wanted: LogSelection | None, steps: int) -> LogSelection | None:
    """Return what comes so many places after what is wanted, round and round."""
    found, now = choices(job), choose(job, wanted)
    return found[(found.index(now) + steps) % len(found)].selection if now is not None else None


def open_tail(client: Client, choice: TailChoice) -> JobLogs:
    """Return what reads this one log; it streams nothing else."""
    return JobLogs(client, [choice.target], request=TAIL, max_streams=1)
