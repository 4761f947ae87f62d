"""Palettes and shared styles of the console, as plain data.

Palettes are TOML files and the only place that names colours. They are read with the standard
library alone, so one-shot commands can list themes without importing a user interface.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from themes.files import COLOURS, BrokenPalette, PaletteFile, Warn, read_file

STYLESHEET = Path(__file__).with_name("base.tcss")
"""Shared styles: borders, focus, statuses, GPUs."""

DEFAULT = "gpuconsole-dark"

LIGHT = "gpuconsole-light"

MONO = "gpuconsole-mono"
"""Without colours, for NO_COLOR, `--mono` and terminals without colours."""

ANSI = "gpuconsole-ansi"
"""The terminal's own colours, for terminals with sixteen."""

_PREFIX = "gpuconsole-"
_OURS = ("dark", "light", "contrast", "contrast-light", "safe", "safe-light", "ansi", "mono")


class Palette(TypedDict):
    """One theme; the keys are the arguments of Textual's `Theme`: `Theme(**palette)`."""

    name: str
    dark: bool
    primary: str
    """Colour of focus and of selectable items; the only required one."""
    variables: dict[str, str]
    """Additional names and CSS values: our own, and overrides of Textual's."""
    ansi: NotRequired[bool]
    """It uses the terminal's own sixteen colours."""
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
    """Load the packaged palettes, and those in the user's `folder` if it exists.

    A user's palette replaces a packaged one of the same name, and may inherit from it.

    Args:
        folder: Folder of the user's palettes.
        warn: Called for palettes and values that cannot be used, and for unknown names.
    """
    warn = warn or (lambda _words: None)
    ours = _packaged()
    palettes = {name: finished(file) for name, file in ours.items()}
    known = frozenset(name for file in ours.values() for name in file.values) - {*COLOURS}
    found = _readable(sorted(folder.glob("*.toml")) if folder else (), known, warn)
    for name, file in _joined(found, ours, warn).items():
        if "primary" in file.resolved(lambda _words: None):
            palettes[name] = finished(file, warn)
        else:
            warn(f"{file.path}: primary refers to nothing.")
    return palettes


def finished(file: PaletteFile, warn: Warn = print) -> Palette:
    """Build the theme of a palette file that has its parents' values; warn of colours left out."""
    values = file.resolved(warn)
    colours = {name: value for name, value in values.items() if name in COLOURS}
    variables = {name: value for name, value in values.items() if name not in COLOURS}
    flags = {"dark": True, "ansi": False, **file.flags}
    return cast(Palette, {"name": file.name, **flags, **colours, "variables": variables})


def find(word: str, names: Collection[str]) -> str | None:
    """Return the theme with a name or short name; None if there is none."""
    return next((name for name in (word, _PREFIX + word) if name in names), None)


def short(name: str) -> str:
    """Return the name of a packaged theme without `gpuconsole-`."""
    return name.removeprefix(_PREFIX)


def variable_defaults(*, dark: bool = True, ansi: bool = False) -> dict[str, str]:
    """Return a default for each of our variables, for themes that lack them.

    Args:
        dark: The current theme is dark.
        ansi: The current theme uses the terminal's sixteen colours.
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
    # A parent's name refers to `found` first, then to `below`.
    joined: dict[str, PaletteFile] = {}
    waiting = list(found)
    while ready := [each for each in waiting if not _waits_for(each, waiting, {**below, **joined})]:
        for each in ready:
            waiting.remove(each)
            joined[each.name] = each.over(joined.get(each.parent) or below.get(each.parent))
    for each in waiting:
        warn(f"{each.path}: its parent {each.parent} is not a usable theme.")
    return joined


def _waits_for(one: PaletteFile, waiting: Iterable[PaletteFile], there: Mapping[str, PaletteFile]) -> bool:
    is_to_come = any(each.name == one.parent for each in waiting if each is not one)
    return bool(one.parent) and (is_to_come or one.parent not in there)
