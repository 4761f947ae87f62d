"""Text of the rows and the title of the view of one job."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.logs.last import LastLine
from k8s.snapshot import LifeSigns, Silence, Straggler
from k8s.status import Status
from tests.support.evidence import NOW, instance, job_of
from tui.screens.job.panes import INSTANCE_COLUMNS, instance_rows, job_title
from tui.tables.jobs import JobsNow, loss_cell
from tui.text.cells import cell_len
from tui.text.format import Clock

EXACT = Clock(NOW)
LAST = [column.key for column in INSTANCE_COLUMNS].index("last")


def printed(ago_s: float, looked_ago_s: float | None = None) -> LastLine:
    """Return a line written so long before now."""
    now_s = NOW.timestamp()
    newest_until_s = None if looked_ago_s is None else now_s - looked_ago_s
    return LastLine(int((now_s - ago_s) * 1e9), b"step 1", newest_until_s)


def last_words(
    *lines: LastLine | None, clock: Clock = EXACT, status: Status = Status.RUNNING, **signs: Any
) -> list[str]:
    """Return the cells under LAST LINE for instances that printed these lines."""
    instances = [instance(f"worker-{place}", status, ranks=(place,)) for place in range(len(lines))]
    newest = {each.pod: line for each, line in zip(instances, lines, strict=True) if line is not None}
    now = JobsNow(clock, signs=lambda _: LifeSigns(**signs))
    rows = instance_rows(job_of(instances, status), newest, now, shows_lines=False)
    return [row.cells[LAST].text for row in rows]


def test_ages_are_rounded_and_silent_or_slow_ranks_are_marked() -> None:
    lines = printed(3), printed(14), printed(252), None
    assert last_words(*lines) == ["0s", "10s", "4m10s", "–"]
    one, all_of_them = (Silence(NOW, 2.0, writers) for writers in (("rank 2",), ()))
    assert last_words(*lines, silence=one) == ["0s", "10s", "4m10s silent!", "–"]
    assert last_words(*lines[1:], silence=all_of_them) == ["10s silent!", "4m10s silent!", "–"]
    assert last_words(*lines, silence=all_of_them, status=Status.SUCCEEDED)[2] == "4m10s"
    slow = Straggler("rank 1", "worker-1", 12), Straggler("worker-3", "worker-3", 1)
    assert last_words(*lines, stragglers=slow) == ["0s", "10s, 12 steps behind", "4m10s", "1 step behind"]


def test_an_age_is_rough_where_clocks_differ_and_never_negative() -> None:
    assert last_words(printed(7), printed(-30), clock=Clock(NOW, is_rough=True)) == ["~5s", "~0s"]


def test_the_age_of_the_last_line_is_counted_up_to_the_last_log_read() -> None:
    assert last_words(printed(400, looked_ago_s=390)) == ["10s"]


@pytest.mark.parametrize(
    ("width", "title"),
    [
        (120, "Jobs › bert   PyTorchJob kubeflow.org/v1 · Running 2h13m · 1/1 pods · epoch 2/3 step 5/9"),
        (72, "Jobs › bert   PyTorchJob · Running 2h13m · 1/1 pods · epoch 2/3 step 5/9"),
        (62, "Jobs › bert   Running 2h13m · 1/1 pods · epoch 2/3 step 5/9"),
        (52, "Jobs › bert   PyTorchJob · Running 2h13m · 1/1 pods"),
        (40, "Jobs › bert   Running 2h13m · 1/1 pods"),
        (30, "Jobs › bert   Running 2h13m ·…"),
    ],
)
def test_the_title_omits_its_least_important_parts_when_narrow(width: int, title: str) -> None:
    job = job_of([instance(status=Status.RUNNING)], Status.RUNNING)
    job = replace(job, started=NOW - timedelta(hours=2, minutes=13))
    found = job_title(job.ref, job, JobsNow(EXACT), width, progress="epoch 2/3 step 5/9")
    assert found == title
    assert cell_len(found) <= width


def test_the_title_shows_the_duration_of_a_finished_job_and_marks_a_deleted_one() -> None:
    job = job_of([instance(status=Status.FAILED)], Status.FAILED)
    job = replace(job, started=NOW - timedelta(hours=5), finished=NOW - timedelta(hours=4))
    assert "Failed 1h00m · 0/1 pods" in job_title(job.ref, job, JobsNow(EXACT), 120)
    assert job_title(job.ref, job, JobsNow(EXACT), 120, is_gone=True).endswith("this is its last state")
    assert job_title(job.ref, None, JobsNow(EXACT), 120, is_gone=True).endswith("not found")
    assert job_title(job.ref, None, JobsNow(EXACT), 120) == "Jobs › bert   PyTorchJob kubeflow.org/v1"


def test_the_title_of_a_waiting_job_shows_its_waiting_time() -> None:
    for status, restarts, words in (
        (Status.PENDING, 0, "Pending 5m"),
        (Status.STARTING, 0, "Starting 5m"),
        (Status.STARTING, 1, "Starting"),
        (Status.SUSPENDED, 0, "Suspended"),
    ):
        job = replace(job_of([instance()], status), restarts=restarts)
        assert f"· {words} · 0/1 pods" in job_title(job.ref, job, JobsNow(EXACT), 80)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (1.87, "1.87   "),
        (0.0414, "0.0414 "),
        (0.00462, "0.0046 "),
        (0.0000123, "1e-05  "),
        (-0.000123, "-1e-04 "),
        (12345.6, "12346  "),
        (1.2e9, "1e+09  "),
    ],
)
def test_the_bars_of_all_losses_are_aligned(last: float, words: str) -> None:
    assert loss_cell({"a": [last + 9, last]}, "a").text == f"{words}▇▁"


def test_a_nan_loss_is_marked_and_an_unread_loss_is_a_dash() -> None:
    assert loss_cell({"a": [1.0, math.nan]}, "a").text == "nan    ✕"
    assert loss_cell({}, "a").text == "–"
