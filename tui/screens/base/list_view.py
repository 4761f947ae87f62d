"""A view that is one table, with a filter and totals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.widgets import Label

from k8s.snapshot import ClusterSnapshot
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.tables.column import Cell, Column, configured_columns
from tui.text.format import NOTHING, Clock, count
from tui.widgets.table.row_set import LabelsOf
from tui.widgets.table.table import Table

AGES_S = 10.0


def progress_of(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return the title part that shows the progress of the first sync."""
    progress = snapshot.progress.partition("\n")[0]
    return (progress,) if progress and not snapshot.is_synced else ()


class ListView(View):
    """One table, redrawn on every new snapshot, order and filter; subclasses implement `render_rows`."""

    AUTO_FOCUS: ClassVar[str] = "Table"
    COLUMNS: tuple[Column, ...] = ()
    ORDER: tuple[str, bool] | None = ("name", False)
    """Initial `Table.order`; None keeps the given order."""
    ON_ENTER: str = ""
    """Name of the action that enter requests."""
    NO_JOB: str = ""
    """Message if a key needs a job and the row under the cursor has none."""
    OF_GONE: Mapping[str, str] = {}
    """Actions to request, with the UIDs of rows, in place of those on a job that is gone."""
    # Restore the cursor's row when the list is opened again.
    KEEPS_ROW: bool = False

    labels_of: LabelsOf | None = None
    """Labels of a row for the filter `-l`; None if rows have none."""

    # Changes flash only after the first sync.
    _was_synced = False
    # Top row during the first sync, while the user has not moved the cursor; None afterwards.
    _first_row: str | None = ""

    def compose_body(self) -> ComposeResult:
        """Lay out the notice and the table."""
        yield Label("", id="notice", markup=False)
        yield Table(self.COLUMNS)

    @property
    def is_drawable(self) -> bool:
        """True if the view and its table are mounted."""
        return super().is_drawable and self.query_one_optional(Table) is not None

    def on_mount(self) -> None:
        """Set the initial order and filter, and refresh the ages while nothing changes."""
        self.set_interval(AGES_S, self.refresh_view)
        for table in self.query(Table):  # there is none in a view that was left before it was laid out
            table.order = self.ORDER
        if self.filter_text:  # set before there were rows to filter
            self.filter_tables(self.filter_text, self.labels_of)

    def columns_of(self, columns: tuple[Any, ...], hidden: Collection[str] = ()) -> tuple[Any, ...]:
        """Return the columns that config.yaml chooses, or else those of the console without the hidden."""
        if wanted := self.context.columns.get(self.VIEW.name):
            return configured_columns(columns, wanted)
        return tuple(each for each in columns if each.key not in hidden and getattr(each, "in_console", True))

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""

    def set_line(self, line: str, text: str) -> None:
        """Set a line of the view; hide zeros while nothing has been read."""
        if not self.is_synced or self.snapshot.stale:
            text = text.replace(" (0)", "") if line == "title" else text
            text = "" if line == "totals" and text.startswith("Σ 0 ") else text
        super().set_line(line, text)

    def amount_text(self, total: int) -> str:
        """Return the number of rows, and if some are hidden, how many are visible: `3 of 5`."""
        shown = self.query_one(Table).row_count
        return count(total) if shown == total else f"{count(shown)} of {count(total)}"

    def set_list_title(self, *parts: str) -> None:
        """Set the title from the parts that are not empty, and the filter."""
        typed = f"/{self.filter_text}" if self.filter_text else ""
        self.set_title("  ".join(filter(None, (*parts, typed))))

    @property
    def is_synced(self) -> bool:
        """True once everything listed has been read."""
        return self.snapshot.is_synced

    def render_view(self) -> None:
        """Draw the table."""
        table = self.query_one(Table)
        table.flashes = self._was_synced
        self.render_rows(table)
        self._was_synced = self.is_synced
        self._begin_at_the_top(table)

    def _begin_at_the_top(self, table: Table) -> None:
        if self._first_row is None:
            return
        if (
            self.KEEPS_ROW
            and not self._first_row
            and table.move_to(self.context.rows.get(self.VIEW.name, ""))
        ):
            self._first_row = None
            return
        # A row may go again: of a Job that was read before the job whose part it is.
        is_gone = all(row.key != self._first_row for row in table.shown_rows)
        if is_gone or self._first_row == table.cursor_key:
            table.action_go(0)
            self._first_row = table.cursor_key or ""
        if self.is_synced or self._first_row != (table.cursor_key or ""):
            self._first_row = None

    def watch_snapshot(self) -> None:
        """Redraw."""
        self.refresh_view()

    def watch_filter_text(self, text: str) -> None:
        """Show the matching rows."""
        if self.is_drawable:
            self.filter_tables(text, self.labels_of)
            self.refresh_view()

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Check the permissions for the row."""
        event.stop()
        if self.KEEPS_ROW and event.table.cursor_key is not None:
            self.context.rows[self.VIEW.name] = event.table.cursor_key
        self.check_permissions()

    def on_table_row_marked(self, event: Table.RowMarked) -> None:
        """Update the number of marks."""
        event.stop()
        self.refresh_view()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Open the row."""
        event.stop()
        self.action_request(self.ON_ENTER)

    def action_turn(self, switch: str, by_default: bool = False) -> None:
        """Toggle a switch of this session."""
        self.context.switches[switch] = not self.context.switches.get(switch, by_default)
        self.refresh_view()

    def action_request(self, name: str) -> None:
        """Request an action, or explain that the row has no job."""
        action = self.context.actions.find(name)
        if self.NO_JOB and action is not None and action.acts_on_job and self.current_job() is None:
            if instead := self.OF_GONE.get(name):
                marks = self.query_one(Table).marks if action.takes_many else ()
                keys = [each.rpartition(" ")[2] for each in marks] or [self.selected_object()]
                self.post_message(ActionRequest(instead, " ".join(keys)))
            else:
                self.flash(self.NO_JOB)
        else:
            super().action_request(name)

    def selected_row(self) -> str:
        """Return the key of the row under the cursor."""
        return self.query_one(Table).cursor_key or ""

    def copy_text(self) -> str:
        """Return the names of the marked rows, or of the one under the cursor."""
        table = self.query_one(Table)
        keys = table.marks or (table.cursor_key,)
        places = [column.key for column in table.columns]
        first = next((index for index, column in enumerate(table.columns) if column.title), 0)
        first = places.index("name") if "name" in places else first
        return "\n".join(row.cells[first].text for row in table.shown_rows if row.key in keys)

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]]:
        """Return the column titles and the filtered rows; ages are in seconds."""
        table = self.query_one(Table)
        now_s = Clock.ahead(self.snapshot.clock_offset_s).now.timestamp()
        titles = [column.title for column in table.columns]
        return titles, [
            [_exported(cell, column, now_s) for cell, column in zip(row.cells, table.columns, strict=True)]
            for row in table.shown_rows
        ]


def _exported(cell: Cell, column: Column, now_s: float) -> str | int | None:
    if cell.text.strip() in ("", NOTHING):
        return None
    if column.is_age and isinstance(cell.sort, float):
        return max(0, int(now_s + cell.sort))
    return cell.text
