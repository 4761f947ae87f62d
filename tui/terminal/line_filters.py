"""Filters of every line that any widget draws, before it reaches the terminal.

Widgets sanitise text themselves (`k8s.text.sanitize`); this is the safety net for omissions and
for text that Textual draws on its own.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from rich.cells import cell_len, get_character_cell_size, set_cell_size
from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from k8s.text.sanitize import UNSAFE

# Marks of ours and of Textual; bars keep the heights that they have in `tui.text.format`.
_LIKES = {
    char: like
    for like, chars in {
        "~": "…≈",
        "=": "Σ═━┅┉╍╸╺▄▰",
        "|": "·│┆┊╎║╵╷╽╿▌▍▎▏▐▕",
        "-": "–—−\u2010\u2011─┄┈╌╴╶╼╾▃▔□▯",
        "^": "↑▲▴△",
        "v": "↓▼▾",
        "<": "←◀◂\u2039«",
        ">": "→▶▸›»",
        "+": "✓✔▅▋±",
        "x": "✕✗×",
        "*": "●•▆▊",
        "o": "○°◇",
        "@": "↻◆",
        "S": "⇧",
        "#": "■▮▇█▉▓┃┇┋╏╹╻",
        "_": "▁",
        ".": "▂░",
        ":": "▒",
        "`": "└",
        "'": "\u2018\u2019",
        '"': "\u201c\u201d▀",
        "u": "µ",
    }.items()
    for char in chars
}

_RANGES = (
    ("\u2500", "\u257f", "+"),  # lines that meet
    ("\u2580", "\u259f", "#"),  # quarters of a cell
    ("\u2800", "\u2800", " "),
    ("\u2801", "\u28ff", "*"),  # braille
)

_UNKNOWN = "?"


class SanitizeFilter(LineFilter):
    """Filter that removes control characters and anything that hides or reorders text.

    It comes before filters that change colours: those turn control segments into text.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments unchanged, or replacements of the same widths."""
        for text, style, control in segments:
            if control or not _is_plain(text) or (style and style.link):
                return [_freed(segment) for segment in segments if not segment.control]
        return segments


class AsciiOnly(LineFilter):
    """Filter that replaces every glyph by ASCII of the same width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments unchanged, or replacements of the same widths."""
        return [
            segment if segment.text.isascii() else Segment(segment.text.translate(_IN_ASCII), segment.style)
            for segment in segments
        ]


def lets_out_only_ascii(app: App[Any]) -> bool:
    """Return True if every glyph is written in ASCII."""
    return any(isinstance(each, AsciiOnly) for each in app.get_line_filters())


def _is_plain(text: str) -> bool:
    return (text.isascii() and text.isprintable()) or not UNSAFE.search(text)


def _freed(segment: Segment) -> Segment:
    # Links are sent as a sequence around the text, so they go too.
    text, style, _ = segment
    if not _is_plain(text):
        text = set_cell_size(UNSAFE.sub(_blank, text), cell_len(text))
    return Segment(text, style.update_link(None) if style and style.link else style)


def _blank(found: re.Match[str]) -> str:
    return _UNKNOWN * get_character_cell_size(found.group())


class _InAscii(dict[int, str]):
    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = like = char if char.isascii() else _like(char)
        return like


_IN_ASCII = _InAscii()


def _like(char: str) -> str:
    # As many ASCII characters as the glyph has cells.
    if char in _LIKES:
        return _LIKES[char]
    for first, last, like in _RANGES:
        if first <= char <= last:
            return like
    cells = get_character_cell_size(char)
    letters = [part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part)]
    if cells and len(letters) == 1 and letters[0].isascii() and letters[0].isprintable():
        return letters[0].ljust(cells)
    return _UNKNOWN * cells
