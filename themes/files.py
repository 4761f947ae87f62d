"""Parsing of palette files; errors name file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

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
"""Textual's names of theme colours."""

Value = TypeVar("Value")
Warn = Callable[[str], None]
"""Called with one sentence about a file."""

_HUES = "black|red|green|yellow|blue|magenta|cyan|white"
_HEX = "#[0-9a-fA-F]{3}([0-9a-fA-F]{3})?"
_COLOUR = re.compile(rf"({_HEX}|ansi_default|ansi_(bright_)?({_HUES})|\$[a-z0-9-]+)( \d{{1,2}}%)?")
_STYLE = re.compile(
    r"none|(bold|dim|italic|underline|reverse|strike)( (bold|dim|italic|underline|reverse|strike))*"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_WHERE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_FLAGS = ("dark", "ansi")
_MAX_BYTES = 1_000_000
_TABLES = ("variables", "textual")


class BrokenPalette(Exception):
    """A palette file that cannot be used; the message names file, line and reason."""


class PaletteFile(msgspec.Struct, frozen=True):
    """The contents of one palette file, without inherited values."""

    path: Path
    name: str
    parent: str
    """Name of the parent palette; empty if there is none."""
    flags: Mapping[str, bool]
    """`dark` and `ansi`, if set."""
    values: Mapping[str, str]
    """Colours and styles by name; `$primary 35%` refers to another name."""

    def over(self, parent: PaletteFile | None) -> PaletteFile:
        """Return this palette with missing values taken from `parent`."""
        if parent is None:
            return self
        return replace(self, flags={**parent.flags, **self.flags}, values={**parent.values, **self.values})

    def resolved(self, warn: Warn) -> dict[str, str]:
        """Return the values with each `$name` replaced; those that refer to nothing are left out."""
        found: dict[str, str] = {}
        for name in self.values:
            try:
                found[name] = self._resolved(name)
            except BrokenPalette as error:
                warn(str(error))
        return found

    def _resolved(self, name: str) -> str:
        value, seen = self.values[name], {name}
        while value.startswith("$"):
            other, _, share = value[1:].partition(" ")
            if other in seen or other not in self.values:
                raise BrokenPalette(f"{self.path}: {name} refers to ${other}, which is not a colour.")
            seen.add(other)
            value = f"{self.values[other]} {share}".rstrip()
        return value


def read_file(path: Path, known: frozenset[str] | None = None, warn: Warn = print) -> PaletteFile:
    """Read one palette file; its name defaults to the file's.

    Args:
        path: The file.
        known: Valid names; None to accept any.
        warn: Called for invalid names and values, which are dropped.

    Raises:
        BrokenPalette: The file cannot be read, or lacks what a theme needs.
    """
    try:
        # Opening a FIFO would wait for a writer, and /dev/zero never ends.
        if path.exists() and not (path.is_file() and path.stat().st_size <= _MAX_BYTES):
            raise BrokenPalette(f"{path}: Not a regular file of at most 1 MB.")
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        line = int(where[1]) if where and where[1] else max(1, len(text.splitlines()))
        raise _refusal(path, line, f"{_WHERE.sub('', str(error))}.") from error
    except UnicodeDecodeError as error:
        raise _refusal(path, 1, "Not UTF-8 text.") from error
    except OSError as error:
        raise BrokenPalette(f"{path}: {error.strerror or error}.") from error
    return _File(path, text, known, warn).checked(table)


class _File(msgspec.Struct, frozen=True):
    path: Path
    text: str
    known: frozenset[str] | None
    warn: Warn

    def checked(self, table: Mapping[str, object]) -> PaletteFile:
        for key in table.keys() - {"name", "parent", *_FLAGS, *_TABLES, *COLOURS}:
            self.warn(f"{self.path}, line {self.line(key)}: {key} is unknown in a theme.")
        name, parent = table.get("name", self.path.stem), table.get("parent", "")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.refused("name", "the name of a theme is letters, digits, - and _.")
        if not isinstance(parent, str):
            raise self.refused("parent", 'a parent is the name of a theme, as "gpuconsole-dark".')
        if not parent and "primary" not in table:
            raise _refusal(self.path, 1, 'it needs a parent = "gpuconsole-dark", or a primary = "#6cb2f7".')
        flags = self.usable(self.flag, {key: table[key] for key in _FLAGS if key in table})
        values = self.usable(self.value, {key: table[key] for key in COLOURS if key in table})
        if not parent and "primary" not in values:
            raise _refusal(self.path, 1, "without a usable primary colour it cannot be used.")
        for part in _TABLES:
            values |= self.values(part, table.get(part, {}))
        return PaletteFile(self.path, name, parent, flags, values)

    def usable(self, read: Callable[[str, object], Value], table: Mapping[str, object]) -> dict[str, Value]:
        """Return the valid values, and warn of the others."""
        found: dict[str, Value] = {}
        for key, value in table.items():
            try:
                found[key] = read(key, value)
            except BrokenPalette as error:
                self.warn(str(error))
        return found

    def flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refused(key, f"{key} is true or false.")
        return value

    def values(self, part: str, table: object) -> dict[str, str]:
        if not isinstance(table, dict):
            self.warn(str(self.refused(part, f"{part} is a table: [{part}] and lines below it.")))
            return {}
        for key in table.keys() - (self.known or table.keys()):
            self.warn(f"{self.path}, line {self.line(key)}: {key} is unknown in a theme.")
        known = {key: value for key, value in table.items() if key in (self.known or table)}
        return self.usable(self.value, known)

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
        # The first line with the key.
        stands = re.compile(rf"""\s*\[?\s*["']?{re.escape(key)}["']?\s*[\].=]""")
        lines = enumerate(self.text.splitlines(), start=1)
        return next((number for number, line in lines if stands.match(line)), 1)


def _refusal(path: Path, line: int, why: str) -> BrokenPalette:
    return BrokenPalette(f"{path}, line {line}: {why[:1].lower()}{why[1:]}")
