"""Which rows of a log are in sight: those at its end, or those that the reader went back to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from k8s.logs import Item, LogLine
from tui.widgets.log.lines import LogLines
from tui.widgets.viewport import Viewport


class LogViewport:
    """Follows the end until the reader goes up; then what is in sight stays while lines come and go."""

    def __init__(self, max_items: int, gone: Mapping[str, int] | None = None) -> None:
        """Follow the end of a log of which at most `max_items` are held; `gone` were before the first."""
        self.lines = LogLines(max_items, gone)
        """What is held, and what of it is shown."""
        self.follows = True
        """Whether new lines come into sight by themselves."""
        self.new_lines = 0
        """Lines that have come since the reader went up."""
        self._rows = Viewport()

    @property
    def top(self) -> int:
        """The first row in sight."""
        return self._rows.top

    @property
    def items(self) -> list[Item]:
        """The items of which any row is in sight."""
        return self.lines.in_rows(self._rows.rows)

    @property
    def thumb(self) -> range:
        """The lines at whose end the scroll thumb is; none while following."""
        return range(0) if self.follows else self._rows.thumb

    def resize(self, height: int) -> None:
        """Take another height, and scroll no further than there are rows."""
        self._rows.resize(height, self.lines.row_count)

    def add(self, items: Sequence[Item]) -> bool:
        """Add items at the end; return whether the rows in sight have become others."""
        rows, top, rows_before = self._rows, self._rows.top, self.lines.row_count
        gone = self.lines.add(items)
        rows.top = max(0, top - gone)
        rows.row_count = self.lines.row_count
        if self.follows:
            rows.scroll_to(math.inf)
            return True
        self.new_lines += sum(isinstance(item, LogLine) for item in items)
        return rows_before < top + rows.height or gone > top

    def scroll_to(self, row: float, *, is_up: bool) -> None:
        """Make a row the first in sight; up ends following, down at the end begins it."""
        self._rows.scroll_to(row)
        self.follows = not is_up and self._rows.is_at_end
        if self.follows:
            self.new_lines = 0

    def scroll_to_item(self, index: int) -> None:
        """Put a shown item into the middle, and follow no longer."""
        self.follows = False
        self._rows.scroll_to(self.lines.row_of(index) - self._rows.height // 2)

    @contextmanager
    def keep_place(self) -> Iterator[None]:
        """Filter or break lines so that the first item in sight stays there, or the one after it."""
        shown = self.lines.shown
        anchor = None
        if shown and not self.follows:
            anchor = shown[min(self.lines.at_row(self.top)[0], len(shown) - 1)]
        yield
        self.resize(self._rows.height)
        index = None if anchor is None else self.lines.index_near(anchor)
        self._rows.scroll_to(math.inf if index is None else self.lines.row_of(index))
