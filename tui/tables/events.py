"""The list of events; equal ones share a line."""

from __future__ import annotations

from k8s.text.sanitize import sanitize
from tui.jobs.events import FoldedEvent
from tui.tables.column import Cell, ListColumn, Values
from tui.text.format import NOTHING, CellStyle, Clock, count, seconds_since, timestamp


def _style(event: FoldedEvent) -> CellStyle:
    return "pending" if event.is_warning else "quiet"


def _message(event: FoldedEvent, _: Clock) -> Cell:
    text = sanitize(" ".join((event.newest.message or NOTHING).split()))
    return Cell(text, "" if event.is_warning else "quiet")


def _about_values(event: FoldedEvent, _: Clock) -> Values:
    about = event.newest.involved_object
    return {"about": event.about, "kind": about.kind, "name": about.name}


COLUMNS: tuple[ListColumn[FoldedEvent, Clock], ...] = (
    ListColumn(
        "age", "AGE", align="right", is_age=True,
        cell=lambda event, clock: Cell.of_age(event.newest.at, clock),
        printed="table",
        values=lambda event, clock: {
            "at": timestamp(event.newest.at), "age_s": seconds_since(event.newest.at, clock.now),
        },
    ),
    ListColumn(
        "type", "TYPE", priority=3,
        cell=lambda event, _: Cell(sanitize(event.newest.type or NOTHING), _style(event)),
        value=lambda event, _: event.newest.type or "", printed="table",
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20,
        cell=lambda event, _: Cell(sanitize(event.namespace) or NOTHING, "quiet"),
    ),
    ListColumn(
        "about", "ABOUT", elide="middle", min_width=16, max_width=48,
        cell=lambda event, _: Cell(sanitize(event.about), "bright" if event.has_job else ""),
        printed="table",
        values=_about_values,
    ),
    ListColumn(
        "reason", "REASON", elide="end", min_width=10, max_width=28, priority=1,
        cell=lambda event, _: Cell(sanitize(event.newest.reason or NOTHING), _style(event)),
        value=lambda event, _: event.newest.reason or "", printed="table",
    ),
    ListColumn(
        "count", "×", align="right", priority=2, sorts_largest_first=True, flashes=True,
        cell=lambda event, _: Cell(count(event.count), "" if event.count > 1 else "quiet", sort=event.count),
        value=lambda event, _: event.count,
        printed="table", printed_title="COUNT", text=lambda event, _: str(event.count),
    ),
    ListColumn(
        "message", "MESSAGE", elide="end", min_width=20, max_width=300,
        cell=_message,
        value=lambda event, _: event.newest.message or "",
        printed="table", text=lambda event, _: event.newest.message or NOTHING,
    ),
)  # fmt: skip
