"""The visible lines of a table: marks, highlights of changes, cursor and scroll position."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tui.tables.column import Column, Row
from tui.text.format import count
from tui.widgets.table.paint import Header, Line, PlainLine, RowLine
from tui.widgets.table.row_set import RowSet, survivor
from tui.widgets.viewport import Viewport


class Marks:
    """Set of marked row keys, and the last marked one, which starts a range."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._last: str | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def toggle(self, key: str) -> None:
        """Mark or unmark a row."""
        self._keys ^= {key}
        self._last = key if key in self._keys else None

    def extend(self, shown: Sequence[Row], to: int) -> None:
        """Mark all rows from the last marked one to `to`; only `to` if that one is hidden."""
        start = next((place for place, row in enumerate(shown) if row.key == self._last), to)
        first, last = sorted((start, to))
        self._keys.update(row.key for row in shown[first : last + 1])
        self._last = shown[to].key

    def clear(self) -> None:
        """Unmark all rows."""
        self._keys.clear()

    def keep(self, rows: Iterable[Row]) -> bool:
        """Unmark rows that are gone; return True if there were any."""
        if not self._keys:
            return False
        gone = self._keys.difference(row.key for row in rows)
        self._keys -= gone
        return bool(gone)

    def among(self, rows: Iterable[Row]) -> tuple[str, ...]:
        """Return the keys of the marked rows in order."""
        return tuple(row.key for row in rows if row.key in self._keys) if self._keys else ()


# Minimum duration of a highlight.
FLASH_S = 1.0
# Ends are rounded up to a multiple of this, so that close changes end in one repaint.
ROUND_S = 0.5
# Textual divides by a late timer's interval.
SHORTEST_TIMER_S = 0.01
_AGE = re.compile(r"~?\b(?:\d+[dhms])+\b")


class Flashes:
    """Highlighted cells by row key."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[int, float]] = {}

    def record(
        self, columns: Sequence[Column], before: Mapping[str, Row], after: Iterable[Row], now_s: float
    ) -> None:
        """Highlight cells that differ from the row with the same key; new rows are not highlighted.

        A growing age within a text is no change: `Running 2m`, `Running 3m`.
        """
        watched = [index for index, column in enumerate(columns) if column.flashes]
        end_s = math.ceil((now_s + FLASH_S) / ROUND_S) * ROUND_S
        for row in after:
            was = before.get(row.key)
            if was is None or was is row:
                continue
            for index in watched:
                texts = was.cells[index].text, row.cells[index].text
                if texts[0] != texts[1] and _AGE.sub("", texts[0]) != _AGE.sub("", texts[1]):
                    self._ends.setdefault(row.key, {})[index] = end_s

    def of(self, key: str) -> tuple[int, ...]:
        """Return the indices of a row's highlighted columns."""
        return tuple(self._ends.get(key, ()))

    def end(self, now_s: float) -> None:
        """Drop expired highlights."""
        left = {
            key: {index: end_s for index, end_s in ends.items() if end_s > now_s}
            for key, ends in self._ends.items()
        }
        self._ends = {key: ends for key, ends in left.items() if ends}

    def clear(self) -> None:
        """Drop all highlights."""
        self._ends.clear()

    @property
    def next_end_s(self) -> float | None:
        """Time at which the first highlight ends; None without highlights."""
        return min((end_s for ends in self._ends.values() for end_s in ends.values()), default=None)

    def wait_s(self, now_s: float) -> float | None:
        """Return the delay until the first highlight ends; None without highlights."""
        end_s = self.next_end_s
        return None if end_s is None else max(SHORTEST_TIMER_S, end_s - now_s)


