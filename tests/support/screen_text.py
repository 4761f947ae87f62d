"""A screen as text that can be read, compared and kept: what stands where, and how it looks."""

from __future__ import annotations

import os
import string
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from functools import cache
from itertools import groupby
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.pilot import Pilot
from textual.strip import Strip

from tests import GOLDEN

FOLDER = GOLDEN / "screens"
# Variable that writes what is seen instead of comparing it; look at it before it is kept
UPDATE = "UPDATE_SCREENS"
_LETTERS = string.ascii_letters + string.digits


def text_of(app: App[Any]) -> str:
    return "\n".join(strip.text.rstrip() for strip in _strips(app))


def looks_of(app: App[Any]) -> str:
    """Return the look of every cell: a letter for each style, runs of it counted, and the styles below."""
    letters: dict[str, str] = {}
    lines = []
    for strip in _strips(app):
        runs = groupby((segment for segment in strip if segment.cell_length), _look)
        lines.append(
            "".join(
                f"{sum(each.cell_length for each in run)}{letters.setdefault(look, _LETTERS[len(letters)])}"
                for look, run in runs
            )
        )
    return "\n".join([*lines, "", *(f"{letter} {look}" for look, letter in letters.items())])


def _strips(app: App[Any]) -> Sequence[Strip]:
    return app.screen._compositor.render_strips()


def _look(segment: Segment) -> str:
    return _name(segment.style or Style())


@cache
def _name(style: Style) -> str:
    shown = Style(
        color=style.color,
        bgcolor=style.bgcolor,
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        reverse=style.reverse,
        strike=style.strike,
    )
    return str(shown)


def compare(name: str, parts: Mapping[str, str]) -> None:
    """Compare a screen with the one that is kept under this name, or keep it.

    Args:
        name: Of the file, without its ending.
        parts: What is compared: the text and the looks, by the names of the looks.
    """
    seen = "".join(f"== {part}\n{content}\n" for part, content in parts.items())
    path = FOLDER / f"{name}.txt"
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(seen, encoding="utf-8")
        return
    assert path.is_file(), f"{path.name} is not kept yet: run with {UPDATE}=1, look at it, and keep it"
    kept = path.read_text(encoding="utf-8")
    changes = unified_diff(kept.splitlines(), seen.splitlines(), "kept", "seen", lineterm="", n=1)
    assert seen == kept, "\n".join([f"{path.name} differs:", *changes])


async def resize(pilot: Pilot[Any], width: int, height: int) -> None:
    """Give the terminal another size, and wait until the screen is laid out in it."""
    await pilot.resize_terminal(width, height)
    while pilot.app.screen._compositor.size != (width, height):
        await pilot.pause(0.01)
