"""What one line of a log looks like: harmless text, its own colours, breaks and highlights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from k8s.logs import Item, LogLine
from k8s.text.sanitize import log_runs, log_text, sanitize
from tui.text.cells import graphemes


def plain_text(item: Item) -> str:
    """Return what is shown of an item, harmless and on one line."""
    if isinstance(item, LogLine):
        if b"\x1b" in item.raw:
            return "".join(text for text, _ in log_runs(item.text, missing_bytes=item.missing_bytes))
        return log_text(item.text, missing_bytes=item.missing_bytes)
    return f"── {sanitize(item.text)} ──"


def text_runs(item: LogLine) -> list[tuple[str, Style]]:
    """Return a line's text with the colours that it asks for itself."""
    return [
        (text, _style_of(numbers))
        for text, numbers in log_runs(item.text, missing_bytes=item.missing_bytes)
        if text
    ]


def _style_of(numbers: Sequence[int]) -> Style:
    """Return the style that SGR parameters name."""
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
    """Say when a line was written, in local time: `14:02:09.113`."""
    moment = datetime.fromtimestamp(stamp_ns / 1e9)
    return f"{moment:%H:%M:%S}.{stamp_ns // 1_000_000 % 1000:03d}"


def pattern_of(typed: str) -> re.Pattern[str] | None:
    """Return what to highlight for a filter; None for none, and for one that leaves out."""
    words = typed.strip()
    if not words or words.startswith("!"):
        return None
    try:
        return re.compile(words, re.IGNORECASE)
    except re.error:
        return re.compile(re.escape(words), re.IGNORECASE)


def highlighted(segments: list[Segment], pattern: re.Pattern[str], style: Style) -> list[Segment]:
    """Put a style on every match of a pattern in the joined text of segments."""
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
    """Return the cells at which a text is broken to fit into `width`; the last is its end."""
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
