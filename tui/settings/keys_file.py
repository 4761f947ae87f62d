"""Reading of keys.yaml, which remaps keys by id.

row.logs: L
table.down: [j, down, ctrl+n]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml

from k8s.text.home import file_problem, read_named_file
from tui.settings.keys import DIALOG, HELP, NEW_JOB, PROMPT, ROW, Key, KeyTable, UserKeys, remapped

_MODIFIERS = ("ctrl", "shift", "alt")
# Textual's names of character keys.
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
_NAMED = {
    *("escape", "enter", "tab", "space", "backspace", "delete", "insert"),
    *("home", "end", "pageup", "pagedown", "up", "down", "left", "right"),
    *(f"f{number}" for number in range(1, 13)),
}
# In the prompt, letters are text.
_TYPING = frozenset(key.id for key in PROMPT)


def read_keys(path: Path, table: KeyTable) -> UserKeys:
    """Read the user's keys for those of `table`; a missing keys.yaml changes none."""
    try:
        root = yaml.compose(read_named_file(path).decode(), Loader=yaml.SafeLoader)
    except FileNotFoundError:
        return UserKeys()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return UserKeys(problems=(f"{path}, line {line}: {error.problem or 'not valid YAML'}.",))
    except RecursionError:
        return UserKeys(problems=(f"{path} cannot be read: it is nested too deeply.",))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return UserKeys(problems=(f"{path} cannot be read: {file_problem(error)}.",))
    if root is None:
        return UserKeys()
    if not isinstance(root, yaml.MappingNode):
        return UserKeys(problems=(f"{path}: ids and keys are expected, as `row.logs: L`.",))
    keymap: dict[str, str] = {}
    problems = []
    for name, value in root.value:
        try:
            key_id = _id(name, table)
            if key_id in keymap:
                raise _Unusable(f"{key_id} is given twice; the first is used")
            keymap[key_id] = ",".join(_keys(key_id, value))
        except _Unusable as error:
            problems.append(f"{path}, line {name.start_mark.line + 1}: {error}.")
    return UserKeys(keymap, (*problems, *clashes(keymap, table)))


def clashes(keymap: Mapping[str, str], table: KeyTable) -> Iterator[str]:
    """Yield the conflicts that remapped keys cause, as sentences."""
    ours = {key.id: key.keys for _, keys in table.sections for key in keys}
    changed = {id for id, keys in keymap.items() if ours[id] != keys}
    said = set[tuple[str, str, str]]()
    for place, keys_here in (*table.sections, *table.combined):
        is_alone = keys_here in (table.everywhere, PROMPT, DIALOG, HELP, NEW_JOB)
        owners: dict[str, Key] = {}
        for key in remapped(keys_here if is_alone else (*keys_here, *table.everywhere), keymap):
            for name in key.keys.split(","):
                other = owners.setdefault(name, key)
                clash = (name, other.id, key.id)
                if other.id != key.id and {other.id, key.id} & changed and clash not in said:
                    said.add(clash)
                    yield f"{place}: {name} means {other.id} and {key.id}; the first is done."


class _Unusable(ValueError):
    """A line cannot be used; the message says why."""


def _id(name: yaml.Node, table: KeyTable) -> str:
    known = {key.id for _, keys in table.sections for key in keys}
    if not isinstance(name, yaml.ScalarNode) or name.value not in known:
        written = f" {name.value!r}" if isinstance(name, yaml.ScalarNode) else ""
        instead = _successor(str(name.value), known)
        advice = f"use {instead}" if instead else "gpuconsole info --keys lists them"
        raise _Unusable(f"unknown key id{written}; {advice}")
    return str(name.value)


def _successor(old: str, known: Collection[str]) -> str:
    """Return the id shared by all views in place of one that each view had before; empty if there is none."""
    _, _, name = old.partition(".")
    shared = [f"scroll.{name}", f"{ROW}.{name}"]
    if name.startswith("sort_"):
        shared += [f"table.{name}", "table.sort"]
    return next((each for each in shared if each in known), "")


def _keys(key_id: str, value: yaml.Node) -> list[str]:
    nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
    if not nodes or not all(isinstance(node, yaml.ScalarNode) and node.value for node in nodes):
        raise _Unusable(f"{key_id} wants a key or a list of keys, as L, ctrl+l or [L, f2]")
    names = [parse_key(str(node.value)) for node in nodes]
    if key_id in _TYPING and (typed := next((each for each in names if len(each) == 1), "")):
        raise _Unusable(f"{key_id} cannot be {typed!r}, which is typed as text there")
    return names


def parse_key(written: str) -> str:
    """Return Textual's name of a key that is written as `L`, `^d`, `/`, `ctrl-d`, or as in k9s, `Shift-L`.

    Raises:
        ValueError: It is not a key that every terminal sends.
    """
    text = written.strip() or written
    if len(text) == 1:
        return _CHARACTERS.get(text, text)
    if text.startswith("^") and len(text) == 2:
        text = f"ctrl+{text[1]}"
    *modifiers, key = text.lower().replace("ctrl-", "ctrl+").replace("shift-", "shift+").split("+")
    is_key = len(key) == 1 or key in _NAMED or key in _CHARACTERS.values()
    if not is_key or any(each not in _MODIFIERS for each in modifiers) or "alt" in modifiers:
        raise _Unusable(f"{written!r} is not a key that every terminal sends; write L, ctrl+l, f2 or slash")
    if modifiers == ["shift"] and len(key) == 1 and key.isalpha():
        return key.upper()
    return "+".join([*modifiers, key])
