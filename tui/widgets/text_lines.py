"""Text of any length, with search; only visible lines are drawn.

Rows are scrolled here, see `tui.widgets.viewport`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import ClassVar, NamedTuple, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip

from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, head
from tui.widgets.painted import PaintedWidget
from tui.widgets.viewport import WHEEL_LINES, Viewport

# More matches are only shown as `+`.
MOST_MATCHES = 10_000
# Minimum width of a continued line, however deeply it is indented.
_LEAST_PART = 20


class LineLike(Protocol):
    """A line with an optional name to highlight."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def name_start(self) -> int:
        """Start of the name."""

    @property
    def name_end(self) -> int:
        """End of the name; 0 without one."""


class TextLine(NamedTuple):
    """A plain line."""

    text: str
    name_start: int = 0
    name_end: int = 0


class Match(NamedTuple):
    """A match in characters."""

    line: int
    start: int
    end: int


class TextLines(PaintedWidget, can_focus=True):
    """Lines of text, scrolled in both directions or wrapped."""

    DEFAULT_CSS = """
    TextLines { width: 1fr; height: 1fr; padding: 0 0 0 1; }
    """
    NAME_LOOK: ClassVar[str] = "text-lines--name"

    wraps: reactive[bool] = reactive(False, init=False)

    def __init__(self, *, wraps: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.set_reactive(TextLines.wraps, wraps)
        self.matches: list[Match] = []
        self.current: int | None = None
        """Index of the current match; None without matches."""
        self._lines: list[LineLike] = []
        self._pattern: re.Pattern[str] | None = None
        self._first_row: list[int] = [0]
        self._cuts: dict[int, list[int]] = {}
        self._view = Viewport()
        self._left = 0
        self._base = Style.null()

    @property
    def top_line(self) -> int:
        """First visible line."""
        return self._at_row(self._view.top)[0] if self._lines else 0

    @property
    def match_text(self) -> str:
        """Return the position of the current match: `3 of 41`; empty without a search."""
        if self._pattern is None:
            return ""
        total = f"{len(self.matches):,}{'+' if len(self.matches) == MOST_MATCHES else ''}"
        return f"{self.current + 1} of {total}" if self.current is not None else "nothing found"

    def show(self, lines: Sequence[LineLike]) -> None:
        """Replace the lines; the scroll position is kept, and only rows that differ are drawn again."""
        top, before, rows_before = self.top_line, self._lines, (self._view.top, self._first_row)
        self._lines = [
            line
            if (clean := sanitize(line.text)) is line.text
            else TextLine(clean, line.name_start, line.name_end)
            for line in lines
        ]
        self._find(keeps_current=True)
        self._measure(top)
        area = self.content_size.region  # empty while hidden: then nothing is drawn
        if area and (self._pattern is not None or (self._view.top, self._first_row) != rows_before):
            self.refresh()
            return
        for index, (new, old) in enumerate(zip(self._lines, before, strict=False)):
            start, end = self._first_row[index : index + 2]
            rows = Region(0, start - self._view.top, area.width, end - start).intersection(area)
            if rows and new != old:
                self.refresh(rows)

    def search(self, pattern: re.Pattern[str] | None) -> None:
        """Highlight all matches and go to the next one; None clears the search."""
        self._pattern = pattern
        self._find(keeps_current=False)
        if self.current is not None:
            self._reveal(self.matches[self.current])
        self.refresh()

    def step(self, matches: int) -> None:
        """Go to the next or previous match, wrapping around."""
        if self.current is not None:
            self.current = (self.current + matches) % len(self.matches)
            self._reveal(self.matches[self.current])
            self.refresh()

    def action_scroll(self, rows: float) -> None:
        """Scroll by rows."""
        self._view.resize(self.content_size.height, self._first_row[-1])
        if self._view.scroll_to(self._view.top + rows):
            self.refresh()

    def action_page(self, pages: float) -> None:
        """Scroll by pages."""
        self.action_scroll(round(pages * max(1, self.content_size.height - 1)))

    def action_end(self, way: int) -> None:
        """Scroll to the start or the end."""
        self.action_scroll(way * inf)

    def scroll_side(self, cells: int) -> None:
        """Scroll sideways, unless lines are wrapped."""
        if not self.wraps:
            first = self.top_line
            visible = self._lines[first : first + self.content_size.height]
            longest = max((cell_len(line.text) for line in visible), default=0)
            most = max(self._left if cells < 0 else 0, longest - self._width + 1)
            self._left = max(0, min(self._left + cells, most))
            self.refresh()

    def watch_wraps(self) -> None:
        """Wrap or unwrap lines; the scroll position is kept."""
        top = self.top_line
        self._left = 0
        self._measure(top)
        self.refresh()

    def on_resize(self) -> None:
        """Wrap lines at the new width."""
        self._measure(self.top_line)
        self.refresh()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        event.stop()
        self.action_scroll(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        event.stop()
        self.action_scroll(-WHEEL_LINES)

    @property
    def _width(self) -> int:
        return max(1, self.content_size.width - 1)

    def _measure(self, top_line: int) -> None:
        width = self._width
        self._cuts = {}
        if self.wraps and self.content_size.width:  # not while hidden
            for index, line in enumerate(self._lines):
                if len(line.text) * 2 > width and cell_len(line.text) > width:
                    self._cuts[index] = _broken(line.text, width)
        counts = [len(self._cuts[index]) if index in self._cuts else 1 for index in range(len(self._lines))]
        self._first_row = list(accumulate(counts, initial=0))
        self._view.resize(self.content_size.height, self._first_row[-1])
        self._view.scroll_to(self._first_row[min(top_line, len(self._lines))])

    def _find(self, *, keeps_current: bool) -> None:
        before = self.matches[self.current] if self.current is not None else None
        self.matches, self.current = [], None
        if self._pattern is None:
            return
        for index, line in enumerate(self._lines):
            for found in self._pattern.finditer(line.text):
                if found.end() > found.start():
                    self.matches.append(Match(index, *found.span()))
            if len(self.matches) >= MOST_MATCHES:
                del self.matches[MOST_MATCHES:]
                break
        if self.matches:
            start = before if before is not None and keeps_current else Match(self.top_line, 0, 0)
            place = bisect_right(self.matches, start) - (start in self.matches)
            self.current = place % len(self.matches)

    def _at_row(self, row: int) -> tuple[int, int]:
        line = min(bisect_right(self._first_row, row) - 1, len(self._lines) - 1)
        return line, row - self._first_row[line]

    def _reveal(self, match: Match) -> None:
        cuts = self._cuts.get(match.line, [0])
        row = self._first_row[match.line] + bisect_right(cuts, match.start) - 1
        self._view.resize(self.content_size.height, self._first_row[-1])
        if row not in self._view.rows:
            self._view.scroll_to(row - self._view.height // 3)
        if not self.wraps:
            text = self._lines[match.line].text
            start, end = cell_len(text[: match.start]), cell_len(text[: match.end])
            if start < self._left or end > self._left + self._width:
                self._left = 0 if end <= self._width else max(0, start - self._width // 3)

    def render_line(self, y: int) -> Strip:
        """Render one row."""
        width, base = self._width, self.rich_style
        row = self._view.top + y
        if row >= self._first_row[-1]:
            return Strip.blank(self.content_size.width, base)
        index, part = self._at_row(row)
        strip = self._row_of(index, part, base)
        if cell_len(strip.text) > width:
            strip = Strip([*strip.crop(0, width - 1), Segment("›", base + self._style("more"))])
        thumb = self._view.thumb
        mark = Segment(" ┃"[y in thumb], base + self._style("thumb") if thumb else base)
        return Strip([*strip.adjust_cell_length(width, base), mark])

    def _row_of(self, index: int, part: int, base: Style) -> Strip:
        line = self._lines[index]
        cuts = self._cuts.get(index)
        if cuts is not None:
            start = cuts[part]
            end = cuts[part + 1] if part + 1 < len(cuts) else len(line.text)
            indent = " " * _hanging(line.text, self._width) if part else ""
            return Strip([Segment(indent, base), *self._pieces(index, start, end, base)])
        if line.text.isascii():
            return Strip(self._pieces(index, self._left, self._left + self._width + 1, base))
        return Strip(self._pieces(index, 0, len(line.text), base)).crop(self._left)

    def _pieces(self, index: int, start: int, end: int, base: Style) -> list[Segment]:
        line = self._lines[index]
        spans = [(line.name_start, line.name_end, base + self.look(self.NAME_LOOK))] if line.name_end else []
        first = bisect_right(self.matches, Match(index, -1, -1))
        for place in range(first, len(self.matches)):
            match = self.matches[place]
            if match.line != index or match.start >= end:
                break
            look = self._style("current" if place == self.current else "match")
            spans.append((match.start, match.end, base + look))
        edges = sorted({start, end, *(edge for span in spans for edge in span[:2] if start < edge < end)})
        pieces = []
        for left, right in pairwise(edges):
            style = next((span[2] for span in reversed(spans) if span[0] <= left < span[1]), base)
            pieces.append(Segment(line.text[left:right], style))
        return pieces

    def _style(self, name: str) -> Style:
        return self.look(f"text-lines--{name}")


def _hanging(text: str, width: int) -> int:
    return max(0, min(len(text) - len(text.lstrip(" -")) + 2, width - _LEAST_PART))


def _broken(text: str, width: int) -> list[int]:
    starts = [0]
    room, start = width, 0
    while True:
        part = head(text[start : start + room], room) or text[start : start + 1]
        if start + len(part) >= len(text):
            return starts
        space = part.rfind(" ")
        start += space + 1 if space > len(part) // 2 else len(part)
        starts.append(start)
        room = width - _hanging(text, width)
