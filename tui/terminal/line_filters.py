"""Filters before the terminal: every line that any widget draws passes them.

Words from outside are made readable where they are drawn, by `k8s.text.sanitize.sanitize`. Should a
widget forget to, or Textual draw something by itself, nothing in it can do harm all the same.
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

_LIKES = {
    char: like
    for like, chars in {
        "~": "…",
        "=": "Σ═━┅┉╍╸╺▄▰",
        "|": "·│┆┊╎║╵╷╽╿▌▍▎▏▐▕",
        "-": "–—−\u2010\u2011─┄┈╌╴╶╼╾▃▔□▯",
        "^": "↑▲▴",
        "v": "↓▼▾",
        "<": "←◀◂\u2039«",
        ">": "→▶▸›»",
        "+": "✓✔▅▋",
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
"""Marks of our own and of Textual; bars keep the heights that they have in `tui.text.format`."""

_RANGES = (
    ("\u2500", "\u257f", "+"),  # lines that meet
    ("\u2580", "\u259f", "#"),  # quarters of a cell
    ("\u2800", "\u2800", " "),
    ("\u2801", "\u28ff", "*"),  # braille
)

_UNKNOWN = "?"


class Harmless(LineFilter):
    """Lets nothing out that a terminal would obey, nor anything that hides or turns what is read.

    It comes before filters that change colours: those make text of control segments.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments as they are, or others of the same widths."""
        for text, style, control in segments:
            if control or not _is_plain(text) or (style and style.link):
                return [_freed(segment) for segment in segments if not segment.control]
        return segments


class AsciiOnly(LineFilter):
    """Writes every glyph in ASCII, in as many cells."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments as they are, or others of the same widths."""
        return [
            segment if segment.text.isascii() else Segment(segment.text.translate(_IN_ASCII), segment.style)
            for segment in segments
        ]


def lets_out_only_ascii(app: App[Any]) -> bool:
    """Tell whether every glyph is written in ASCII."""
    return any(isinstance(each, AsciiOnly) for each in app.get_line_filters())


def _is_plain(text: str) -> bool:
    return (text.isascii() and text.isprintable()) or not UNSAFE.search(text)


def _freed(segment: Segment) -> Segment:
    """Take from a segment what is unsafe, and its link, for links are sent as a sequence around the text."""
    text, style, _ = segment
    if not _is_plain(text):
        text = set_cell_size(UNSAFE.sub(_blank, text), cell_len(text))
    return Segment(text, style.update_link(None) if style and style.link else style)


def _blank(found: re.Match[str]) -> str:
    return _UNKNOWN * get_character_cell_size(found.group())


class _InAscii(dict[int, str]):
    """Finds each character's like once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = like = char if char.isascii() else _like(char)
        return like


_IN_ASCII = _InAscii()


def _like(char: str) -> str:
    """Return ASCII that takes the cells of a character."""
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
