"""The cursor of a table and the lines in sight: both stay with their rows while a live list is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tui.widgets.table.columns import Row
from tui.widgets.table.row_set import RowSet, survivor
from tui.widgets.viewport import Viewport


class TableViewport:
    """Places of rows are counted among those shown; a row with a detail takes two lines."""

    def __init__(self, rows: RowSet) -> None:
        """Show the start of `rows`, which may change within `keep_place` only."""
        self._rows = rows
        self._lines = Viewport()
        self.cursor = 0
        """The place of the row under the cursor."""

    @property
    def cursor_row(self) -> Row | None:
        """The row under the cursor."""
        return self._rows.shown[self.cursor] if self._rows.shown else None

    @property
    def top(self) -> int:
        """The first line in sight."""
        return self._lines.top

    @property
    def thumb(self) -> range:
        """The lines in sight that the scroll thumb covers."""
        return self._lines.thumb

    @property
    def rows_in_sight(self) -> range:
        """The places of the rows of which any line is in sight."""
        lines = self._lines.rows
        return range(self.row_at(lines[0]), self.row_at(lines[-1]) + 1) if lines else range(0)

    def row_at(self, line: int) -> int:
        """Return the place of the row that a line belongs to."""
        return self._rows.lines.rows[line]

    def resize(self, height: int) -> None:
        """Take another height, and scroll no further than there are rows."""
        self._lines.resize(height, len(self._rows.lines.rows))

    def scroll(self, lines: int) -> None:
        """Scroll; the cursor stays on its row, in sight or not."""
        self._lines.scroll_to(self._lines.top + lines)

    def move_to(self, place: int) -> bool:
        """Put the cursor on a row and scroll to it; return whether it was on another."""
        place = max(0, min(place, len(self._rows.shown) - 1))
        if not self._rows.shown or place == self.cursor:
            return False
        self.cursor = place
        self.reveal_cursor()
        return True

    def move_pages(self, pages: int) -> bool:
        """Move the cursor by the lines that fit, less one; return whether it moved."""
        lines = self._rows.lines
        if not lines.rows:
            return False
        line = lines.first[self.cursor] + pages * max(1, self._lines.height - 1)
        return self.move_to(self.row_at(max(0, min(line, len(lines.rows) - 1))))

    def reveal_cursor(self) -> None:
        """Scroll no further than it takes to see the cursor's row whole."""
        if row := self.cursor_row:
            first = self._rows.lines.first[self.cursor]
            self._lines.reveal(first, first + bool(row.detail))

    @contextmanager
    def keep_place(self) -> Iterator[None]:
        """Change the rows so that the cursor, and what is in sight, stay where they are.

        At the top of the list it is the top that stays, so that what comes above is seen.
        """
        before, was_at, in_sight = self._rows.shown, self.cursor, self.rows_in_sight
        anchor = was_at if was_at in in_sight else in_sight.start
        lines_above = self._rows.lines.first[anchor] - self.top if in_sight else 0
        yield
        self.cursor = survivor(before, was_at, self._rows) or 0
        top = 0
        if self.top and self._rows.shown:
            found = self.cursor if anchor == was_at else survivor(before, anchor, self._rows)
            top = self._rows.lines.first[found] - lines_above if found is not None else 0
        self._lines.row_count = len(self._rows.lines.rows)
        self._lines.scroll_to(top)
        if was_at in in_sight:
            self.reveal_cursor()
