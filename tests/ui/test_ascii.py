"""Under `--ascii` every glyph is written in ASCII, as wide as it was."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from tui.line_filters import AsciiOnly, Harmless

TUI = Path(__file__).parents[2] / "tui"
BLACK = Color(0, 0, 0)


def in_ascii(text: str) -> str:
    (segment,) = AsciiOnly().apply([Segment(text)], BLACK)
    return segment.text


def glyphs_of(path: Path) -> Iterator[tuple[str, str]]:
    """Find what is not ASCII in the strings of a file that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield from ((path.name, char) for char in node.value if not char.isascii())


def test_every_glyph_that_we_draw_has_its_like() -> None:
    drawn = {found for path in TUI.rglob("*.py") for found in glyphs_of(path)}
    assert {"…", "›", "·", "▮", "▯", "✕", "●", "▸", "Σ", "─"} <= {char for _, char in drawn}
    assert {found for found in drawn if in_ascii(found[1]) == "?"} == set()


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=60))
def test_whatever_is_written_becomes_ascii_of_the_same_width(text: str) -> None:
    (freed,) = Harmless().apply([Segment(text)], BLACK)
    drawn = in_ascii(freed.text)
    assert drawn.isascii() and (drawn.isprintable() or not drawn)
    assert cell_len(drawn) == cell_len(text)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("Jobs › bert… · 8×4 GPUs", "Jobs > bert~ | 8x4 GPUs"),
        ("╭─ ▮▮▯✕ ─╮", "+- ##-x -+"),
        ("▸ ● ↑↓ └ ✓ –", "> * ^v ` + -"),
        ("▁▂▃▄▅▆▇", "_.-=+*#"),
        ("Zoë Müller, naïve café", "Zoe Muller, naive cafe"),
        ("训练 \uff21\uff11 Я", "???? A 1  ?"),
        ("e\u0301", "e"),
    ],
)
def test_letters_stay_readable_where_they_can(text: str, drawn: str) -> None:
    assert in_ascii(text) == drawn
