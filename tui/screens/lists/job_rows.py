"""Columns and rows of the job list."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from k8s.snapshot import Job, Missing
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.feeds.preview_text import status_text, wrapped
from tui.jobs.filters import gpu_totals, is_loud, silent_ranks
from tui.text.format import NOTHING, CellStyle, Clock, Run, compact_ranges, number, plural
from tui.text.sparkline import BROKEN, trend
from tui.widgets.table.table import Cell, Column, Row

# Width of the number, so that the bars of all jobs are aligned.
NUMBER_CELLS = 6


def loss_cell(values_by_uid: Mapping[str, Sequence[float]], uid: str) -> Cell:
    """Return a job's last loss and its trend."""
    values = values_by_uid.get(uid, ())
    if not values:
        return Cell(NOTHING, "quiet")
    last = values[-1]
    is_broken = not math.isfinite(last)
    style: CellStyle = "failed" if is_broken else ""
    bars = BROKEN if is_broken else trend(values)
    words = _short(last).ljust(NUMBER_CELLS if bars else 0)
    return Cell.of((words, style), (f" {bars}" if bars else "", style or "quiet"), sort=last)


def _short(value: float) -> str:
    """Format a number in at most `NUMBER_CELLS` cells: `0.00462` as `0.0046`."""
    ways = (number(value), f"{value:.2g}", f"{value:.0e}")
    return next((words for words in ways if len(words) <= NUMBER_CELLS), ways[-1])


COLUMNS = (
    Column("name", "NAME", min_width=16, good_width=24, elide="middle", max_width=48),
    Column("namespace", "NAMESPACE", priority=2, elide="end", min_width=9, max_width=20),
    Column("kind", "KIND", priority=4, elide="runs", min_width=8),
    Column("status", "STATUS", min_width=11, flashes=True),
    Column("gpus", "GPUS", align="right", sorts_largest_first=True, flashes=True),
    Column("pods", "PODS", align="right", priority=1, sorts_largest_first=True, flashes=True),
    Column("ranks", "RANKS", align="right", priority=5, sorts_largest_first=True),
    Column("loss", "LOSS", priority=3, elide="runs", min_width=NUMBER_CELLS, good_width=16, max_width=16),
    Column("nodes", "NODES", priority=6, elide="end", min_width=10, max_width=28),
    Column("user", "USER", priority=7, elide="end", min_width=4, max_width=14),
    Column("age", "AGE", align="right", is_age=True),
    Column("reason", "REASON", elide="end", min_width=10, max_width=120),
)
_STATUSES = tuple(Status)
# Lists everything that is not readable.
_ALL = ":info"


NOTICE_LINES = 4


def missing_text(missing: Sequence[Missing], width: int) -> str:
    """Describe missing data in at most `NOTICE_LINES` lines.

    Of several resources refused for one reason, the first is described and as many others named as fit.

    Args:
        missing: Data that could not be read.
        width: Line width in cells.
    """
    if not missing:
        return ""
    first = min(missing, key=lambda each: (bool(each.shown), each.verb != "read"))
    others = [
        each.resource
        for each in missing
        if each is not first and (bool(each.shown), each.verb) == (bool(first.shown), first.verb)
    ]
    text = " ".join(sanitize(first.words).split())
    for named in range(len(others), -1, -1):
        words = f"{text}{_same_for(others, named)}"
        if _fits(words, width):
            return words
    # The server's words alone are too long.
    tail = f"…{_same_for(others, 0) or f' More: {_ALL}'}"
    text = text[: NOTICE_LINES * max(width, 1)]
    while text and not _fits(text + tail, width):
        text = text[:-1]
    return text + tail


def _same_for(others: Sequence[str], named: int) -> str:
    if not others:
        return ""
    left = len(others) - named
    names = ", ".join(others[:named])
    more = f"{' … and ' * bool(named)}{left} more: {_ALL}" if left else "."
    return f" The same for {names}{more}"


def _fits(text: str, width: int) -> bool:
    return len(wrapped(text, max(width, 1))) <= NOTICE_LINES


def format_totals(jobs: Sequence[Job]) -> str:
    """Summarise all jobs."""
    held, waiting = gpu_totals(jobs)
    return f"Σ {plural(len(jobs), 'job')} · {plural(held, 'GPU')} held · {waiting} requested and waiting"


def job_row(
    job: Job,
    columns: Sequence[Column],
    clock: Clock,
    losses: Mapping[str, Sequence[float]],
    *,
    has_detail: bool,
) -> Row:
    """Return the row of a job.

    Args:
        job: The job.
        columns: Visible columns.
        clock: Current time.
        losses: Loss history by job uid.
        has_detail: Put an urgent reason on a second line.
    """
    is_urgent = is_loud(job)
    requested, allocated = job.gpus_requested, job.gpus_allocated
    running, pods = job.instances_running, len(job.instances)
    cells = {
        "name": Cell(job.ref.name, "bright" if not job.status.is_final else ""),
        "namespace": Cell(job.ref.namespace, "quiet"),
        "kind": _kind(job.ref.kind),
        "status": Cell(*status_text(job, clock), sort=float(_STATUSES.index(job.status))),
        "gpus": Cell(
            f"{allocated}/{requested}" if requested or allocated else NOTHING, sort=float(requested)
        ),
        "pods": Cell(f"{running}/{pods}", sort=float(pods)),
        "ranks": _ranks(job),
        "loss": loss_cell(losses, job.uid),
        "nodes": Cell(compact_ranges(job.nodes) or NOTHING, "quiet"),
        "user": Cell(job.user or NOTHING, "quiet"),
        "age": Cell(clock.age(job.created), "quiet", sort=-job.created.timestamp() if job.created else None),
        "reason": Cell(job.reason or NOTHING, "" if is_urgent else "quiet"),
    }
    detail = f"└ {job.reason}" if is_urgent and has_detail else None
    return Row(job.uid, tuple(cells[column.key] for column in columns), detail)


def _kind(kind: str) -> Cell:
    """Return a kind in two runs; a narrow column drops the second: `PyTorch`, `TrainingJob`."""
    short = re.sub(r"(?<=.)(Training)?Job$", "", kind)
    return Cell.of((short, "quiet"), (kind[len(short) :], "quiet"))


def _ranks(job: Job) -> Cell:
    """Count a job's ranks and the silent ones: `8 !1`."""
    silent, total = silent_ranks(job), job.ranks_total
    runs: tuple[Run, ...] = ((str(total) if total else NOTHING, "quiet"),)
    return Cell.of(*runs, *(((f" !{silent}", "failed"),) if silent else ()), sort=float(total))


def age_s(job: Job, now: datetime) -> float:
    """Return the smallest growing age in a job's row."""
    since = job.started if job.status is Status.RUNNING else None
    return (now - (since or job.created or now)).total_seconds()


def duration_s(job: Job, now: datetime) -> int | None:
    """Return the run time of a job in seconds; None if it has not started."""
    return None if job.started is None else max(0, int(((job.finished or now) - job.started).total_seconds()))
