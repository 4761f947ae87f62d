"""A scripted night of 30 jobs: 4 failures, a preemption, a lost node, and an unreachable API server.

The console is closed for three hours, with and without a recorder. Timeline and ledger equal the script
while it was observed, and show a gap elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from k8s.snapshot import Instance
from k8s.status import Status
from tests.support.scripted_cluster import CONTEXT, START_S, ScriptedCluster, at
from tui.runs.journal.database import Journal
from tui.runs.journal.history import read_timeline
from tui.runs.journal.ledger import read_ledger

HOUR = 3600
NIGHT_S, STEP_S = 10 * HOUR, 30
# The last answer came a step before the outage was noticed.
AWAY, CLOSED = (2 * HOUR - STEP_S, 3 * HOUR - STEP_S), (5 * HOUR, 8 * HOUR)
FAILED, PREEMPTED, LOST = (3, 11, 17, 22), 4, 9


class Step(NamedTuple):
    """A scripted change of a job."""

    at_s: int
    job: str
    status: Status
    fields: dict[str, Any]
    has_time: bool = True  # in its object

    @property
    def gpus(self) -> int:
        held: int = self.fields.get("gpus_allocated", 4 if self.status is Status.RUNNING else 0)
        return held


def worker(node: str, place: int) -> Instance:
    status = Status.RUNNING
    return Instance(
        f"worker-{place}", "worker", place, place == 0, (), "none", status, "", 2, node, 0, None, "", "", ()
    )


def script() -> list[Step]:
    """Return the changes of the night in order."""
    steps = []
    for number in range(30):
        name, created_s = f"job-{number}", number * 18 * 60 + 60
        started_s, ended_s = created_s + 300, created_s + HOUR + number * 120
        end = Status.FAILED if number in FAILED else Status.SUCCEEDED
        nodes = {"instances": (worker("a", 0), worker("b", 1))}
        steps += [Step(created_s, name, Status.PENDING, {"created": at(created_s)})]
        steps += [Step(started_s, name, Status.RUNNING, {"started": at(started_s), **nodes})]
        if number == PREEMPTED:
            reason = {"reason": "Preempted by job-99", "gpus_allocated": 0, "started": None, "instances": ()}
            steps += [Step(started_s + 900, name, Status.PENDING, reason, has_time=False)]
            again_s = started_s + 1_500
            steps += [Step(again_s, name, Status.RUNNING, {"started": at(again_s), **nodes})]
        if number == LOST:
            left = {"gpus_allocated": 2, "instances": (worker("a", 0),)}
            steps += [Step(started_s + 900, name, Status.RUNNING, left, has_time=False)]
        reason = {"reason": f"rank 0 exit {number}"} if number in FAILED else {"reason": ""}
        steps += [Step(ended_s, name, end, {"finished": at(ended_s), "gpus_allocated": 0, **reason})]
    return sorted((each for each in steps if each.at_s <= NIGHT_S), key=lambda each: each.at_s)


def is_observed(at_s: float, *, is_closed: bool) -> bool:
    gaps = [AWAY, CLOSED] if is_closed else [AWAY]
    return not any(start_s <= at_s < end_s for start_s, end_s in gaps)


def gpu_seconds(steps: Sequence[Step], *, is_closed: bool) -> dict[str, float]:
    """Add up what each job held in each observed step of the night."""
    found: dict[str, float] = {}
    held: dict[str, int] = {}
    left = list(steps)
    for now_s in range(0, NIGHT_S, STEP_S):
        while left and left[0].at_s <= now_s:
            step = left.pop(0)
            held[step.job] = step.gpus
        if is_observed(now_s, is_closed=is_closed):
            for job, gpus in held.items():
                found[job] = found.get(job, 0.0) + gpus * STEP_S
    return {job: held_s for job, held_s in found.items() if held_s}


async def live_through(cluster: ScriptedCluster, steps: Sequence[Step], *, has_recorder: bool) -> None:
    recorders = [cluster.observer("record")] if has_recorder else []
    console = [cluster.observer()]
    left = list(steps)
    for now_s in range(0, NIGHT_S + 1, STEP_S):
        cluster.now_s = now_s
        is_away = AWAY[0] < now_s < AWAY[1]
        cluster.stale_since_s = AWAY[0] if is_away else None
        while left and left[0].at_s <= now_s:
            step = left.pop(0)
            cluster.put(step.job, step.status, **step.fields)
        if now_s == CLOSED[0]:
            for each in console:
                await cluster.tick(each)
            console = []
        elif now_s == CLOSED[1]:
            console = [cluster.observer()]
        for each in (*recorders, *console):
            await cluster.tick(each)


@pytest.mark.parametrize("has_recorder", [True, False], ids=["recorder", "console only"])
async def test_the_journal_of_a_night_equals_its_script(tmp_path: Path, has_recorder: bool) -> None:
    cluster, steps = ScriptedCluster(tmp_path), script()
    await live_through(cluster, steps, has_recorder=has_recorder)
    recorded = {
        (name, round(at_s), status): after_s
        for name, at_s, status, after_s in cluster.changes("name, at_s, status, after_s")
    }
    for step in steps:
        is_seen = step.has_time or is_observed(step.at_s, is_closed=not has_recorder)
        if is_seen:
            assert recorded[step.job, step.at_s, str(step.status)] is None, step
        else:
            spans = [
                (after_s, at_s)
                for (name, at_s, status), after_s in recorded.items()
                if (name, status) == (step.job, str(step.status)) and after_s is not None
            ]
            assert any(after_s <= step.at_s <= at_s for after_s, at_s in spans), step
    expected = gpu_seconds(steps, is_closed=not has_recorder)
    entries = read_ledger(Journal(tmp_path), CONTEXT, "", START_S, START_S + NIGHT_S) or []
    found = {each.name: each.time for each in entries if each.time.held_gpu_s}
    assert {name: time.held_gpu_s for name, time in found.items()} == pytest.approx(expected)
    unobserved_s = 1 if has_recorder else 4
    assert {round(time.observed_share, 3) for time in found.values()} == {(10 - unobserved_s) / 10}


@pytest.mark.parametrize("has_recorder", [True, False], ids=["recorder", "console only"])
async def test_the_timeline_of_a_night_equals_its_script(tmp_path: Path, has_recorder: bool) -> None:
    cluster, steps = ScriptedCluster(tmp_path), script()
    await live_through(cluster, steps, has_recorder=has_recorder)
    found = read_timeline(Journal(tmp_path), CONTEXT, START_S - 1, START_S + NIGHT_S)
    numbers = Counter(str(each.event) for each in found.entries)
    ended = sum(each.status is Status.SUCCEEDED for each in steps)
    expected = {"failed": 4, "ended": ended, "preempted": 1, "node lost": 1, "queued": 30, "started": 31}
    assert numbers == expected
    lengths = [round(each.to_s - each.from_s) for each in found.gaps]
    assert lengths == ([HOUR] if has_recorder else [HOUR, 3 * HOUR])
    failures = {each.job.name: each.change.reason for each in found.entries if each.event == "failed"}
    assert failures == {f"job-{number}": f"rank 0 exit {number}" for number in FAILED}
