"""The timeline as a list: events of jobs, and unobserved times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from k8s.text.sanitize import sanitize
from tui.runs.journal.history import EVENTS, GAP_S, Entry, Gap, Timeline
from tui.tables import notices
from tui.tables.column import Cell, ListColumn, cells
from tui.text.format import NOTHING, CellStyle, Clock, age, timestamp

_LOOKS: Mapping[str, tuple[str, CellStyle]] = {
    **{str(event): look for event, look in notices.LOOKS.items()},
    "node lost": ("✕", "failed"),
    "preempted": ("↻", "changing"),
    "resumed": ("▸", "running"),
    "suspended": (NOTHING, "quiet"),
    "deleted": (NOTHING, "quiet"),
    "queued": ("○", "quiet"),
}
_WORDS = {str(event): words for event, words in notices.WORDS.items()} | {"node lost": "lost a node"}


def iso(at_s: float | None) -> str | None:
    """Return seconds since 1970 as in JSON."""
    return timestamp(None if at_s is None else datetime.fromtimestamp(at_s, UTC))


def minute(at_s: float, clock: Clock) -> str:
    """Return a time as `22:10`, with its day unless that is today."""
    return clock.time(datetime.fromtimestamp(at_s, UTC), "%H:%M")


def news_text(found: Timeline, clock: Clock, width: int = 80) -> str:
    """Return the events that fit: `Since 22:10 (9h): 3 failed, 12 ended`; empty if there are none."""
    news = [f"{number} {_WORDS.get(event, event)}" for event, number in found.news().items()]
    start = f"Since {minute(found.since_s, clock)} ({age(found.until_s - found.since_s)}): "
    while len(start) + len(", ".join(news)) > width:
        news[-2:] = ["…"]
    return start + ", ".join(news) if news else ""


def gap_text(gap: Gap, clock: Clock) -> str:
    """Return a line for an unobserved time: `— not observed 02:10–05:10 (3h00m) —`."""
    return f"— not observed {_span(*gap, clock)} ({age(round(gap.to_s - gap.from_s))}) —"


def _span(from_s: float, to_s: float, clock: Clock) -> str:
    start, end = minute(from_s, clock), minute(to_s, clock)
    return f"{start}–{end.removeprefix(start[:-5])}"


def _time(entry: Entry, clock: Clock) -> Cell:
    at_s, after_s = entry.change.at_s, entry.change.after_s
    if after_s is not None and at_s - after_s > GAP_S:
        return Cell(_span(after_s, at_s, clock), sort=at_s)
    return Cell(clock.time(datetime.fromtimestamp(at_s, UTC)), sort=at_s)


def _event(entry: Entry, _: Clock) -> Cell:
    (mark, style), words = _LOOKS[entry.event], _WORDS.get(entry.event, entry.event)
    return Cell(f"{mark} {words}", style, sort=EVENTS.index(entry.event))


def _reason(entry: Entry, _: Clock) -> Cell:
    reason, cause = entry.change.reason, entry.change.cause
    parts = (reason, "" if cause in reason else cause)
    return Cell(sanitize("; ".join(filter(None, parts))) or NOTHING, "quiet")


COLUMNS: tuple[ListColumn[Entry, Clock], ...] = (
    ListColumn(
        "time", "TIME", sorts_largest_first=True, printed="table", cell=_time,
        values=lambda each, _: {"time": iso(each.change.at_s), "after": iso(each.change.after_s)},
    ),
    ListColumn(
        "name", "JOB", elide="middle", min_width=12, max_width=48, printed="table",
        cell=lambda each, _: Cell(sanitize(each.job.name), "bright"), value=lambda each, _: each.job.name,
    ),
    ListColumn(
        "event", "EVENT", printed="table", cell=_event,
        values=lambda each, _: {
            "event": each.event, "status": each.change.status, "uid": each.uid, "is_mine": each.is_mine,
        },
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=6, elide="end", min_width=9, max_width=20, printed="table",
        is_optional=True, value=lambda each, _: each.job.namespace,
    ),
    ListColumn(
        "user", "USER", priority=5, elide="end", min_width=4, max_width=14, printed="table",
        is_optional=True, value=lambda each, _: each.user,
    ),
    ListColumn("kind", "KIND", in_console=False, printed="wide", value=lambda each, _: each.job.kind),
    ListColumn(
        "reason", "REASON", elide="end", min_width=20, good_width=42, max_width=300, printed="table",
        cell=_reason, values=lambda each, _: {"reason": each.change.reason, "cause": each.change.cause},
    ),
)  # fmt: skip


def row_cells(
    row: Entry | Gap, clock: Clock, columns: Sequence[ListColumn[Entry, Clock]]
) -> tuple[Cell, ...]:
    """Return the cells of an entry, or those of a gap: a line in the last column."""
    if isinstance(row, Entry):
        return cells(row, clock, columns)
    return (*(Cell("", sort=row.to_s) for _ in columns[1:]), Cell(gap_text(row, clock), "pending"))
