"""A view that is one table: sorted, filtered by what is typed, with totals below and a preview beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Label

from k8s.snapshot import ClusterSnapshot, Job, NodeRow
from tui.screens.base.view import View
from tui.text.format import NOTHING, Clock
from tui.widgets.preview import Preview
from tui.widgets.table.table import Cell, Column, Table

PREVIEW_COLUMNS = 140
"""From so many columns on there is room for a preview."""


def progress_of(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return what a title says while the first lists still come."""
    return (snapshot.progress,) if snapshot.progress and not snapshot.is_synced else ()


class ListView(View):
    """Draws its table anew for every new picture, order or filter; subclasses say how in `draw`."""

    CSS_PATH: ClassVar[list[str | PurePath]] = [Path(__file__).with_name("list_view.tcss")]
    """Absolute: Textual seeks a bare name beside the subclass."""
    AUTO_FOCUS: ClassVar[str] = "Table"
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    """The table's columns, left to right."""
    ORDER: ClassVar[tuple[str, bool] | None] = ("name", False)
    """How the table is sorted at first: see `Table.order`; None: in the order in which rows are given."""
    ON_ENTER: ClassVar[str] = ""
    """The action that enter asks for."""
    PREVIEWS: ClassVar[bool] = False
    """Whether a wide terminal shows beside the table what is under the cursor: see `subject`."""

    KEEPS_ROW: ClassVar[bool] = False
    """Whether the cursor is on the row on which it was left, when the list is shown again."""

    _was_synced = False
    """Whether the first lists were in when it was drawn last: only after that something changes."""
    _first_row: str | None = ""
    """The row at the top while the first lists come in and the cursor was not moved; None after that."""

    def compose_body(self) -> ComposeResult:
        """Lay out the table."""
        yield Label("", id="notice", markup=False)
        table = Table(self.COLUMNS)
        if not self.PREVIEWS:
            yield table
            return
        with Horizontal(id="list"):
            yield table
            yield Preview(self.context.client)

    @property
    def is_drawable(self) -> bool:
        """Tell whether its parts are there, the table among them."""
        return super().is_drawable and self.query_one_optional(Table) is not None

    def on_mount(self) -> None:
        """Sort."""
        for table in self.query(Table):  # there is none in a view that was left before it was laid out
            table.order = self.ORDER

    def on_resize(self) -> None:
        """Make room for the preview, or take it away."""
        is_wanted = self.PREVIEWS and self.context.switches.get("preview", True)
        self.set_class(is_wanted and self.app.size.width >= PREVIEW_COLUMNS, "-preview")
        self.show_preview()

    def on_screen_resume(self) -> None:
        """Look again at what is under the cursor."""
        self.on_resize()

    def show_preview(self) -> None:
        """Tell of what is under the cursor, where there is a preview."""
        if self.has_class("-preview") and self.is_drawable:
            self.query_one(Preview).show(self.subject(self.query_one(Table).cursor_key), self.snapshot)

    def subject(self, key: str | None) -> Job | NodeRow | None:
        """Return what the row with this key stands for, for the preview."""
        return None

    def action_preview(self) -> None:
        """Show the preview, or hide it, for as long as the console runs."""
        if not self.PREVIEWS:
            super().action_preview()
        elif self.app.size.width < PREVIEW_COLUMNS:
            self.flash(
                f"The preview needs {PREVIEW_COLUMNS} columns; this terminal has {self.app.size.width}."
            )
        else:
            self.context.switches["preview"] = not self.context.switches.get("preview", True)
            self.on_resize()

    def draw(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""

    def set_list_title(self, *parts: str) -> None:
        """Write into the title those parts that are not empty, and after them what is typed as a filter."""
        typed = f"/{self.filter_text}" if self.filter_text else ""
        self.set_title("  ".join(filter(None, (*parts, typed))))

    @property
    def is_synced(self) -> bool:
        """Whether all that is listed was read once."""
        return self.snapshot.is_synced

    def paint(self) -> None:
        """Draw the table, and tell of what is under the cursor."""
        table = self.query_one(Table)
        table.flashes = self._was_synced
        self.draw(table)
        self._was_synced = self.is_synced
        self._begin_at_the_top(table)
        self.show_preview()

    def _begin_at_the_top(self, table: Table) -> None:
        """Keep the cursor on the first row while the first lists come in, until it is moved."""
        if self._first_row is None:
            return
        if self.KEEPS_ROW and not self._first_row and table.move_to(self.context.rows.get(self.NAME, "")):
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
        """Show the new picture."""
        self.redraw()

    def watch_filter_text(self, text: str) -> None:
        """Show the rows that match."""
        if self.is_drawable:
            self.filter_tables(text, self.labels_of)
            self.redraw()

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Tell of what the cursor is on now, and find out what may be done with it."""
        event.stop()
        if self.KEEPS_ROW and event.table.cursor_key is not None:
            self.context.rows[self.NAME] = event.table.cursor_key
        self.show_preview()
        self.ask_permissions()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Open what the cursor is on."""
        event.stop()
        self.action_request(self.ON_ENTER)

    def selected_row(self) -> str:
        """Return the key of the row under the cursor."""
        return self.query_one(Table).cursor_key or ""

    def labels_of(self, key: str) -> Mapping[str, str]:
        """Return the labels of what the row with this key stands for, for the filter `-l`."""
        return {}

    def copy_text(self) -> str:
        """Return the names of the rows that are marked, or of the one under the cursor."""
        table = self.query_one(Table)
        keys = table.marks or (table.cursor_key,)
        first = next((index for index, column in enumerate(table.columns) if column.title), 0)
        return "\n".join(row.cells[first].text for row in table.shown_rows if row.key in keys)

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]]:
        """Return the titles of all columns, and the rows that the filter lets through; ages in seconds."""
        table = self.query_one(Table)
        now_s = Clock.ahead(self.snapshot.clock_offset_s).now.timestamp()
        titles = [column.title for column in table.columns]
        return titles, [
            [_exported(cell, column, now_s) for cell, column in zip(row.cells, table.columns, strict=True)]
            for row in table.shown_rows
        ]

    def action_sort(self, by: str) -> None:
        """Sort by a column, or turn the order round."""
        self.query_one(Table).action_sort(by)


def _exported(cell: Cell, column: Column, now_s: float) -> str | int | None:
    """Return a cell for a program: what is not known is empty, an age is in seconds."""
    if cell.text.strip() in ("", NOTHING):
        return None
    if column.is_age and isinstance(cell.sort, float):
        return max(0, int(now_s + cell.sort))
    return cell.text
