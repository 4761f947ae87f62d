"""Draws one row of a log: when and by whom it was written, then its text with matches highlighted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from k8s.logs import Item, LogLine, Mark, Marker
from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_middle, pad
from tui.widgets.log.text import clock, highlighted, text_runs, wrap_cuts

STAMP_CELLS = 13
"""What `14:02:09.113 ` takes."""
LONGEST_NAME_CELLS = 20
"""Cells at most for what says whose a line is."""
NAMES_MEASURED = 200
"""New lines whose names are measured, so that a flood costs no more."""
PARTS = ("stamp", "who", "marker", "gap", "match", "current", "empty", "thumb")
"""What has a style of its own: `log-view--match`."""


class ItemPainter:
    """Turns lines and markers into segments. What is set here is how all of them are drawn."""

    def __init__(self, style_of: Callable[[str], Style]) -> None:
        """Ask `style_of` for the style of each of `PARTS`."""
        self.wraps = False
        """Long lines are broken instead of going on to the right."""
        self.shows_times = True
        """Each line begins with its time of writing."""
        self.pattern: re.Pattern[str] | None = None
        """What is highlighted."""
        self.current: Item | None = None
        """The line whose matches stand out."""
        self.left = 0
        """Cells of the text that are scrolled away to the left."""
        self._style_of = style_of
        self._name_of: Callable[[LogLine], str] | None = None
        self._name_cells = 0

    def name_lines(self, name_of: Callable[[LogLine], str] | None) -> None:
        """Write before each line whose it is from now on; None: they are all of one source."""
        self._name_of, self._name_cells = name_of, 0

    def settings_for(self, item: Item) -> tuple[object, ...]:
        """Return all that is set here on which it depends how an item is drawn."""
        names = self._name_of, self._name_cells
        return self.wraps, self.shows_times, self.pattern, self.left, item is self.current, *names

    @property
    def names_lines(self) -> bool:
        """Whether it is written whose each line is."""
        return self._name_of is not None

    def widen_names(self, items: Sequence[Item]) -> bool:
        """Make room for the names of new lines; return whether that took more cells than before."""
        if self._name_of is None:
            return False
        names = (self._name_of(item) for item in items[-NAMES_MEASURED:] if isinstance(item, LogLine))
        was = self._name_cells
        self._name_cells = max(was, min(max(map(cell_len, names), default=0), LONGEST_NAME_CELLS))
        return self._name_cells > was

    @property
    def prefix_cells(self) -> int:
        """The cells before the text of a line."""
        return STAMP_CELLS * self.shows_times + (self._name_cells + 1 if self._name_cells else 0)

    def draw(self, item: Item, part: int, width: int, base: Style) -> list[Segment]:
        """Return one row of an item, of at most `width` cells.

        Args:
            item: A line, or a marker between lines.
            part: Which of its rows, where long lines are broken.
            width: The cells there are.
            base: The style below all others.
        """
        if isinstance(item, LogLine):
            return self._line(item, part, width, base)
        return self._marker(item, part, width, base)

    def _line(self, line: LogLine, part: int, width: int, base: Style) -> list[Segment]:
        prefix = self._prefix(line, base, is_first=part == 0)
        room = max(8, width - sum(cell_len(segment.text) for segment in prefix))
        body = [Segment(text, base + style) for text, style in text_runs(line)]
        if self.pattern is not None:
            look = self._style_of("current" if line is self.current else "match")
            body = highlighted(body, self.pattern, look)
        if not self.wraps:
            return [*prefix, *Strip(body).crop(self.left, self.left + room)]
        cuts = [0, *wrap_cuts("".join(segment.text for segment in body), room)]
        return [*prefix, *Strip(body).crop(cuts[part], cuts[part + 1])] if part + 1 < len(cuts) else prefix

    def _prefix(self, line: LogLine, base: Style, *, is_first: bool) -> list[Segment]:
        segments = []
        if self.shows_times:
            text = clock(line.stamp_ns) if is_first and line.stamp_ns else ""
            segments.append(Segment(pad(text, STAMP_CELLS), base + self._style_of("stamp")))
        if self._name_of is not None and self._name_cells:
            text = elide_middle(sanitize(self._name_of(line)), self._name_cells) if is_first else ""
            segments.append(Segment(pad(text, self._name_cells + 1), base + self._style_of("who")))
        return segments

    def _marker(self, marker: Marker, part: int, width: int, base: Style) -> list[Segment]:
        is_gap = marker.may_lack_lines or marker.mark is Mark.LOST
        look = base + self._style_of("gap" if is_gap else "marker")
        who = f"{sanitize(marker.source.name)}: " if self.names_lines and marker.source.pod else ""
        text = f"── {who}{sanitize(marker.text)} "
        if not self.wraps:
            return [Segment(text, look), Segment("─" * max(0, width - cell_len(text)), look)]
        cuts = [0, *wrap_cuts(text, width)]
        return (
            [*Strip([Segment(text, look)]).crop(cuts[part], cuts[part + 1])] if part + 1 < len(cuts) else []
        )
