"""Draws the rows of a log that are on the screen, and scrolls them.

Rows are scrolled here: a `ScrollView` lays the whole screen out again each time that its
content grows, which is twenty times a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from k8s.logs import Item, LogLine, Mark, Marker
from k8s.text.sanitize import sanitize
from tui.text.format import cell_len, elide_middle, pad
from tui.widgets.log.lines import LogLines
from tui.widgets.log.text import clock, highlighted, text_runs, wrap_cuts

STAMP_CELLS = 13
"""What `14:02:09.113 ` takes."""
WIDEST_NAME = 20
"""Cells at most for what says whose a line is."""


class LogCanvas(Widget):
    """Rows of a log, some of them on the screen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log-view--{part}"
        for part in ("stamp", "who", "marker", "gap", "match", "current", "empty", "thumb")
    }

    wraps: reactive[bool] = reactive(False)
    """Long lines are broken instead of going on to the right."""
    shows_times: reactive[bool] = reactive(True)
    """Each line begins with its time of writing."""
    follows: reactive[bool] = reactive(True)
    """New lines come into sight by themselves."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """Make an empty canvas."""
        super().__init__(id=id, classes=classes)
        self.lines = LogLines()
        """What is held, and what of it is shown."""
        self.empty = "No lines yet."
        """What is said where there is none."""
        self._name_of: Callable[[LogLine], str] | None = None
        self._name_width = 0
        self._pattern: re.Pattern[str] | None = None
        self._current: Item | None = None
        self._top = 0
        self._left = 0
        self._drawn_thumb = (0, 0)
        self._base = Style.null()

    def on_resize(self) -> None:
        """Break lines anew, and keep what is looked at in sight."""
        self._measure()

    @property
    def _last_top(self) -> int:
        return max(0, self.lines.row_count - self.content_size.height)

    def _go(self, row: int) -> None:
        row = max(0, min(row, self._last_top))
        if row != self._top:
            self._top = row
            self.refresh()

    def _measure(self) -> None:
        """Break lines to the width there is now; the first line in sight stays the first."""
        shown = self.lines.shown
        first = self.lines.at_row(self._top)[0] if shown else 0
        width = self.content_size.width - 1 if self.wraps else 0
        self.lines.set_wrap(max(0, width), self._prefix_width)
        if self.follows:
            self._top = self._last_top
        elif shown:
            self._top = min(self.lines.row_of(min(first, len(shown) - 1)), self._last_top)
        self.refresh()

    def _prefix_width(self, item: Item) -> int:
        if not isinstance(item, LogLine):
            return 0
        return STAMP_CELLS * self.shows_times + (self._name_width + 1 if self._name_width else 0)

    def watch_wraps(self) -> None:
        """Break lines, or do not."""
        self._left = 0
        self._measure()

    def watch_shows_times(self) -> None:
        """Make room for the times, or win it back."""
        self._measure()

    @property
    def _prefix_width_of_lines(self) -> int:
        return STAMP_CELLS * self.shows_times + (self._name_width + 1 if self._name_width else 0)

    def _in_view(self) -> list[Item]:
        if not self.lines.shown:
            return []
        first = self.lines.at_row(self._top)[0]
        last = self.lines.at_row(min(self._top + self.content_size.height, self.lines.row_count) - 1)[0]
        return self.lines.shown[first : last + 1]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw rows; what they have in common is looked up once."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Draw the row of a line that is scrolled to `y`."""
        width = self.content_size.width
        base = self._base
        row = self._top + y
        if row >= self.lines.row_count:
            segments = [Segment(f" {self.empty}", base + self._style("empty"))] if row == 0 else []
            return Strip(segments).adjust_cell_length(width, base)
        index, part = self.lines.at_row(row)
        item = self.lines.shown[index]
        if isinstance(item, LogLine):
            segments = self._line(item, part, width - 1, base)
        else:
            segments = self._marker(item, part, width - 1, base)
        return Strip([*Strip(segments).adjust_cell_length(width - 1, base), self._thumb(y, base)])

    def _marker(self, marker: Marker, part: int, width: int, base: Style) -> list[Segment]:
        look = base + self._style("gap" if marker.may_lack_lines or marker.mark is Mark.LOST else "marker")
        who = f"{sanitize(marker.source.name)}: " if self._name_of is not None and marker.source.pod else ""
        text = f"── {who}{sanitize(marker.text)} "
        if not self.wraps:
            return [Segment(text, look), Segment("─" * max(0, width - cell_len(text)), look)]
        cuts = [0, *wrap_cuts(text, width)]
        return (
            [*Strip([Segment(text, look)]).crop(cuts[part], cuts[part + 1])] if part + 1 < len(cuts) else []
        )

    def _line(self, line: LogLine, part: int, width: int, base: Style) -> list[Segment]:
        prefix = self._prefix(line, base, is_first=part == 0)
        room = max(8, width - sum(cell_len(segment.text) for segment in prefix))
        body = [Segment(text, base + style) for text, style in text_runs(line)]
        if self._pattern is not None:
            look = self._style("current" if line is self._current else "match")
            body = highlighted(body, self._pattern, look)
        if not self.wraps:
            return [*prefix, *Strip(body).crop(self._left, self._left + room)]
        cuts = [0, *wrap_cuts("".join(segment.text for segment in body), room)]
        return [*prefix, *Strip(body).crop(cuts[part], cuts[part + 1])] if part + 1 < len(cuts) else prefix

    def _prefix(self, line: LogLine, base: Style, *, is_first: bool) -> list[Segment]:
        segments = []
        if self.shows_times:
            text = clock(line.stamp_ns) if is_first and line.stamp_ns else ""
            segments.append(Segment(pad(text, STAMP_CELLS), base + self._style("stamp")))
        if self._name_of is not None and self._name_width:
            text = elide_middle(sanitize(self._name_of(line)), self._name_width) if is_first else ""
            segments.append(Segment(pad(text, self._name_width + 1), base + self._style("who")))
        return segments

    def _thumb_place(self) -> tuple[int, int]:
        """Return first row and length of the bar that shows where the view is; no length for none."""
        height, rows = self.content_size.height, self.lines.row_count
        if rows <= height or self.follows:
            return 0, 0
        length = max(1, height * height // rows)
        return round((height - length) * self._top / max(1, rows - height)), length

    def _thumb(self, y: int, base: Style) -> Segment:
        """Draw one cell of that bar."""
        start, length = self._drawn_thumb = self._thumb_place()
        mark = "┃" if start <= y < start + length else " "
        return Segment(mark, base + self._style("thumb"))

    def _refresh_thumb(self) -> None:
        """Draw the bar again where its place has changed, and nothing else."""
        if self._thumb_place() != self._drawn_thumb:
            width, height = self.content_size
            self.refresh(Region(self.gutter.left + width - 1, self.gutter.top, 1, height))

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"log-view--{name}", partial=True)
