"""What happens on the cluster: its events, the newest first, those that say the same as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from k8s.kinds import JobRef
from k8s.models import Event
from k8s.models.resources import EVENTS as RESOURCE
from k8s.snapshot import Job
from k8s.text.sanitize import sanitize
from tui.feeds.list_feed import ListFeed
from tui.jobs.event_groups import EventGroup, EventGrouper, Place, jobs_by_reference
from tui.jobs.events import full_text
from tui.screens.base.feed_view import FeedGetter, FeedView
from tui.screens.base.request import ActionRequest
from tui.text.format import NOTHING, Clock, Look, count, plural
from tui.widgets.table.row_cache import RowCache
from tui.widgets.table.table import Cell, Column, Row, Table

COLUMNS = (
    Column("age", "AGE", align="right", is_age=True),
    Column("type", "TYPE", priority=3),
    Column("namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20),
    Column("about", "ABOUT", elide="middle", min_width=16, max_width=48),
    Column("reason", "REASON", elide="end", min_width=10, max_width=28, priority=1),
    Column("count", "×", align="right", priority=2, sorts_largest_first=True, flashes=True),
    Column("message", "MESSAGE", elide="end", min_width=20, max_width=300),
)
ONLY_WARNINGS = "events.warnings"
"""The switch that leaves out what is a matter of course."""


class EventsView(FeedView):
    """The list of events."""

    NAME: ClassVar[str] = "events"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    NOUN: ClassVar[str] = "events"
    ORDER: ClassVar[tuple[str, bool]] = ("age", False)

    def __init__(self, cluster_feed: FeedGetter) -> None:
        """Make the view."""
        self._events: ListFeed[Event] = ListFeed(RESOURCE, Event)
        super().__init__(cluster_feed, self._events)
        self._teller = EventGrouper()
        self._ageless: RowCache[EventGroup] = RowCache()
        self._kept: RowCache[EventGroup] = RowCache()
        self._drawn_for: tuple[int, tuple[Job, ...], bool] | None = None
        self._jobs: Mapping[Place, JobRef] = {}
        self._told: Sequence[EventGroup] = ()

    @property
    def _only_warnings(self) -> bool:
        return self.context.switches.get(ONLY_WARNINGS, False)

    def draw(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        told, clock = self._tell(), Clock.ahead(self.snapshot.clock_offset_s)
        namespace = self.snapshot.namespace
        table.empty = self.nothing(self._nothing_happened(namespace))

        def rows_of(columns: Sequence[Column]) -> list[Row]:
            # Ages grow, all else stays: of ten thousand rows only that is written anew.
            ageless = self._ageless.rows(told, lambda each: _ageless(each, columns), drawn_for=columns)
            row_of = {row.key: row for row in ageless}
            return self._kept.rows(
                told,
                lambda each: _aged(row_of[each.key], each.folded.newest.at, clock),
                drawn_for=(columns, clock.is_rough),
                now_s=clock.now.timestamp(),
                age_s=lambda each: _age_s(each, clock.now),
            )

        self.fill(table, ["namespace"] if namespace else [], rows_of)
        self.say("Events", len(told), "warnings only" if self._only_warnings else "")
        events = sum(len(each.events) for each in told)
        warnings = sum(len(each.events) for each in told if each.folded.is_warning)
        folded = f" in {plural(len(told), 'line')}" if events != len(told) else ""
        self.put("totals", f"Σ {plural(events, 'event')}{folded} · {plural(warnings, 'warning')}")

    def _tell(self) -> Sequence[EventGroup]:
        """Return what happened; the same as before while nothing else did."""
        drawn_for = (self._events.changes, self.snapshot.jobs, self._only_warnings)
        before = self._drawn_for
        if before is None or drawn_for[1] is not before[1]:
            self._jobs = jobs_by_reference(self.snapshot.jobs)
        if before is None or drawn_for[1] is not before[1] or drawn_for != before:
            events = self._events.objects.values()
            self._told = self._teller.group(events, self._jobs, only_warnings=self._only_warnings)
        self._drawn_for = drawn_for
        return self._told

    def _nothing_happened(self, namespace: str) -> str:
        where = f"in namespace {namespace}" if namespace else "on this cluster"
        if self._only_warnings and self._events.objects:
            return f"No warning {where}.\nF shows all {plural(len(self._events.objects), 'event')}."
        more = "0 shows all namespaces · " if namespace else ""
        return f"No events {where}: servers forget them after an hour or so.\n{more}tab shows the volumes"

    def action_warnings(self) -> None:
        """Show warnings only, or again all."""
        self.context.switches[ONLY_WARNINGS] = not self._only_warnings
        self.redraw()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Open what the event is about."""
        event.stop()
        self.action_open_event()

    def action_open_event(self) -> None:
        """Open the job that an event is about; where there is none, show the whole event."""
        told = self._under_cursor()
        if told is not None and told.job is not None:
            self.post_message(ActionRequest("open_job", targets=[told.job]))
        else:
            self.action_whole_event()

    def action_whole_event(self) -> None:
        """Show all that an event says."""
        from tui.screens.dialogs.detail import DetailScreen

        if (told := self._under_cursor()) is not None:
            self.app.push_screen(DetailScreen("event", full_text(told.folded)))

    def _under_cursor(self) -> EventGroup | None:
        key = self.query_one(Table).cursor_key
        return next((each for each in self._told if each.key == key), None)


def _aged(row: Row, at: datetime | None, clock: Clock) -> Row:
    """Return a row with an age in its first cell."""
    age = Cell(clock.age(at), "quiet", sort=-at.timestamp() if at is not None else None)
    return Row(row.key, (age, *row.cells[1:]))


def _ageless(told: EventGroup, columns: Sequence[Column]) -> Row:
    folded, event = told.folded, told.folded.newest
    look: Look = "pending" if folded.is_warning else "quiet"
    cells = {
        "age": Cell(""),
        "type": Cell(sanitize(event.type or NOTHING), look),
        "namespace": Cell(sanitize(told.namespace) or NOTHING, "quiet"),
        "about": Cell(sanitize(folded.about), "bright" if told.job else ""),
        "reason": Cell(sanitize(event.reason or NOTHING), look),
        "count": Cell(count(folded.count), "" if folded.count > 1 else "quiet", sort=folded.count),
        "message": Cell(
            sanitize(" ".join((event.message or NOTHING).split())), "" if folded.is_warning else "quiet"
        ),
    }
    return Row(told.key, tuple(cells[column.key] for column in columns))


def _age_s(told: EventGroup, now: datetime) -> float:
    at = told.folded.newest.at
    return (now - at).total_seconds() if at is not None else float("inf")
