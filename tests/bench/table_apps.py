"""Two programs over the same ten thousand rows: our table, and Textual's DataTable. Keys make them work."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widgets import DataTable, Label

import themes
from tests.bench.table_rows import CHANGED, COLUMNS, ROWS, changed_rows, wanted
from tui.__main__ import GARBAGE
from tui.tables.column import Cell, Column, Row
from tui.text.format import CellStyle
from tui.widgets.table.table import Table

LOOKS: tuple[CellStyle, ...] = (
    "bright",
    "quiet",
    "running",
    "",
    "",
    "quiet",
    "quiet",
    "quiet",
    "quiet",
    "quiet",
)
"""How the columns are meant, in both programs."""
STYLES = {"bright": "bold", "quiet": "dim", "running": "green"}


class Worked(App[None]):
    """A line of words over a table; each key is one piece of work on the table."""

    CSS_PATH = themes.STYLESHEET
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "fill"),
        Binding("2", "change"),
        Binding("3", "filter"),
        Binding("4", "unfilter"),
        Binding("5", "sort"),
    ]

    def __init__(self) -> None:
        """Take our theme, so that both draw with the same colours."""
        super().__init__()
        for palette in themes.load().values():
            self.register_theme(Theme(**palette))
        self.theme = themes.DEFAULT

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give our own variables a value."""
        return themes.variable_defaults(dark=True, ansi=False)


class Ours(Worked):
    """Our table; what is asked of it goes through the calls that the views use."""

    def compose(self) -> ComposeResult:
        """Lay out the words and the table."""
        yield Label("ready", markup=False)
        yield Table([Column(name.lower(), name) for name in COLUMNS])

    def on_mount(self) -> None:
        """Make the rows, before the clock runs."""
        self.rows, self.changed = map(self._rows, (ROWS, changed_rows()))
        self.query_one(Table).focus()

    def _rows(self, rows: Sequence[Sequence[str]]) -> list[Row]:
        return [Row(row[0], tuple(map(Cell, row, LOOKS))) for row in rows]

    def action_fill(self) -> None:
        """Show all rows."""
        self.query_one(Table).set_rows(self.rows)

    def action_change(self) -> None:
        """Replace all rows; those that say the same are the same objects, as the views keep them."""
        rows = list(self.rows)
        for place in CHANGED:
            rows[place] = self.changed[place]
        self.query_one(Table).set_rows(rows)

    def action_filter(self) -> None:
        """Filter, as each letter that is typed does."""
        self.query_one(Table).set_filter(lambda row: wanted([cell.text for cell in row.cells]))

    def action_unfilter(self) -> None:
        """Show all rows again."""
        self.query_one(Table).set_filter(None)

    def action_sort(self) -> None:
        """Sort by the node."""
        self.query_one(Table).action_sort("node")


class Theirs(Worked):
    """Textual's DataTable, used as its guide has it; it has no filter, so it is filled again."""

    def compose(self) -> ComposeResult:
        """Lay out the words and the table."""
        yield Label("ready", markup=False)
        yield DataTable[Text](cursor_type="row", zebra_stripes=False)

    def on_mount(self) -> None:
        """Make the rows, before the clock runs."""
        self.rows, self.changed = map(self._rows, (ROWS, changed_rows()))
        table = self.query_one(DataTable)
        for name in COLUMNS:
            table.add_column(name, key=name.lower())
        table.focus()

    def _rows(self, rows: Sequence[Sequence[str]]) -> list[list[Text]]:
        styles = [STYLES.get(look, "") for look in LOOKS]
        return [[Text(text, style) for text, style in zip(row, styles, strict=True)] for row in rows]

    def action_fill(self) -> None:
        """Show all rows."""
        self._add(self.rows)

    def _add(self, rows: Sequence[Sequence[Text]]) -> None:
        table = self.query_one(DataTable)
        for row in rows:
            table.add_row(*row, key=row[0].plain)

    def action_change(self) -> None:
        """Update the cells that changed, and only those."""
        table = self.query_one(DataTable)
        for place in CHANGED:
            table.update_cell(ROWS[place][0], "status", self.changed[place][2])

    def action_filter(self) -> None:
        """Fill again with what matches."""
        self.query_one(DataTable).clear()
        self._add([row for row in self.rows if wanted([cell.plain for cell in row])])

    def action_unfilter(self) -> None:
        """Fill again with all rows."""
        self.query_one(DataTable).clear()
        self._add(self.rows)

    def action_sort(self) -> None:
        """Sort by the node."""
        self.query_one(DataTable).sort("node", key=lambda cell: cell.plain)


if __name__ == "__main__":
    gc.set_threshold(*GARBAGE)  # as the console itself runs
    {"ours": Ours, "theirs": Theirs}[sys.argv[1]]().run(mouse=False)
