"""A view that is one table: sorted by a key, filtered by what is typed, with totals below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.reactive import reactive
from textual.widgets import Label

from k8s.snapshot import ClusterSnapshot
from tui.screens.view import View
from tui.widgets.row_filter import row_filter
from tui.widgets.table import Column, Table


def progress_of(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return what a title says while the first lists still come."""
    return (snapshot.progress,) if snapshot.progress and not snapshot.is_synced else ()


class ListView(View):
    """Draws its table anew for every new picture, order or filter; subclasses say how in `draw`."""

    AUTO_FOCUS: ClassVar[str] = "Table"
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    """The table's columns, left to right."""
    DESCENDING: ClassVar[frozenset[str]] = frozenset()
    """What is sorted with the largest first unless turned round."""

    order: reactive[tuple[str, bool]] = reactive(("name", False), init=False)
    """Sorted by what, and whether largest first."""

    def compose_body(self) -> ComposeResult:
        """Lay out the table."""
        yield Label("", id="notice", markup=False)
        yield Table(self.COLUMNS, ascii_only=self.ascii_only)

    def draw(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""

    def redraw(self) -> None:
        """Draw, if there is anything to draw on."""
        if self.is_drawable:
            self.draw(self.query_one(Table))

    def watch_snapshot(self) -> None:
        """Show the new picture."""
        self.redraw()

    def watch_order(self) -> None:
        """Sort anew."""
        self.redraw()

    def watch_filter_text(self, text: str) -> None:
        """Show the rows that match."""
        if self.is_drawable:
            wanted, problem = row_filter(text, self.query_one(Table).columns, self.labels_of)
            if problem:
                self.flash(problem, "warning")
            self.query_one(Table).set_filter(wanted)
            self.redraw()

    def labels_of(self, key: str) -> Mapping[str, str]:
        """Return the labels of what the row with this key stands for, for the filter `-l`."""
        return {}

    def copied(self) -> str:
        """Return the names of the rows that are marked, or of the one under the cursor."""
        table = self.query_one(Table)
        keys = table.marks or (table.cursor_key,)
        first = next((index for index, column in enumerate(table.columns) if column.title), 0)
        return "\n".join(row.cells[first].text for row in table.shown_rows if row.key in keys)

    def saved(self) -> tuple[list[str], list[list[str]]]:
        """Return the titles of all columns, and the rows that the filter lets through."""
        table = self.query_one(Table)
        titles = [column.title for column in table.columns]
        return titles, [[cell.text for cell in row.cells] for row in table.shown_rows]

    def action_sort(self, by: str) -> None:
        """Sort by a column, or turn the order round."""
        was, is_turned = self.order
        self.order = (by, not is_turned if was == by else by in self.DESCENDING)
