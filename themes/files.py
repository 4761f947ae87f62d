"""One palette file, as it is written: what can be wrong with it is said with its file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

COLOURS = (
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
"""Textual's own names for the colours of a theme."""

Warn = Callable[[str], None]
"""Takes a sentence about a file: what is wrong where."""

_HUES = "black|red|green|yellow|blue|magenta|cyan|white"
_HEX = "#[0-9a-fA-F]{3}([0-9a-fA-F]{3})?"
_COLOUR = re.compile(rf"({_HEX}|ansi_default|ansi_(bright_)?({_HUES})|\$[a-z0-9-]+)( \d{{1,2}}%)?")
_STYLE = re.compile(
    r"none|(bold|dim|italic|underline|reverse|strike)( (bold|dim|italic|underline|reverse|strike))*"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_WHERE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_FLAGS = ("dark", "ansi")
_TABLES = ("variables", "textual")


class BrokenPalette(Exception):
    """A palette file cannot be used; the message names file and line, and says why."""


@dataclass(frozen=True, slots=True)
class PaletteFile:
    """What one file says; the rest comes from its parent."""

    path: Path
    name: str
    parent: str
    """The palette that it changes; empty where it stands alone."""
    flags: Mapping[str, bool]
    """`dark` and `ansi`, where it says so."""
    values: Mapping[str, str]
    """Colours and styles by their names; `$primary 35%` stands for another one."""

    def over(self, parent: PaletteFile | None) -> PaletteFile:
        """Return this file with what it does not say taken from its parent."""
        if parent is None:
            return self
        return replace(self, flags={**parent.flags, **self.flags}, values={**parent.values, **self.values})

    def resolved(self) -> dict[str, str]:
        """Return the values, each `$name` in them being what that name stands for.

        Raises:
            BrokenPalette: There is no such name, or it stands for itself.
        """
        return {name: self._resolved(name) for name in self.values}

    def _resolved(self, name: str) -> str:
        value, seen = self.values[name], {name}
        while value.startswith("$"):
            other, _, share = value[1:].partition(" ")
            if other in seen or other not in self.values:
                raise BrokenPalette(f"{self.path}: {name} is said to be ${other}, which is no colour.")
            seen.add(other)
            value = f"{self.values[other]} {share}".rstrip()
        return value


def read_file(path: Path, known: frozenset[str] | None = None, warn: Warn = print) -> PaletteFile:
    """Read one palette file; its name is the file's where it gives none.

    Args:
        path: Where it is.
        known: The names that mean something; None to take any.
        warn: Called for names that mean nothing; they are left out.

    Raises:
        BrokenPalette: It cannot be read, or a value makes no sense.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        line = int(where[1]) if where and where[1] else max(1, len(text.splitlines()))
        raise _refusal(path, line, f"{_WHERE.sub('', str(error))}.") from error
    except UnicodeDecodeError as error:
        raise _refusal(path, 1, "This is no UTF-8 text.") from error
    except OSError as error:
        raise BrokenPalette(f"{path}: {error.strerror or error}.") from error
    return _File(path, text, known, warn).checked(table)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    text: str
    known: frozenset[str] | None
    warn: Warn

    def checked(self, table: Mapping[str, object]) -> PaletteFile:
        for key in table.keys() - {"name", "parent", *_FLAGS, *_TABLES, *COLOURS}:
            self.warn(f"{self.path}, line {self.line(key)}: {key} means nothing in a theme.")
        name, parent = table.get("name", self.path.stem), table.get("parent", "")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.refused("name", "the name of a theme is letters, digits, - and _.")
        if not isinstance(parent, str):
            raise self.refused("parent", 'a parent is the name of a theme, as "gpuconsole-dark".')
        if not parent and "primary" not in table:
            raise _refusal(self.path, 1, 'it needs a parent = "gpuconsole-dark", or a primary = "#6cb2f7".')
        flags = {key: self.flag(key, table[key]) for key in _FLAGS if key in table}
        values = {key: self.value(key, table[key]) for key in COLOURS if key in table}
        for part in _TABLES:
            values |= self.values(part, table.get(part, {}))
        return PaletteFile(self.path, name, parent, flags, values)

    def flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refused(key, f"{key} is true or false.")
        return value

    def values(self, part: str, table: object) -> dict[str, str]:
        if not isinstance(table, dict):
            raise self.refused(part, f"{part} is a table: [{part}] and lines below it.")
        for key in table.keys() - (self.known or table.keys()):
            self.warn(f"{self.path}, line {self.line(key)}: {key} means nothing in a theme.")
        return {key: self.value(key, value) for key, value in table.items() if key in (self.known or table)}

    def value(self, key: str, value: object) -> str:
        if key.endswith("-style"):
            if isinstance(value, str) and _STYLE.fullmatch(value):
                return value
            raise self.refused(key, f'{key} is a style such as "bold", "dim", "reverse" or "none".')
        if isinstance(value, str) and _COLOUR.fullmatch(value):
            return value
        raise self.refused(key, f'{key} is a colour such as "#6cb2f7" or "ansi_blue".')

    def refused(self, key: str, why: str) -> BrokenPalette:
        return _refusal(self.path, self.line(key), why)

    def line(self, key: str) -> int:
        """Return the line where a key stands first."""
        stands = re.compile(rf"""\s*\[?\s*["']?{re.escape(key)}["']?\s*[\].=]""")
        lines = enumerate(self.text.splitlines(), start=1)
        return next((number for number, line in lines if stands.match(line)), 1)


def _refusal(path: Path, line: int, why: str) -> BrokenPalette:
    return BrokenPalette(f"{path}, line {line}: {why[:1].lower()}{why[1:]}")
