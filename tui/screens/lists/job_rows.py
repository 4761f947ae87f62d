"""What the list of jobs says of each: its columns, and the cells of a row. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from k8s.snapshot import Job, Missing
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.feeds.preview_text import status_words, wrapped
from tui.jobs.filters import gpu_totals, is_loud, silent_ranks
from tui.screens.lists.home_loss import loss_cell
from tui.text.format import NOTHING, Clock, Run, compact_ranges, plural
from tui.widgets.table.table import Cell, Column, Row

COLUMNS = (
    Column("name", "NAME", min_width=16, elide="middle", max_width=48),
    Column("namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20),
    Column("kind", "KIND", priority=3, elide="end", min_width=10),
    Column("status", "STATUS", min_width=11, flashes=True),
    Column("gpus", "GPUS", align="right", sorts_largest_first=True, flashes=True),
    Column("pods", "PODS", align="right", priority=1, sorts_largest_first=True, flashes=True),
    Column("ranks", "RANKS", align="right", priority=5, sorts_largest_first=True),
    Column("loss", "LOSS", priority=4, max_width=16),
    Column("nodes", "NODES", priority=6, elide="end", min_width=10, max_width=28),
    Column("user", "USER", priority=7, elide="end", min_width=4, max_width=14),
    Column("age", "AGE", align="right", is_age=True),
    Column("reason", "REASON", elide="end", min_width=10, max_width=120),
)
_STATUSES = tuple(Status)
_ALL = ":info"
"""Where all that may not be read is named."""


NOTICE_LINES = 4
"""Lines that the notice above the list has room for."""


def missing_words(missing: Sequence[Missing], width: int) -> str:
    """Say what is missing: of many kinds refused for one reason the first, and as many others as fit.

    Args:
        missing: What may not be read.
        width: Cells of each of the notice's lines.
    """
    if not missing:
        return ""
    first = min(missing, key=lambda each: bool(each.shown))
    others = [
        each.resource for each in missing if each is not first and bool(each.shown) == bool(first.shown)
    ]
    said = " ".join(sanitize(first.words).split())
    for named in range(len(others), -1, -1):
        words = f"{said}{_same_for(others, named)}"
        if _fits(words, width):
            return words
    # The server's words alone are too long.
    tail = f"…{_same_for(others, 0) or f' More: {_ALL}'}"
    said = said[: NOTICE_LINES * max(width, 1)]
    while said and not _fits(said + tail, width):
        said = said[:-1]
    return said + tail


def _same_for(others: Sequence[str], named: int) -> str:
    """Return what else is missing for the reason of the first, so many of them by name."""
    if not others:
        return ""
    left = len(others) - named
    names = ", ".join(others[:named])
    more = f"{' … and ' * bool(named)}{left} more: {_ALL}" if left else "."
    return f" The same for {names}{more}"


def _fits(text: str, width: int) -> bool:
    return len(wrapped(text, max(width, 1))) <= NOTICE_LINES


def totals_words(jobs: Sequence[Job]) -> str:
    """Say what all jobs come to."""
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
        columns: The columns that are shown.
        clock: Now.
        losses: What is known of the loss, by the jobs' uids.
        has_detail: Whether a reason that has to be read stands on a line of its own.
    """
    is_told = is_loud(job)
    requested, allocated = job.gpus_requested, job.gpus_allocated
    running, pods = job.instances_running, len(job.instances)
    cells = {
        "name": Cell(job.ref.name, "bright" if not job.status.is_final else ""),
        "namespace": Cell(job.ref.namespace, "quiet"),
        "kind": Cell(job.ref.kind, "quiet"),
        "status": Cell(*status_words(job, clock), sort=float(_STATUSES.index(job.status))),
        "gpus": Cell(
            f"{allocated}/{requested}" if requested or allocated else NOTHING, sort=float(requested)
        ),
        "pods": Cell(f"{running}/{pods}", sort=float(pods)),
        "ranks": _ranks(job),
        "loss": loss_cell(losses, job.uid),
        "nodes": Cell(compact_ranges(job.nodes) or NOTHING, "quiet"),
        "user": Cell(job.user or NOTHING, "quiet"),
        "age": Cell(clock.age(job.created), "quiet", sort=-job.created.timestamp() if job.created else None),
        "reason": Cell(job.reason or NOTHING, "" if is_told else "quiet"),
    }
    detail = f"└ {job.reason}" if is_told and has_detail else None
    return Row(job.uid, tuple(cells[column.key] for column in columns), detail)


def _ranks(job: Job) -> Cell:
    """Count a job's ranks, and those that are silent: `8 !1`."""
    silent, total = silent_ranks(job), job.ranks_total
    runs: tuple[Run, ...] = ((str(total) if total else NOTHING, "quiet"),)
    return Cell.of(*runs, *(((f" !{silent}", "failed"),) if silent else ()), sort=float(total))


def age_s(job: Job, now: datetime) -> float:
    """Return the smallest of the ages that a job's row tells and that still grow."""
    since = job.started if job.status is Status.RUNNING else None
    return (now - (since or job.created or now)).total_seconds()


def duration_s(job: Job, now: datetime) -> int | None:
    """Return how long a job runs or ran; None when it has not started."""
    return None if job.started is None else max(0, int(((job.finished or now) - job.started).total_seconds()))
