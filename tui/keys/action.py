"""What an action of the console is: one row says its keys, its `:` words, its help and its permission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from tui.keys.key import Key

Argument = Literal["", "job", "namespace", "context", "theme"]
"""What a `:` command takes: the name of one of these, or nothing."""
EVERYWHERE = "app"
"""The view name of keys that work in every view."""


@dataclass(frozen=True, slots=True)
class On:
    """The keys of an action in one view."""

    view: str
    """The view's `NAME`, `strip` for the nodes above the jobs; `app` for every view."""
    keys: str
    """As Textual names them, with commas between: `j,down`."""
    help: str = ""
    """What the help says there; empty for the action's own words."""
    footer: str | None = None
    """What the footer says there; empty keeps it out, None takes the action's own word."""


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the action table. Footer, help, palette, `:`, completion and refusals follow from it."""

    name: str
    """What key ids, requests and this table call it."""
    help: str
    """What help, palette and README say."""
    function: str | Callable[[Any, Any], None] = ""
    """What does it, called with the console and the request; `module:function` in `tui.actions` is imported
    when it is first asked for."""
    method: str = ""
    """Instead of a function: the `action_…` of the view, with its arguments, as `sort('name')`."""
    footer: str = ""
    """What the footer says; empty keeps it out of the footer."""
    on: tuple[On, ...] = ()
    """The views that have a key for it."""
    commands: tuple[str, ...] = ()
    """What can be typed after `:`; the first is shown."""
    argument: Argument = ""
    """What the command takes."""
    permission: str = ""
    """What the user must be allowed to do, as `delete job`: see `k8s.jobs.permissions.needs_of`."""
    changes_cluster: bool = False
    """With `--readonly` it is not there."""
    acts_on_job: bool = False
    """It is about a job: the one that is named, or selected; without one it is not done."""
    takes_many: bool = False
    """It takes all marked rows, not only the one under the cursor."""
    opens_prompt: bool = False
    """What is typed next belongs to the prompt, also when it arrives in the same packet."""

    def resolve(self) -> Callable[[Any, Any], None]:
        """Import and return its function."""
        if callable(self.function):
            return self.function
        module, _, name = self.function.partition(":")
        function: Callable[[Any, Any], None] = getattr(import_module(f"tui.actions.{module}"), name)
        return function

    @property
    def usage(self) -> str:
        """Return the command as help shows it: `logs JOB`."""
        return f"{self.commands[0]} {self.argument.upper()}".strip() if self.commands else ""

    def key(self, on: On) -> Key:
        """Return its key in one of its views."""
        return Key(
            f"{on.view}.{self.name}",
            on.keys,
            self.method or f"request('{self.name}')",
            on.help or self.help,
            self.footer if on.footer is None else on.footer,
            self.changes_cluster,
            self.opens_prompt,
            self.permission,
        )


@dataclass(frozen=True, slots=True)
class ActionTable:
    """All actions, in the order in which footer, help and palette show them."""

    actions: tuple[Action, ...]
    _keys: dict[str, tuple[Key, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def extended(self, actions: Iterable[Action]) -> ActionTable:
        """Return a copy of the table with more rows at its end."""
        return ActionTable((*self.actions, *actions))

    def find(self, name: str) -> Action | None:
        """Return the action with this name."""
        return next((each for each in self.actions if each.name == name), None)

    def find_command(self, word: str) -> Action | None:
        """Return the action that a word after `:` names."""
        return next((each for each in self.actions if word in each.commands), None)

    def commands(self, *, is_read_only: bool = False) -> tuple[Action, ...]:
        """Return the actions that can be typed after `:`."""
        return tuple(
            each for each in self.actions if each.commands and not (is_read_only and each.changes_cluster)
        )

    def keys(self, view: str) -> tuple[Key, ...]:
        """Return the keys of one view, without those of every view."""
        if view not in self._keys:
            self._keys[view] = tuple(
                action.key(on) for action in self.actions for on in action.on if on.view == view
            )
        return self._keys[view]
