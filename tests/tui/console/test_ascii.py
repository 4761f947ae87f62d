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

from tests import ROOT
from tests.support.objects import node
from tests.support.playground import Playground, console_on, some_objects
from tui.terminal.line_filters import AsciiOnly, SanitizeFilter

TUI = ROOT / "tui"
BLACK = Color(0, 0, 0)


def in_ascii(text: str) -> str:
    (segment,) = AsciiOnly().apply([Segment(text)], BLACK)
    return segment.text


def glyphs_of(path: Path) -> Iterator[tuple[str, str]]:
    """Find what is not ASCII in the strings of a file that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {id(part.value) for part in ast.walk(tree) if isinstance(part, ast.Expr)}
    for part in ast.walk(tree):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in documented:
            yield from ((path.name, char) for char in part.value if not char.isascii())


def test_every_glyph_in_the_source_has_an_ascii_replacement() -> None:
    drawn = {found for path in TUI.rglob("*.py") for found in glyphs_of(path)}
    assert {"…", "›", "·", "▮", "▯", "✕", "●", "▸", "Σ", "─"} <= {char for _, char in drawn}
    assert {found for found in drawn if in_ascii(found[1]) == "?"} == set()


@settings(max_examples=200)
@given(st.text(st.characters(), max_size=60))
def test_any_text_is_converted_to_ascii_of_the_same_width(text: str) -> None:
    (freed,) = SanitizeFilter().apply([Segment(text)], BLACK)
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
def test_glyphs_and_accented_letters_are_transliterated_to_ascii(text: str, drawn: str) -> None:
    assert in_ascii(text) == drawn


def strip_texts(play: Playground) -> list[str]:
    return [strip.text for strip in play.console.screen._compositor.render_strips()]


@pytest.mark.slow
async def test_ascii_mode_without_colours_marks_selection_status_and_focus_by_characters(
    tmp_path: Path,
) -> None:
    """By letters alone: what is selected, marked, unhealthy, waiting, focused, and what a button is."""
    objects = some_objects()
    objects["nodes"] = [node("a", 7, capacity=8), node("b", 8, unschedulable=True)]
    async with console_on(tmp_path, is_ascii=True, is_mono=True, **objects) as play:

        def line_with(word: str) -> str:
            lines = [line for line in strip_texts(play) if word in line]
            assert lines, play.text
            return lines[0]

        async def press(*keys: str) -> None:
            await play.press(*keys)
            assert all(line.isascii() for line in strip_texts(play)), play.text

        await press("N", "g", "space", "j")
        assert line_with("bert").startswith("*  ") and line_with("waits").startswith(" > ")
        assert "Running" in line_with("bert") and "Pending" in line_with("waits")
        assert "= 2 jobs | 8 GPUs held" in play.text
        await press("tab")
        await play.until(lambda: "unhealthy" in play.text)
        assert "x" in line_with("Ready |").split("Ready")[0]
        assert "cordoned" in play.text.lower()
        await press("escape", "N", "g", "enter")
        focused, other = (line_with(title) for title in ("+= ", "+- "))
        assert "instances" in focused and focused.rstrip().endswith("=+")
        assert other.rstrip().endswith("-+")
        await press("tab")
        assert "instances" not in line_with("+= ")
        for keys in (["escape", "ctrl+d"], ["escape", "question_mark"], ["escape", "n"], ["escape", "m"]):
            await press(*keys)