class TableViewport:
    """Cursor and scroll position, counted in filtered rows; a row with a detail takes several lines."""

    def __init__(self, rows: RowSet) -> None:
        """Start at the top of `rows`, which may change only within `keep_position`."""
        self._rows = rows
        self._lines = Viewport()
        self.cursor = 0

    @property
    def cursor_row(self) -> Row | None:
        """Row under the cursor."""
        return self._rows.shown[self.cursor] if self._rows.shown else None

    @property
    def top(self) -> int:
        """First visible line."""
        return self._lines.top

    @property
    def thumb(self) -> range:
        """Lines of the scroll thumb."""
        return self._lines.thumb

    @property
    def visible_rows(self) -> range:
        """Indices of the visible rows, also partly visible ones."""
        lines = self._lines.rows
        return range(self.row_at(lines[0]), self.row_at(lines[-1]) + 1) if lines else range(0)

    def row_at(self, line: int) -> int:
        """Return the index of the row at a line."""
        return self._rows.lines.rows[line]

    def resize(self, height: int) -> None:
        """Set the height, and scroll back if there are too few rows."""
        self._lines.resize(height, len(self._rows.lines.rows))

    def scroll(self, lines: int) -> None:
        """Scroll; the cursor stays on its row."""
        self._lines.scroll_to(self._lines.top + lines)

    def move_to(self, place: int) -> bool:
        """Move the cursor to a row and scroll to it; return False if it is already there."""
        place = max(0, min(place, len(self._rows.shown) - 1))
        if not self._rows.shown or place == self.cursor:
            return False
        self.cursor = place
        self.reveal_cursor()
        return True

    def move_pages(self, pages: int) -> bool:
        """Move the cursor by pages; return False if it has not moved."""
        lines = self._rows.lines
        if not lines.rows:
            return False
        line = lines.first[self.cursor] + pages * max(1, self._lines.height - 1)
        return self.move_to(self.row_at(max(0, min(line, len(lines.rows) - 1))))

    def reveal_cursor(self) -> None:
        """Scroll as little as needed to show the cursor's row."""
        if self._rows.shown:
            lines = self._rows.lines
            last = [*lines.first[self.cursor + 1 : self.cursor + 2], len(lines.rows)][0] - 1
            self._lines.reveal(lines.first[self.cursor], last)

    @contextmanager
    def keep_position(self) -> Iterator[None]:
        """Change the rows while cursor and visible rows stay in place.

        At the top of the list the top stays, so that new rows above are seen.
        """
        before, old_place, visible = self._rows.shown, self.cursor, self.visible_rows
        anchor = old_place if old_place in visible else visible.start
        lines_above = self._rows.lines.first[anchor] - self.top if visible else 0
        yield
        self.cursor = survivor(before, old_place, self._rows) or 0
        top = 0
        if self.top and self._rows.shown:
            found = self.cursor if anchor == old_place else survivor(before, anchor, self._rows)
            top = self._rows.lines.first[found] - lines_above if found is not None else 0
        self._lines.row_count = len(self._rows.lines.rows)
        self._lines.scroll_to(top)
        if old_place in visible:
            self.reveal_cursor()


class VisibleLines:
    """Header and visible lines of a table."""

    def __init__(self, rows: RowSet, view: TableViewport, marks: Marks, flashes: Flashes) -> None:
        self.header = Header("", False, "")
        self.lines: Sequence[Line | None] = ()
        """None for an empty line."""
        self.cursor_look = "cursor"
        # Keys of the rows highlighted from outside.
        self.highlighted: Collection[str] = ()
        self._rows = rows
        self._view = view
        self._marks = marks
        self._flashes = flashes

    @property
    def rows(self) -> dict[str, Row]:
        """Visible rows by key."""
        return {line.row.key: line.row for line in self.lines if isinstance(line, RowLine)}

    def update(self, height: int, empty: str) -> list[range]:
        """Compose the lines, header included; return the changed ranges. `empty` is the text without rows."""
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
            return self._text_at(y, height, empty)
        lines, line = self._rows.lines, self._view.top + y - 1
        if line >= len(lines.rows):
            return None
        place = lines.rows[line]
        row = self._rows.shown[place]
        is_marked, flashing = row.key in self._marks, self._flashes.of(row.key)
        part, cursor = line - lines.first[place], self.cursor_look if place == self._view.cursor else ""
        is_highlighted = row.key in self.highlighted
        return RowLine(row, part, cursor, is_marked, flashing, y - 1 in thumb, is_highlighted)

    def _text_at(self, y: int, height: int, empty: str) -> PlainLine | None:
        hidden = len(self._rows.rows)
        none = "\n".join(filter(None, (f"Nothing matches; {count(hidden)} hidden", self._rows.hint)))
        words = (none if hidden else empty).split("\n")
        index = y - max(1, min(2, height - len(words)))
        return PlainLine(words[index]) if 0 <= index < len(words) else None
