"""Events of the cluster, newest first; repeated events share a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from k8s.kinds import JobRef
from k8s.models.event import Event
from k8s.models.resources import EVENTS as RESOURCE
from k8s.snapshot import Job
from tui.screens.base.feed_view import FeedView
from tui.screens.base.request import ActionRequest
from tui.screens.lists import EVENTS
from tui.session.list_feed import ListFeed
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, ListColumn, Row, cells
from tui.tables.events import (
    COLUMNS,
    EventGroup,
    EventGrouper,
    FoldedEvent,
    Place,
    full_text,
    jobs_by_reference,
)
from tui.text.format import Clock, plural
from tui.widgets.table.row_set import RowCache
from tui.widgets.table.table import Table


class EventsView(FeedView):
    """List of events."""

    VIEW: ViewDeclaration = EVENTS
    COLUMNS: tuple[ListColumn[FoldedEvent, Clock], ...] = COLUMNS
    NO_JOB: str = "This event is about no job; v shows it in full."
    ORDER: tuple[str, bool] = ("age", False)

    def __init__(self) -> None:
        self._events: ListFeed[Event] = ListFeed(RESOURCE, Event)
        super().__init__(self._events)
        self._grouper = EventGrouper()
        self._ageless_rows: RowCache[EventGroup] = RowCache()
        self._row_cache: RowCache[EventGroup] = RowCache()
        self._grouped_for: tuple[int, tuple[Job, ...], bool] | None = None
        self._jobs: Mapping[Place, JobRef] = {}
        self._groups: Sequence[EventGroup] = ()

    @property
    def _only_warnings(self) -> bool:
        return self.context.switches.get("events.warnings", False)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        groups, clock = self._group_events(), Clock.ahead(self.snapshot.clock_offset_s)
        namespace = self.snapshot.namespace
        table.empty = self.empty_text("events", self._nothing_happened(namespace))
        columns = self.columns_of(COLUMNS, ("namespace",) if namespace else ())
        # Ages grow, all else stays: of ten thousand rows only that is written anew.
        ageless = self._ageless_rows.rows(
            groups, lambda each: Row(each.key, cells(each.folded, clock, columns)), drawn_for=columns
        )
        row_of = {row.key: row for row in ageless}
        place = next((place for place, column in enumerate(columns) if column.is_age), None)
        rows = self._row_cache.rows(
            groups,
            lambda each: _aged(row_of[each.key], each.folded, clock, place),
            drawn_for=(columns, clock.is_rough),
            now_s=clock.now.timestamp(),
            age_s=lambda each: _age_s(each, clock.now),
        )
        table.set_columns(columns, rows)
        which = "warnings only" if self._only_warnings else ""
        self.set_list_title(f"Events ({self.amount_text(len(groups))})", which, self._events.progress)
        self.set_line("notice", self.notice(self.snapshot))
        events = sum(len(each.events) for each in groups)
        warnings = sum(len(each.events) for each in groups if each.folded.is_warning)
        folded = f" in {plural(len(groups), 'line')}" if events != len(groups) else ""
        self.set_line("totals", f"Σ {plural(events, 'event')}{folded} · {plural(warnings, 'warning')}")

    def _group_events(self) -> Sequence[EventGroup]:
        drawn_for = (self._events.changes, self.snapshot.jobs, self._only_warnings)
        before = self._grouped_for
        if before is None or drawn_for[1] is not before[1]:
            self._jobs = jobs_by_reference(self.snapshot.jobs)
        if before is None or drawn_for[1] is not before[1] or drawn_for != before:
            events = self._events.objects.values()
            self._groups = self._grouper.group(events, self._jobs, only_warnings=self._only_warnings)
        self._grouped_for = drawn_for
        return self._groups

    def _nothing_happened(self, namespace: str) -> str:
        where = f"in namespace {namespace}" if namespace else "on this cluster"
        if self._only_warnings and self._events.objects:
            return f"No warning {where}.\nF shows all {plural(len(self._events.objects), 'event')}."
        more = "0 shows all namespaces · " if namespace else ""
        return f"No events {where}: servers forget them after an hour or so.\n{more}tab shows the volumes"

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Open the event."""
        event.stop().prevent_default()
        self.action_open_event()

    def action_open_event(self) -> None:
        """Open the job of an event, or the event itself if it has none."""
        group = self._under_cursor()
        if group is not None and group.job is not None:
            self.post_message(ActionRequest("open_job", targets=[group.job]))
        else:
            self.action_whole_event()

    def action_whole_event(self) -> None:
        """Show the whole event."""
        from tui.screens.dialogs.detail import DetailScreen

        if (group := self._under_cursor()) is not None:
            self.app.push_screen(DetailScreen("event", full_text(group.folded)))

    def current_job(self) -> JobRef | None:
        """Return the job of the event under the cursor."""
        group = self._under_cursor()
        return group.job if group is not None else None

    def _under_cursor(self) -> EventGroup | None:
        key = self.query_one(Table).cursor_key
        return next((each for each in self._groups if each.key == key), None)


def _aged(row: Row, event: FoldedEvent, clock: Clock, place: int | None) -> Row:
    if place is None:
        return row
    age = Cell.of_age(event.newest.at, clock)
    return Row(row.key, (*row.cells[:place], age, *row.cells[place + 1 :]))


def _age_s(group: EventGroup, now: datetime) -> float:
    at = group.folded.newest.at
    return (now - at).total_seconds() if at is not None else float("inf")
