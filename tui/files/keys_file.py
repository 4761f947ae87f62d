"""The user's keys.yaml: other keys for what the table of keys binds, each by its id.

jobs.logs: L
table.down: [j, down, ctrl+n]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from tui.keys import (
    ACTIONS,
    DIALOG,
    EVERYWHERE,
    HELP,
    NEW_JOB,
    PROMPT,
    Key,
    UserKeys,
    key_sections,
    remapped,
)
from tui.keys.renamed_ids import RENAMED_IDS

_MODIFIERS = ("ctrl", "shift", "alt")
_CHARACTERS = {
    " ": "space",
    "/": "slash",
    ":": "colon",
    ".": "full_stop",
    ",": "comma",
    "-": "minus",
    "+": "plus",
    "=": "equals_sign",
    "?": "question_mark",
    "!": "exclamation_mark",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "(": "left_parenthesis",
    ")": "right_parenthesis",
    ";": "semicolon",
    "'": "apostrophe",
    '"': "quotation_mark",
    "#": "number_sign",
    "@": "at",
    "*": "asterisk",
    "_": "underscore",
    "\\": "backslash",
}
"""Characters, and what Textual calls their keys."""
_NAMED = {
    *("escape", "enter", "tab", "space", "backspace", "delete", "insert"),
    *("home", "end", "pageup", "pagedown", "up", "down", "left", "right"),
    *(f"f{number}" for number in range(1, 13)),
}
_TYPING = frozenset(key.id for key in PROMPT)
"""Keys of the prompt, where letters are text."""


def read_keys(path: Path) -> UserKeys:
    """Read keys.yaml; where there is none, every key is ours."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError:
        return UserKeys()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return UserKeys(problems=(f"{path}, line {line}: {error.problem or 'this is no YAML'}.",))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        return UserKeys(problems=(f"{path} cannot be read: {error}.",))
    if root is None:
        return UserKeys()
    if not isinstance(root, yaml.MappingNode):
        return UserKeys(problems=(f"{path}: ids and keys are expected, as `jobs.logs: L`.",))
    keymap: dict[str, str] = {}
    problems, renamed = [], []
    for name, value in root.value:
        try:
            key_id = _id(name)
            keymap[key_id] = ",".join(_keys(key_id, value))
            if name.value != key_id:
                renamed.append(f"{path}, line {name.start_mark.line + 1}: {name.value} is now {key_id}.")
        except _Unusable as error:
            problems.append(f"{path}, line {name.start_mark.line + 1}: {error}.")
    return UserKeys(keymap, (*problems, *clashes(keymap)), tuple(renamed))


def clashes(keymap: Mapping[str, str]) -> Iterator[str]:
    """Say which keys mean two things in one place because of what the user chose."""
    ours = {key.id: key.keys for _, table in key_sections() for key in table}
    changed = {id for id, keys in keymap.items() if ours[id] != keys}
    everywhere_keys = ACTIONS.keys(EVERYWHERE)
    for place, table in key_sections():
        everywhere = () if table in (everywhere_keys, PROMPT, DIALOG, HELP, NEW_JOB) else everywhere_keys
        owners: dict[str, Key] = {}
        for key in remapped((*table, *everywhere), keymap):
            for name in key.keys.split(","):
                other = owners.setdefault(name, key)
                if other.id != key.id and {other.id, key.id} & changed:
                    yield f"{place}: {name} means {other.id} and {key.id}; the first is done."


class _Unusable(Exception):
    """What is wrong with one line."""


def _id(name: yaml.Node) -> str:
    known = {key.id for _, table in key_sections() for key in table}
    if isinstance(name, yaml.ScalarNode) and name.value in RENAMED_IDS:
        return RENAMED_IDS[name.value]
    if not isinstance(name, yaml.ScalarNode) or name.value not in known:
        said = f" {name.value!r}" if isinstance(name, yaml.ScalarNode) else ""
        raise _Unusable(f"there is no key with the id{said}; gpuconsole info --keys prints them")
    return str(name.value)


def _keys(key_id: str, value: yaml.Node) -> list[str]:
    nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
    if not nodes or not all(isinstance(node, yaml.ScalarNode) and node.value for node in nodes):
        raise _Unusable(f"{key_id} wants a key or a list of keys, as L, ctrl+l or [L, f2]")
    names = [_name(str(node.value)) for node in nodes]
    if key_id in _TYPING and (typed := next((each for each in names if len(each) == 1), "")):
        raise _Unusable(f"{key_id} cannot be {typed!r}, which is typed as text there")
    return names


def _name(written: str) -> str:
    """Return Textual's name of a key that may be written as people write it: `^d`, `/`, `ctrl-d`."""
    text = written.strip() or written
    if len(text) == 1:
        return _CHARACTERS.get(text, text)
    if text.startswith("^") and len(text) == 2:
        text = f"ctrl+{text[1].lower()}"
    *modifiers, key = text.replace("ctrl-", "ctrl+").replace("shift-", "shift+").lower().split("+")
    is_key = len(key) == 1 or key in _NAMED or key in _CHARACTERS.values()
    if not is_key or any(each not in _MODIFIERS for each in modifiers) or "alt" in modifiers:
        raise _Unusable(f"{written!r} is no key that every terminal sends; write L, ctrl+l, f2 or slash")
    return "+".join([*modifiers, key])
