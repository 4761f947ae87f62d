"""Columns of the list of notices, and the counter of unseen ones."""

from __future__ import annotations

from collections.abc import Mapping

from k8s.text.sanitize import sanitize
from tui.jobs.notices import JobNotice
from tui.options import NoticeEvent
from tui.tables.column import Cell, ListColumn
from tui.text.format import NOTHING, CellStyle, Clock, Run, count, timestamp

# In the order of the counter.
LOOKS: Mapping[NoticeEvent, tuple[str, CellStyle]] = {
    NoticeEvent.FAILED: ("✕", "failed"),
    NoticeEvent.SILENT: ("!", "pending"),
    NoticeEvent.NAN: ("!", "pending"),
    NoticeEvent.DIVERGED: ("!", "pending"),
    NoticeEvent.SLOW: ("!", "pending"),
    NoticeEvent.PLATEAU: ("!", "pending"),
    NoticeEvent.RESTARTED: ("↻", "changing"),
    NoticeEvent.ENDED: ("✓", "done"),
    NoticeEvent.STARTED: ("▸", "running"),
}


def counter(numbers: Mapping[NoticeEvent, int]) -> tuple[Run, ...]:
    """Return the runs of the status line's counter, such as `✕1` and `✓2`."""
    totals: dict[tuple[str, CellStyle], int] = {}
    for event, look in LOOKS.items():
        totals[look] = totals.get(look, 0) + numbers.get(event, 0)
    return tuple((f"{mark}{count(total)}", style) for (mark, style), total in totals.items() if total)


def _event(notice: JobNotice, _: Clock) -> Cell:
    mark, style = LOOKS[notice.event]
    return Cell(f"{mark} {notice.event_text}", style, sort=list(LOOKS).index(notice.event))


def _time(notice: JobNotice, clock: Clock) -> Cell:
    at = notice.at.astimezone()
    day = "" if at.date() == clock.now.astimezone().date() else f"{at:%d %b} "
    return Cell(f"{day}{at:%H:%M:%S}", sort=at.timestamp())


COLUMNS: tuple[ListColumn[JobNotice, Clock], ...] = (
    ListColumn(
        "time", "TIME", sorts_largest_first=True,
        cell=_time,
        value=lambda notice, _: timestamp(notice.at),
    ),
    ListColumn(
        "age", "AGE", align="right", is_age=True, priority=2,
        cell=lambda notice, clock: Cell.of_age(notice.at, clock),
    ),
    ListColumn(
        "job", "JOB", elide="middle", min_width=12, max_width=48,
        cell=lambda notice, _: Cell(sanitize(notice.job.name), "" if notice.is_seen else "bright"),
    ),
    ListColumn("event", "EVENT", cell=_event, value=lambda notice, _: notice.event),
    ListColumn(
        "namespace", "NAMESPACE", priority=3, elide="end", min_width=9, max_width=20,
        cell=lambda notice, _: Cell(sanitize(notice.job.namespace), "quiet"),
    ),
    ListColumn(
        "reason", "REASON", elide="end", min_width=20, max_width=300,
        cell=lambda notice, _: Cell(sanitize(notice.reason) or NOTHING, "quiet"),
        value=lambda notice, _: notice.reason,
    ),
)  # fmt: skip
