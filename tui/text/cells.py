"""Text measured, shortened and padded in terminal cells.

A Chinese character takes two cells, an accent none. Widths are those of Rich, because Textual lays out
by them. `rich.cells` is imported only for text beyond `_NARROW`, so that one-shot commands start fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from k8s.text.sanitize import sanitize

_SUFFIX = re.compile(r"(?:[-_./][^\W\d_]+)?[-_./]?\d+$")
# One cell each: Latin, Greek and Cyrillic letters, punctuation, arrows, boxes, blocks and braille.
_NARROW = re.compile(
    r"[\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0377\u037a-\u0482\u2010-\u2027\u2030-\u205e"
    r"\u2190-\u2319\u2500-\u25fc\u2800-\u28ff]*"
)


def cell_len(text: str) -> int:
    """Count the terminal cells of a text without control characters."""
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len as rich_cell_len

    return rich_cell_len(text)


def graphemes(text: str) -> Sequence[tuple[int, int, int]]:
    """Return start, end and width of each character with its combining marks."""
    from rich.cells import split_graphemes

    return split_graphemes(text)[0]


def head(text: str, width: int) -> str:
    """Return as much of the start of `text` as fits into `width` cells."""
    if text.isascii() or _NARROW.fullmatch(text):
        return text[: max(0, width)]
    used = 0
    for start, _, cells in graphemes(text):
        used += cells
        if used > width:
            return text[:start]
    return text


def tail(text: str, width: int) -> str:
    """Return as much of the end of `text` as fits into `width` cells."""
    if text.isascii() or _NARROW.fullmatch(text):
        return text[len(text) - width :] if 0 < width < len(text) else text * (width > 0)
    used = 0
    for _, end, cells in reversed(graphemes(text)):
        used += cells
        if used > width:
            return text[end:]
    return text


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text to lines of `width` cells, between words where possible."""
    lines: list[str] = []
    line = ""
    for word in sanitize(text).split():
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        line = word
        while cell_len(line) > width and (part := head(line, width)):
            lines.append(part)
            line = line[len(part) :]
    return [*lines, line] if line else lines


def elide_end(text: str, width: int) -> str:
    """Shorten `text` to `width` cells; a cut end becomes `…`."""
    if cell_len(text) <= width:
        return text
    return head(text, width - 1) + "…" if width > 0 else ""


def elide_middle(text: str, width: int) -> str:
    """Shorten a name to `width` cells but keep its suffix: `bert-larg…-worker-12`.

    The suffix is the last word with its number, which identifies an instance. If it does not fit, only the
    number remains.
    """
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    suffix = _SUFFIX.search(text)
    suffix_cells = cell_len(suffix.group()) if suffix else 0
    end_cells = max((width - 1) // 2, min(suffix_cells, width - 1))
    start = head(text, width - 1 - end_cells)
    return f"{start}…{tail(text, end_cells)}"


def pad(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Pad `text` with spaces to `width` cells; longer text is unchanged."""
    if text.isascii():
        return text.ljust(width) if align == "left" else text.rjust(width)
    space = " " * (width - cell_len(text))
    return text + space if align == "left" else space + text
