"""One key: its id for keys.yaml, its action, and its help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

# Keys that people write differently from Textual.
_WRITTEN = {
    "escape": "esc",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "full_stop": ".",
    "comma": ",",
    "minus": "-",
    "left_square_bracket": "[",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "right_square_bracket": "]",
    "plus": "+",
    "equals_sign": "=",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
}


class Key(msgspec.Struct, frozen=True):
    """One key, or several with the same effect, in one place."""

    id: str
    """Id in keys.yaml: the view or widget, a dot, and the action."""
    keys: str
    """Textual's key names, separated by commas: `j,down`."""
    action: str
    """Textual action with arguments: `scroll(1)`, `request('logs')`."""
    help: str
    footer: str = ""
    """Footer label; empty hides it."""
    changes_cluster: bool = False
    """Hidden with `--readonly`."""
    # Keys that follow in the same packet belong to the prompt.
    opens_prompt: bool = False
    permission: str = ""
    """Required permission; empty if none can be refused."""

    @property
    def shown(self) -> str:
        """Return the first key as people write it: `^d`, `enter`, `/`."""
        return written(self.keys.split(",")[0])

    @property
    def all_shown(self) -> str:
        """Return every key as people write it: `j ↓`."""
        return " ".join(written(key) for key in self.keys.split(","))


class UserKeys(msgspec.Struct, frozen=True):
    """The contents of keys.yaml."""

    keymap: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Textual's key names by id, separated by commas."""
    problems: tuple[str, ...] = ()
    """Rejected entries with their lines, and clashes; the rest is used."""


class KeyTable(NamedTuple):
    """All keys, by where they work."""

    sections: tuple[tuple[str, tuple[Key, ...]], ...]
    """Headings of help and manual, each with its keys."""
    combined: tuple[tuple[str, tuple[Key, ...]], ...]
    """Places in which keys of several sections work at once."""
    everywhere: tuple[Key, ...]


def written(key: str) -> str:
    """Return a key's name as people write it."""
    name = key.strip()
    if name.startswith("ctrl+"):
        return "^" + {"@": "space", "backslash": "\\"}.get(name[5:], name[5:])
    if name.startswith("shift+"):
        return "⇧" + written(name[6:])
    return _WRITTEN.get(name, name)


def unshadowed(keys: Iterable[Key], taken: Iterable[Key] = ()) -> tuple[Key, ...]:
    """Return the keys that still have a name, each without names in `taken` or of an earlier key."""
    seen = {name for key in taken for name in key.keys.split(",")}
    found = []
    for key in keys:
        names = [name for name in key.keys.split(",") if name not in seen]
        seen.update(names)
        found += [replace(key, keys=",".join(names))] if names else []
    return tuple(found)


def remapped(keys: Iterable[Key], keymap: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the keys with the user's own in place of the defaults.

    Args:
        keys: Any part of the table.
        keymap: Textual's key names by id, separated by commas.
    """
    return tuple(replace(key, keys=keymap[key.id]) if key.id in keymap else key for key in keys)
