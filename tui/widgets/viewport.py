"""Which rows of something long are on the screen, and where its scroll thumb is.

Tables, logs and texts scroll their own rows: a Textual `ScrollView` has the whole screen laid out and
composed anew for it. This is the arithmetic they share; it knows neither Textual nor what the rows are.
"""

from __future__ import annotations

WHEEL_LINES = 3
"""Rows that one notch of the mouse wheel scrolls."""


class Viewport:
    """A window of `height` rows onto `row_count` rows."""

    def __init__(self) -> None:
        """Start at the top of nothing."""
        self.top = 0
        """The first row in sight."""
        self.height = 0
        """How many rows fit."""
        self.row_count = 0
        """How many rows there are."""

    @property
    def is_at_end(self) -> bool:
        """Whether the last row is in sight."""
        return self.top >= self.row_count - self.height

    @property
    def rows(self) -> range:
        """The rows in sight."""
        return range(self.top, min(self.top + self.height, self.row_count))

    @property
    def thumb(self) -> range:
        """The lines of the window that the scroll thumb covers; none where all rows are in sight."""
        height, rows = self.height, self.row_count
        if rows <= height:
            return range(0)
        length = max(1, height * height // rows)
        start = round((height - length) * self.top / (rows - height))
        return range(start, start + length)

    def resize(self, height: int, row_count: int) -> None:
        """Take another height and number of rows, and scroll no further than there are rows."""
        self.height, self.row_count = max(0, height), row_count
        self.scroll_to(self.top)

    def scroll_to(self, row: float) -> bool:
        """Make a row the first in sight, or infinity the last; return whether it was another."""
        was, self.top = self.top, int(max(0, min(row, self.row_count - self.height)))
        return self.top != was

    def reveal(self, first: int, last: int) -> None:
        """Scroll no further than it takes to see the rows from `first` to `last`; `first` goes before."""
        if self.height:
            self.top = min(first, max(self.top, last - self.height + 1))
