"""What each line of a table on the screen says, and which lines say something else than before."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tui.text.format import count
from tui.widgets.table.columns import Row
from tui.widgets.table.flashes import Flashes
from tui.widgets.table.marks import Marks
from tui.widgets.table.paint import Header, Line, RowLine, Words
from tui.widgets.table.row_set import RowSet
from tui.widgets.table.viewport import TableViewport


class LinesInSight:
    """The header and the lines below it, put together from the parts of a table."""

    def __init__(self, rows: RowSet, view: TableViewport, marks: Marks, flashes: Flashes) -> None:
        """Say nothing until the first `update`."""
        self.header = Header("", False, "")
        """What the first line says."""
        self.lines: Sequence[Line | None] = ()
        """What each line says; None for nothing."""
        self.lit: Collection[str] = ()
        """The keys of the rows that something outside the table points at."""
        self._rows = rows
        self._view = view
        self._marks = marks
        self._flashes = flashes

    @property
    def rows(self) -> dict[str, Row]:
        """The rows in sight, by their keys."""
        return {line.row.key: line.row for line in self.lines if isinstance(line, RowLine)}

    def update(self, height: int, empty: str) -> list[range]:
        """Put the lines together anew; return which have changed.

        Args:
            height: How many lines there are, the header among them.
            empty: What to say where there is no row.
        """
        self._view.resize(height - 1)
        thumb = self._view.thumb
        before, self.lines = self.lines, [self._line_at(y, thumb, height, empty) for y in range(height)]
        if len(before) != height:
            return [range(height)]
        changed, start = [], 0
        for y in range(height + 1):
            if y == height or before[y] == self.lines[y]:
                if y > start:
                    changed.append(range(start, y))
                start = y + 1
        return changed

    def _line_at(self, y: int, thumb: range, height: int, empty: str) -> Line | None:
        if y == 0:
            return self.header
        if not self._rows.shown:
            return self._words_at(y, height, empty)
        lines, line = self._rows.lines, self._view.top + y - 1
        if line >= len(lines.rows):
            return None
        place = lines.rows[line]
        row = self._rows.shown[place]
        is_marked, flashing = row.key in self._marks, self._flashes.of(row.key)
        is_detail, at_cursor = lines.first[place] != line, place == self._view.cursor
        is_lit = row.key in self.lit
        return RowLine(row, is_detail, at_cursor, is_marked, flashing, y - 1 in thumb, is_lit)

    def _words_at(self, y: int, height: int, empty: str) -> Words | None:
        """Return what is said where there is no row; a filter that hides all says how many."""
        hidden = len(self._rows.rows)
        none = "\n".join(filter(None, (f"Nothing matches; {count(hidden)} hidden", self._rows.hint)))
        words = (none if hidden else empty).split("\n")
        index = y - max(1, min(2, height - len(words)))
        return Words(words[index]) if 0 <= index < len(words) else None
