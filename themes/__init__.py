"""Palettes and the shared look of the console, as plain tables.

A palette is a TOML file. Every colour the console uses is named in one and
nowhere else; this package reads them with the standard library alone, so
that the one-shot commands can list themes without loading a user interface.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from themes.files import COLOURS, BrokenPalette, PaletteFile, Warn, read_file

STYLESHEET = Path(__file__).with_name("base.tcss")
"""The look that all screens share: borders, focus, statuses, GPUs."""

DEFAULT = "gpuconsole-dark"
"""The palette to start with where nothing else is asked for."""

LIGHT = "gpuconsole-light"
"""The same by day."""

MONO = "gpuconsole-mono"
"""The palette without colours, for NO_COLOR, `--mono` and terminals that have none."""

ANSI = "gpuconsole-ansi"
"""The palette of the terminal's own colours, for terminals that have but sixteen."""

_PREFIX = "gpuconsole-"
_OURS = ("dark", "light", "contrast", "contrast-light", "safe", "safe-light", "ansi", "mono")


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


def load(folder: Path | None = None, warn: Warn | None = None) -> dict[str, Palette]:
    """Read the packaged palettes, and those in the user's `folder` if it exists.

    A user's palette may replace a packaged one by taking its name, also one that it changes.

    Args:
        folder: Where the user's own are.
        warn: Called for each of them that cannot be used, and of names in them that mean nothing.
    """
    warn = warn or (lambda _words: None)
    ours = _packaged()
    palettes = {name: finished(file) for name, file in ours.items()}
    known = frozenset(name for file in ours.values() for name in file.values) - {*COLOURS}
    found = _readable(sorted(folder.glob("*.toml")) if folder else (), known, warn)
    for name, file in _joined(found, ours, warn).items():
        try:
            palettes[name] = finished(file)
        except BrokenPalette as error:
            warn(str(error))
    return palettes


def finished(file: PaletteFile) -> Palette:
    """Make a theme of a palette file that has its parents' values.

    Raises:
        BrokenPalette: A colour is said to be another one that there is not.
    """
    values = file.resolved()
    colours = {name: value for name, value in values.items() if name in COLOURS}
    variables = {name: value for name, value in values.items() if name not in COLOURS}
    flags = {"dark": True, "ansi": False, **file.flags}
    return cast(Palette, {"name": file.name, **flags, **colours, "variables": variables})


def find(word: str, names: Collection[str]) -> str | None:
    """Return the theme that a word means: its name, or what follows `gpuconsole-` in it."""
    return next((name for name in (word, _PREFIX + word) if name in names), None)


def short(name: str) -> str:
    """Return the shortest word that means a theme of ours."""
    return name.removeprefix(_PREFIX)


def variable_defaults(*, dark: bool = True, ansi: bool = False) -> dict[str, str]:
    """Give every variable of our own a value for themes that do not know it.

    Args:
        dark: Whether the theme in use is dark.
        ansi: Whether the theme in use has the terminal's own sixteen colours.
    """
    name = ANSI if ansi else DEFAULT if dark else LIGHT
    return finished(_packaged()[name])["variables"]


@cache
def _packaged() -> Mapping[str, PaletteFile]:
    here = Path(__file__).parent
    joined = _joined((read_file(here / f"{_PREFIX}{name}.toml") for name in _OURS), {}, print)
    return {_PREFIX + name: joined[_PREFIX + name] for name in _OURS}


def _readable(paths: Iterable[Path], known: frozenset[str], warn: Warn) -> Iterator[PaletteFile]:
    for path in paths:
        try:
            yield read_file(path, known, warn)
        except BrokenPalette as error:
            warn(str(error))


def _joined(
    found: Iterable[PaletteFile], below: Mapping[str, PaletteFile], warn: Warn
) -> dict[str, PaletteFile]:
    """Give each file what its parent says; of two parents with one name, that among `found` is meant."""
    joined: dict[str, PaletteFile] = {}
    waiting = list(found)
    while ready := [each for each in waiting if not _waits_for(each, waiting, {**below, **joined})]:
        for each in ready:
            waiting.remove(each)
            joined[each.name] = each.over(joined.get(each.parent) or below.get(each.parent))
    for each in waiting:
        warn(f"{each.path}: its parent {each.parent} is no theme that can be used.")
    return joined


def _waits_for(one: PaletteFile, waiting: Iterable[PaletteFile], there: Mapping[str, PaletteFile]) -> bool:
    is_to_come = any(each.name == one.parent for each in waiting if each is not one)
    return bool(one.parent) and (is_to_come or one.parent not in there)
