"""Reading of plugins.yaml, programs that the user runs on the selected row, in k9s' form.

plugins:
  node-shell:
    shortCut: Ctrl-L
    description: Shell on the node
    scopes: [pods, nodes]
    command: ssh
    args: [$NODE]

Source: https://k9scli.io/topics/plugins/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace

from k8s.kinds import KINDS
from tui.settings.config_file import BadValue, line_of, read_root, read_switch
from tui.settings.keys import (
    EVERYWHERE,
    ROW,
    Action,
    ActionTable,
    Key,
    On,
    ViewDeclaration,
    remapped,
    view_keys,
)
from tui.settings.keys.key import written
from tui.settings.keys_file import parse_key

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,62}", re.ASCII)
_REQUIRED = ("shortCut", "scopes", "command")
_MOST_PLUGINS = 200


class Plugin(Action, frozen=True):
    """Action that runs a program."""

    title: str = ""
    argv: tuple[str, ...] = ()
    """Program and arguments, with variables such as `$NAME`."""
    asks_first: bool = False
    runs_in_background: bool = False
    shows_output: bool = False
    announces_output: bool = False
    """Its output is the notice at its end, if it runs in the background."""


class UserPlugins(msgspec.Struct, frozen=True):
    """The contents of plugins.yaml."""

    plugins: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = ()
    """Rejected entries and keys with file and line."""
    unused: tuple[str, ...] = ()
    """Plugins for resources of which there is no view, as a k9s user may have them."""


def read_plugins(
    path: Path, actions: ActionTable, views: Sequence[ViewDeclaration], keymap: Mapping[str, str]
) -> UserPlugins:
    """Read plugins.yaml; a missing file adds none, and invalid entries are reported.

    Args:
        path: The file.
        actions: Built-in actions, whose keys and commands are taken.
        views: Views in which plugins may have keys.
        keymap: The user's own keys.
    """
    try:
        root = read_root(path, "plugins: {NAME: {shortCut: Ctrl-L, …}}", must_be_own=True)
    except BadValue as error:
        return UserPlugins(problems=(str(error),))
    reader = _Reader(path, actions, views, keymap)
    seen = set[str]()
    for key, value in root.value if root is not None else ():
        if _word(key) in seen:
            reader.report(key, f"{_word(key)} is given twice; the first is used")
        elif _word(key) not in ("plugins", "plugin"):
            reader.report(key, f"unknown key {_word(key)}; plugins are below `plugins:`")
        elif isinstance(value, yaml.MappingNode):
            for name, body in value.value[:_MOST_PLUGINS]:
                reader.add(name, body)
            if len(value.value) > _MOST_PLUGINS:
                reader.report(value, f"only the first {_MOST_PLUGINS} plugins are used")
        elif value.value:
            reader.report(value, "names and plugins are expected, as `NAME: {shortCut: Ctrl-L, …}`")
        seen.add(_word(key))
    return UserPlugins(tuple(reader.plugins.values()), tuple(reader.problems), tuple(reader.unused))


class _Reader(msgspec.Struct):
    path: Path
    actions: ActionTable
    views: Sequence[ViewDeclaration]
    keymap: Mapping[str, str]
    plugins: dict[str, Plugin] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    unused: list[str] = msgspec.field(default_factory=list)
    # Titles of plugins by view and key.
    _taken: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)

    def report(self, node: yaml.Node, words: str, name: str = "") -> None:
        place = f"{self.path}, line {line_of(node)}"
        self.problems.append(f"{place}, {name}: {words}." if name else f"{place}: {words}.")

    def add(self, name: yaml.Node, body: yaml.Node) -> None:
        """Add one plugin, or report why it cannot be used."""
        title = _word(name)
        try:
            if not isinstance(name, yaml.ScalarNode) or not _NAME.fullmatch(title):
                raise BadValue("a name of letters, digits and hyphens is expected", line_of(name))
            if title.lower() in self.plugins:
                raise BadValue("it is given twice; the first is used", line_of(name))
            values = self._values(title, body)
            if missing := [each for each in _REQUIRED if each not in values]:
                raise BadValue(f"{', '.join(missing)} is missing", line_of(name))
            plugin = Plugin(
                f"plugin-{title.lower()}",
                values.get("description", title),
                "plugins",
                changes_cluster=values.get("dangerous", False),
                title=title,
                argv=(values["command"], *values.get("args", ())),
                asks_first=values.get("confirm", False),
                runs_in_background=values.get("background", False),
                shows_output=values.get("output", False),
                announces_output=values.get("overwriteOutput", False),
            )
            self._place(plugin, name, values)
        except BadValue as error:
            at = error.line or line_of(body)
            self.problems.append(f"{self.path}, line {at}, {title}: {error}.")

    def _values(self, title: str, body: yaml.Node) -> dict[str, Any]:
        if not isinstance(body, yaml.MappingNode):
            raise BadValue(f"a plugin is expected, with {', '.join(_REQUIRED)}")
        values: dict[str, Any] = {}
        for key, node in body.value:
            word = _word(key)
            if word in _NOT_SUPPORTED:
                raise BadValue(f"{word} is not supported; {_NOT_SUPPORTED[word]}", line_of(key))
            if word not in _READERS:
                self.report(key, f"unknown key {word}; there are {', '.join(_READERS)}", title)
            elif word in values:
                self.report(key, f"{word} is given twice; the first is used", title)
            else:
                try:
                    values[word] = _READERS[word](node)
                except BadValue as error:
                    raise BadValue(f"{word}: {error}", error.line or line_of(node)) from error
        return values

    def _place(self, plugin: Plugin, name: yaml.Node, values: Mapping[str, Any]) -> None:
        key, scopes = values["shortCut"], values["scopes"]
        wanted = [view for view in self.views if any(_is_in(view, scope) for scope in scopes)]
        words = {"all", *(word for view in self.views for word in _words(view))}
        for scope in scopes:
            near = get_close_matches(scope, words, 1, 0.75) if len(scope) > 3 else []
            if near and not any(_is_in(view, scope) for view in self.views):
                self.report(name, f"unknown scope {scope}; did you mean {near[0]}?", plugin.title)
        if not wanted:
            self.unused.append(f"{plugin.title} ({', '.join(scopes)})")
            return
        clashes: dict[str, list[str]] = {}
        on: list[On] = []
        for view in wanted:
            owner, is_fixed = self._owner(view, key)
            if owner and (is_fixed or not values.get("override", False)):
                clashes.setdefault(owner, []).append(view.name)
            else:
                on.append(On(view.name, key))
                self._taken[view.name, key] = plugin.title
        if clashes:
            owners = "; ".join(f"{owner} in {_some(places)}" for owner, places in clashes.items())
            self.report(name, f"{written(key)} is {owners}, so it is not bound there", plugin.title)
        command = plugin.title.lower()
        if self.actions.find_command(command) is not None:
            self.report(name, f"the command :{command} is not a plugin's; the key works", plugin.title)
            command = ""
        self.plugins[plugin.title.lower()] = replace(
            plugin, on=tuple(on), commands=(command,) if command else ()
        )

    def _owner(self, view: ViewDeclaration, key: str) -> tuple[str, bool]:
        if other := self._taken.get((view.name, key)):
            return f"plugin {other}", True
        # A focused table has its keys before the view, and a prompt has to open everywhere.
        if owner := _holder(remapped(view.focused, self.keymap), key):
            return owner.id, True
        keys = (*view_keys(view, self.actions), *self.actions.keys(EVERYWHERE))
        of_jobs = self.actions.keys(ROW) if view.has_job_rows or view.command is None else ()
        owner = _holder(remapped((*keys, *of_jobs), self.keymap), key)
        return (owner.id, owner.opens_prompt) if owner is not None else ("", False)


def _holder(keys: Iterable[Key], name: str) -> Key | None:
    return next((key for key in keys if name in key.keys.split(",")), None)


def _some(places: Sequence[str]) -> str:
    return f"{places[0]}, {places[1]}, …" if len(places) > 3 else ", ".join(places)


def _words(view: ViewDeclaration) -> tuple[str, ...]:
    return (view.name, *(view.command.commands if view.command is not None else ()))


def _is_in(view: ViewDeclaration, scope: str) -> bool:
    of_kind = view.name == "jobs" and any(
        scope in (kind.resource.plural, kind.resource.kind.lower()) for kind in KINDS
    )
    return scope == "all" or scope in _words(view) or of_kind


def _word(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "of several parts"


def _scalar(node: yaml.Node) -> str:
    # Arguments may be numbers.
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null") or "\0" in node.value:
        raise BadValue("a text is expected")
    return str(node.value)


def _text(node: yaml.Node) -> str:
    if not (text := _scalar(node).strip()):
        raise BadValue("a text is expected")
    return text


def _list(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise BadValue("a list is expected, as [a, b]")
    return tuple(_scalar(each) for each in node.value)


def _scopes(node: yaml.Node) -> tuple[str, ...]:
    return tuple(each.strip().lower() for each in _list(node))


def _short_cut(node: yaml.Node) -> str:
    try:
        return parse_key(_scalar(node))
    except ValueError as error:
        raise BadValue(str(error)) from error


def _output(node: yaml.Node) -> bool:
    if _word(node) != "view":
        raise BadValue("view is expected")
    return True


_READERS: Mapping[str, Callable[[yaml.Node], Any]] = {
    "shortCut": _short_cut,
    "description": _text,
    "scopes": _scopes,
    "command": _text,
    "args": _list,
    "confirm": read_switch,
    "background": read_switch,
    "output": _output,
    "dangerous": read_switch,
    "override": read_switch,
    "overwriteOutput": read_switch,
}
_NOT_SUPPORTED: Mapping[str, str] = {
    "pipes": "pipe in a shell: `command: sh`, `args: [-c, …]`",
    "inputs": "let the program ask",
}
