"""Drawing of log rows: sanitised and coloured text, wrapping, highlighted matches, time and writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from k8s.logs import Item, LogLine, Mark, Marker
from k8s.text.sanitize import log_runs, log_text, sanitize
from tui.text.cells import cell_len, elide_middle, graphemes, pad


def plain_text(item: Item) -> str:
    """Return an item as sanitised text on one line."""
    if isinstance(item, LogLine):
        if b"\x1b" in item.raw:
            return "".join(text for text, _ in log_runs(item.text, missing_bytes=item.missing_bytes))
        return log_text(item.text, missing_bytes=item.missing_bytes)
    return f"── {sanitize(item.text)} ──"


def text_runs(item: LogLine) -> list[tuple[str, Style]]:
    """Return a line's text with its own ANSI colours."""
    return [
        (text, _style_of(numbers))
        for text, numbers in log_runs(item.text, missing_bytes=item.missing_bytes)
        if text
    ]


def _style_of(numbers: Sequence[int]) -> Style:
    found, index = Style.null(), 0
    while index < len(numbers):
        number = numbers[index]
        if number in (38, 48):
            length = 3 if numbers[index + 1 : index + 2] == (5,) else 5
            colour = _colour_of(numbers[index + 1 : index + length])
            if colour is not None:
                found += Style(color=colour) if number == 38 else Style(bgcolor=colour)
            index += length
            continue
        if number in _ATTRIBUTES:
            found += _ATTRIBUTES[number]
        elif 30 <= number <= 37 or 90 <= number <= 97:
            found += Style(color=Color.from_ansi(number - 30 if number < 90 else number - 82))
        elif 40 <= number <= 47 or 100 <= number <= 107:
            found += Style(bgcolor=Color.from_ansi(number - 40 if number < 100 else number - 92))
        index += 1
    return found


_ATTRIBUTES = {
    1: Style(bold=True),
    2: Style(dim=True),
    3: Style(italic=True),
    4: Style(underline=True),
    7: Style(reverse=True),
    9: Style(strike=True),
}


def _colour_of(numbers: Sequence[int]) -> Color | None:
    if any(number > 255 for number in numbers):
        return None
    if len(numbers) == 2:
        return Color.from_ansi(numbers[1])
    return Color.from_rgb(*numbers[1:]) if len(numbers) == 4 else None


def clock(stamp_ns: int) -> str:
    """Format a timestamp in local time: `14:02:09.113`."""
    moment = datetime.fromtimestamp(stamp_ns / 1e9)
    return f"{moment:%H:%M:%S}.{stamp_ns // 1_000_000 % 1000:03d}"


def pattern_of(typed: str) -> re.Pattern[str] | None:
    """Return the highlight pattern of a filter; None for an empty or excluding filter."""
    words = typed.strip()
    if not words or words.startswith("!"):
        return None
    try:
        return re.compile(words, re.IGNORECASE)
    except re.error:
        return re.compile(re.escape(words), re.IGNORECASE)


def highlighted(segments: list[Segment], pattern: re.Pattern[str], style: Style) -> list[Segment]:
    """Apply a style to every match in the joined text."""
    text = "".join(segment.text for segment in segments)
    spans = [found.span() for found in pattern.finditer(text) if found.end() > found.start()]
    if not spans:
        return segments
    edges = sorted({edge for span in spans for edge in span})
    result: list[Segment] = []
    at = 0
    for segment in segments:
        end = at + len(segment.text)
        cuts = [at, *(edge for edge in edges if at < edge < end), end]
        for start, stop in pairwise(cuts):
            is_match = any(first <= start < last for first, last in spans)
            base = segment.style or Style.null()
            result.append(Segment(segment.text[start - at : stop - at], base + style if is_match else base))
        at = end
    return result


def wrap_cuts(text: str, width: int) -> list[int]:
    """Return the cells at which to break a text into `width`; the last one is its end."""
    if text.isascii():
        return [*range(width, len(text), width), len(text)]
    cuts: list[int] = []
    used = line = 0
    for _, _, cells in graphemes(text):
        if line + cells > width:
            cuts.append(used)
            line = 0
        used += cells
        line += cells
    return [*cuts, used]


# Width of `14:02:09.113 `.
STAMP_CELLS = 13
LONGEST_NAME_CELLS = 20
# Only this many new lines are measured for the name column, to keep floods cheap.
NAMES_MEASURED = 200


class ItemPainter:
    """Renders lines and markers as segments."""

    def __init__(self, style_of: Callable[[str], Style]) -> None:
        """Draw with the styles that `style_of` returns for parts: `match` for `.log-view--match`."""
        self.wraps = False
        self.shows_times = True
        self.pattern: re.Pattern[str] | None = None
        self.current: Item | None = None
        self.left = 0
        self._style_of = style_of
        self._name_of: Callable[[LogLine], str] | None = None
        self._name_cells = 0

    def name_lines(self, name_of: Callable[[LogLine], str] | None) -> None:
        """Prefix each line with its name; None removes the prefix."""
        self._name_of, self._name_cells = name_of, 0

    def settings_for(self, item: Item) -> tuple[object, ...]:
        """Return all settings that affect an item; a cache key."""
        names = self._name_of, self._name_cells
        return self.wraps, self.shows_times, self.pattern, self.left, item is self.current, *names

    @property
    def names_lines(self) -> bool:
        """True if lines have a name prefix."""
        return self._name_of is not None

    def widen_names(self, items: Sequence[Item]) -> bool:
        """Widen the name column for new lines; return True if it grew."""
        if self._name_of is None:
            return False
        names = (self._name_of(item) for item in items[-NAMES_MEASURED:] if isinstance(item, LogLine))
        was = self._name_cells
        self._name_cells = max(was, min(max(map(cell_len, names), default=0), LONGEST_NAME_CELLS))
        return self._name_cells > was

    @property
    def prefix_cells(self) -> int:
        """Width of the prefix."""
        return STAMP_CELLS * self.shows_times + (self._name_cells + 1 if self._name_cells else 0)

    def draw(self, item: Item, part: int, width: int, base: Style) -> list[Segment]:
        """Return one row of an item; `part` is its number within a wrapped item."""
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
