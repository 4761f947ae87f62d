"""A table that stays quick with ten thousand rows: its keys, its order, its marks.

Cursor and marks belong to row keys, so they stay where they are while a live
list is replaced under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.reactive import reactive

from tui.keys import TABLE
from tui.widgets.bindings import bindings
from tui.widgets.table.canvas import TableCanvas
from tui.widgets.table.columns import Cell, Column, Row
from tui.widgets.table.paint import Header

__all__ = ["Cell", "Column", "Row", "Table"]


class Table(TableCanvas, can_focus=True):
    """Rows under a fixed header, with a cursor, marks, an order, and a filter given from outside."""

    DEFAULT_CSS = """
    Table { width: 1fr; height: 1fr; }
    """

    order: reactive[tuple[str, bool] | None] = reactive(None, init=False, repaint=False)
    """The key of the column to sort by, and whether that is turned round; None: the order given."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(TABLE)

    class TableMessage(Message):
        """What this table tells its screen; the base of its messages."""

        def __init__(self, table: Table, key: str | None) -> None:
            super().__init__()
            self.table = table
            """The table it happened in."""
            self.key = key
            """The key of the row under the cursor."""

        @property
        def control(self) -> Table:
            """The table it happened in."""
            return self.table

        def can_replace(self, message: Message) -> bool:
            """Let the newest state stand for those before it."""
            return type(message) is type(self) and message.control is self.table

    class RowHighlighted(TableMessage):
        """The cursor is on another row, or on none."""

    class RowMarked(TableMessage):
        """The set of marked rows changed; read it from `table.marks`."""

    class Sorted(TableMessage):
        """The order changed; read it from `table.order`."""

    class RowSelected(TableMessage):
        """The user wants what this row stands for."""

        key: str

        def can_replace(self, message: Message) -> bool:
            """Keep each wish."""
            return False

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        empty: str = "Nothing here",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make an empty table.

        Args:
            columns: The columns, left to right.
            empty: What to say where there is no row.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(columns, empty, id=id, classes=classes)
        self._picked = ""
        self._last_marked: str | None = None

    @property
    def shown_rows(self) -> Sequence[Row]:
        """The rows that the filter lets through, in the order in which they are shown."""
        return self._rows.shown

    @property
    def marks(self) -> tuple[str, ...]:
        """The keys of the marked rows in the order given, those hidden by the filter among them."""
        return tuple(row.key for row in self._rows.rows if row.key in self._marks) if self._marks else ()

    @property
    def hidden_marks(self) -> int:
        """How many marked rows the filter hides."""
        return (
            len(self._marks) - sum(row.key in self._marks for row in self._rows.shown) if self._marks else 0
        )

    def cursor_moved(self) -> None:
        """Tell the screen."""
        self.post_message(self.RowHighlighted(self, self.cursor_key))

    def marks_changed(self) -> None:
        """Tell the screen."""
        self.post_message(self.RowMarked(self, self.cursor_key))

    def watch_order(self) -> None:
        """Sort anew."""
        with self._keeping_place():
            self._rows.sort(self.order)
        self._say_order()
        self.post_message(self.Sorted(self, self.cursor_key))

    def _say_order(self) -> None:
        by = self.order[0] if self.order is not None else ""
        self._header = Header(by, self._rows.largest_first, self._picked)
        self._repaint()

    def _tell_marks(self) -> None:
        self._repaint()
        self.marks_changed()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a double click opens the row, one on a title sorts."""
        place = event.get_content_offset(self)
        if place is None:
            return
        if place.y == 0:
            self.action_sort(self._column_at(place.x))
            return
        line = place.y - 1 + self._top
        if line < len(self._rows.lines.rows):
            self._set_cursor(self._rows.lines.rows[line])
            if event.chain == 2:
                self.action_choose()

    def action_move(self, rows: int) -> None:
        """Move the cursor by rows."""
        self._set_cursor(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by the lines that fit into the view, less one."""
        lines = self._rows.lines
        if lines.rows:
            line = lines.first[self._cursor] + pages * max(1, self.size.height - 2)
            self._set_cursor(lines.rows[max(0, min(line, len(lines.rows) - 1))])

    def action_go(self, index: int) -> None:
        """Move the cursor to a row by its place; -1 is the last."""
        self._set_cursor(index if index >= 0 else self.row_count + index)

    def action_choose(self) -> None:
        """Say that the user wants what the cursor is on."""
        if (key := self.cursor_key) is not None:
            self.post_message(self.RowSelected(self, key))

    def action_mark(self) -> None:
        """Mark the row under the cursor, or unmark it."""
        if (key := self.cursor_key) is None:
            return
        self._marks ^= {key}
        self._last_marked = key if key in self._marks else None
        self._tell_marks()

    def action_mark_range(self) -> None:
        """Mark every row from the last one marked to the cursor."""
        if (key := self.cursor_key) is None:
            return
        start = self._rows.find(self._last_marked)
        first, last = sorted((self._cursor if start is None else start, self._cursor))
        self._marks.update(row.key for row in self._rows.shown[first : last + 1])
        self._last_marked = key
        self._tell_marks()

    def action_clear_marks(self) -> None:
        """Unmark every row."""
        if self._marks:
            self._marks.clear()
            self._tell_marks()

    def action_pick(self, columns: int) -> None:
        """Pick the column that is so many further than the one picked, or sorted by; round and round."""
        keys = [each.key for each in self.columns] if self.is_wide else self._shown_columns
        if not keys:
            return
        was = self._picked or self._header.sorted_by
        place = keys.index(was) + columns if was in keys else 0
        self._picked = keys[place % len(keys)]
        self._say_order()
        self._reveal_column(self._picked)

    def action_sort_picked(self) -> None:
        """Sort by the column picked; where none is, turn the order round."""
        self.action_sort(self._picked or self._header.sorted_by or next(iter(self._shown_columns), None))

    def action_sort(self, column: str | None) -> None:
        """Sort by a column, by its key, or turn the order round."""
        if column is not None and any(each.key == column for each in self.columns):
            was, is_turned = self.order or ("", False)
            self._picked = ""
            self.order = (column, was == column and not is_turned)

    def action_toggle_wide(self) -> None:
        """Show all columns as wide as they would be, or again as many as fit."""
        self.is_wide = not self.is_wide

    def action_scroll_columns(self, columns: int) -> None:
        """Scroll a wide table sideways."""
        self._skip_columns(self._skipped_columns + columns)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the arrows to others where there is nothing to scroll sideways."""
        return action != "scroll_columns" or self.is_wide
