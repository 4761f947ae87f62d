"""Palettes and the shared look of the console, as plain tables.

A palette is a TOML file. Every colour the console uses is named in one and
nowhere else; this package reads them with the standard library alone, so
that the one-shot commands can list themes without loading a user interface.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NotRequired, TypedDict, cast

STYLESHEET = Path(__file__).with_name("base.tcss")
"""The look that all screens share: borders, focus, statuses, GPUs."""

DEFAULT = "gpuconsole-dark"
"""The palette to start with where nothing else is asked for."""

MONO = "gpuconsole-mono"
"""The palette without colours, for NO_COLOR, `--mono` and terminals below 256 colours."""

_COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
)

_ANSI_DEFAULTS = {
    "quiet": "ansi_default",
    "quiet-style": "dim",
    "bright": "ansi_default",
    "bright-style": "bold",
    "rule": "ansi_bright_black",
    "rule-focus": "ansi_blue",
    "cursor-row": "ansi_default",
    "cursor-row-blurred": "ansi_default",
    "cursor-row-style": "reverse",
    "mark": "ansi_yellow",
    "status-running": "ansi_green",
    "status-pending": "ansi_yellow",
    "status-changing": "ansi_cyan",
    "status-failed": "ansi_red",
    "status-failed-style": "bold",
    "status-done": "ansi_default",
    "gpu-busy": "ansi_blue",
    "gpu-free": "ansi_default",
    "gpu-bad": "ansi_red",
    "series-1": "ansi_cyan",
    "series-2": "ansi_yellow",
    "series-3": "ansi_green",
    "series-4": "ansi_magenta",
    "series-5": "ansi_blue",
    "series-6": "ansi_red",
    "chart-axis": "ansi_default",
    "chart-grid": "ansi_bright_black",
    "chart-cursor": "ansi_default",
}


class Palette(TypedDict):
    """One theme; the keys are the arguments of Textual's `Theme`, so `Theme(**palette)` makes it."""

    name: str
    """The name the user picks it by."""
    dark: bool
    """Whether its background is dark."""
    primary: str
    """The colour of focus and of what can be chosen; the only one a palette must have."""
    variables: dict[str, str]
    """Further names and their CSS values: our own, and Textual's where changed."""
    ansi: NotRequired[bool]
    """Whether it uses the terminal's own sixteen colours."""
    secondary: NotRequired[str]
    warning: NotRequired[str]
    error: NotRequired[str]
    success: NotRequired[str]
    accent: NotRequired[str]
    foreground: NotRequired[str]
    background: NotRequired[str]
    surface: NotRequired[str]
    panel: NotRequired[str]


class BrokenPalette(Exception):
    """A palette file cannot be used; the message names the file and says why."""


def load(folder: Path | None = None) -> dict[str, Palette]:
    """Read the packaged palettes, and those in the user's `folder` if it exists.

    A user's palette may replace a packaged one by taking its name.

    Raises:
        BrokenPalette: A file is not TOML, or has no name or primary colour.
    """
    folders = [Path(__file__).parent, *([folder] if folder else [])]
    palettes = [read(path) for place in folders for path in sorted(place.glob("*.toml"))]
    return {palette["name"]: palette for palette in palettes}


def read(path: Path) -> Palette:
    """Read one palette; its name is the file's where it gives none.

    Raises:
        BrokenPalette: The file is not readable TOML, has no primary colour, or a value is no text.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BrokenPalette(f"Could not read the theme {path}. {error}") from error
    if not isinstance(table.get("primary"), str):
        raise BrokenPalette(f'The theme {path} has no primary colour. Add a line: primary = "#6cb2f7".')
    colours = {name: _text(path, name, table[name]) for name in _COLOURS if name in table}
    variables = {
        name: _text(path, name, value)
        for part in ("variables", "textual")
        for name, value in table.get(part, {}).items()
    }
    name = _text(path, "name", table.get("name", path.stem))
    dark, ansi = table.get("dark", True) is True, table.get("ansi", False) is True
    return cast(Palette, {"name": name, "dark": dark, "ansi": ansi, "variables": variables, **colours})


def variable_defaults(*, dark: bool = True, ansi: bool = False) -> dict[str, str]:
    """Give every variable of our own a value for themes that do not know it.

    Args:
        dark: Whether the theme in use is dark.
        ansi: Whether the theme in use has the terminal's own sixteen colours.
    """
    if ansi:
        return dict(_ANSI_DEFAULTS)
    palette = read(Path(__file__).with_name("gpuconsole-dark.toml" if dark else "gpuconsole-light.toml"))
    return {name: palette["variables"][name] for name in _ANSI_DEFAULTS}


def _text(path: Path, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BrokenPalette(f'In the theme {path}, {name} must be text such as "#6cb2f7".')
    return value
