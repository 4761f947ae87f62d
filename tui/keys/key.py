"""What one key is: its id for keys.yaml, what it runs, and what people read about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

_WRITTEN = {
    "escape": "esc",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "full_stop": ".",
    "comma": ",",
    "minus": "-",
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
"""Keys that people write otherwise than Textual names them."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or several that do the same, in one place."""

    id: str
    """What keys.yaml calls it: the view or widget, a dot, and the action."""
    keys: str
    """As Textual names them, with commas between: `j,down`."""
    action: str
    """The Textual action that it runs, with arguments: `scroll(1)`, `request('logs')`."""
    help: str
    """What the help says."""
    footer: str = ""
    """What the footer says; empty keeps it out of the footer."""
    changes_cluster: bool = False
    """With `--readonly` it is not there."""
    opens_prompt: bool = False
    """What is typed next belongs to the prompt, also when it arrives in the same packet."""
    permission: str = ""
    """What the user must be allowed to do for it; empty for nothing that could be refused."""

    @property
    def shown(self) -> str:
        """Return the first key as people write it: `^d`, `enter`, `/`."""
        return written(self.keys.split(",")[0])

    @property
    def all_shown(self) -> str:
        """Return every key as people write them: `j ↓`."""
        return " ".join(written(key) for key in self.keys.split(","))


@dataclass(frozen=True, slots=True)
class UserKeys:
    """What keys.yaml says."""

    keymap: Mapping[str, str] = field(default_factory=dict)
    """Ids to keys as Textual names them, with commas between."""
    problems: tuple[str, ...] = ()
    """What could not be used, each with its line, and what clashes; the rest is used all the same."""
    renamed: tuple[str, ...] = ()
    """Ids that were called otherwise before, each with its line; their keys are used."""


def written(key: str) -> str:
    """Return a key's name as people write it."""
    name = key.strip()
    if name.startswith("ctrl+"):
        return "^" + {"@": "space", "backslash": "\\"}.get(name[5:], name[5:])
    if name.startswith("shift+"):
        return "⇧" + written(name[6:])
    return _WRITTEN.get(name, name)


def remapped(keys: Iterable[Key], keymap: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the keys with those that the user chose in place of ours.

    Args:
        keys: Any part of the table.
        keymap: Ids to keys as Textual names them, with commas between.
    """
    return tuple(replace(key, keys=keymap[key.id]) if key.id in keymap else key for key in keys)
