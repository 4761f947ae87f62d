"""Visible rows of a long list, and its scroll thumb.

Tables, logs and texts scroll their own rows, because a Textual `ScrollView` lays out and composes the
whole screen for it. Pure arithmetic; knows neither Textual nor the rows.
"""

from __future__ import annotations

WHEEL_LINES = 3


class Viewport:
    """A window of `height` rows onto `row_count` rows."""

    def __init__(self) -> None:
        self.top = 0
        self.height = 0
        self.row_count = 0

    @property
    def is_at_end(self) -> bool:
        """True if the last row is visible."""
        return self.top >= self.row_count - self.height

    @property
    def rows(self) -> range:
        """Visible rows."""
        return range(self.top, min(self.top + self.height, self.row_count))

    @property
    def thumb(self) -> range:
        """Lines of the scroll thumb; empty if all rows are visible."""
        height, rows = self.height, self.row_count
        if rows <= height:
            return range(0)
        length = max(1, height * height // rows)
        start = round((height - length) * self.top / (rows - height))
        return range(start, start + length)

    def resize(self, height: int, row_count: int) -> None:
        """Set the height and the number of rows, and scroll back if there are too few."""
        self.height, self.row_count = max(0, height), row_count
        self.scroll_to(self.top)

    def scroll_to(self, row: float) -> bool:
        """Scroll to a row, or to the end for infinity; return False if already there."""
        was, self.top = self.top, int(max(0, min(row, self.row_count - self.height)))
        return self.top != was

    def reveal(self, first: int, last: int) -> None:
        """Scroll as little as needed to show a range of rows; its start has priority."""
        if self.height:
            self.top = min(first, max(self.top, last - self.height + 1))
