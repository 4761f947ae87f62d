"""Actions of the console: one row declares keys, `:` commands, help and permission."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from tui.settings.keys.key import Key

# The argument of a `:` command; empty for none. `kind` is a command by itself, see `completion`.
Argument = Literal["", "job", "namespace", "context", "theme", "filter", "topic", "kind", "path"]
# A module of `tui.verbs`.
Subject = Literal[
    "", "commands", "context", "export", "jobs", "navigate", "nodes", "notices", "plugins", "pods",
    "runs", "window",
]  # fmt: skip
EVERYWHERE = "app"
# On a row of a job in any list, in the job's view, and in views about it.
ROW = "row"


class On(msgspec.Struct, frozen=True):
    """The keys of an action in one view."""

    view: str
    """The view's name; `strip` for the node bar; `EVERYWHERE`, or `ROW`."""
    keys: str
    """Textual's key names, separated by commas: `j,down`."""
    help: str = ""
    """Help text in this view; empty for the action's own."""
    footer: str | None = None
    """Footer label in this view; empty hides it, None uses the action's own."""


class Action(msgspec.Struct, frozen=True):
    """One row of the action table; footer, help, palette, `:` and completion follow from it."""

    name: str
    help: str
    subject: Subject = ""
    """Module whose `FUNCTIONS` has its function; empty for an action with a `method`."""
    method: str = ""
    """Alternative to `subject`: the view's `action_…` method with arguments, as `sort('name')`."""
    footer: str = ""
    """Footer label; empty hides it."""
    on: tuple[On, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands after `:`; the first one is shown."""
    argument: Argument = ""
    permission: str = ""
    """Required permission, as `delete job`: see `k8s.jobs.permissions.needs_of`."""
    changes_cluster: bool = False
    """Hidden with `--readonly`."""
    acts_on_job: bool = False
    """Needs a job, named or selected."""
    takes_many: bool = False
    """Acts on all marked rows, not only on the one under the cursor."""
    # Keys that follow in the same packet belong to the prompt.
    opens_prompt: bool = False

    @property
    def usage(self) -> str:
        """Return the command as help shows it: `logs JOB`."""
        return f"{self.commands[0]} {self.argument.upper()}".strip() if self.commands else ""

    def key(self, on: On) -> Key:
        """Return the action's key in one of its views."""
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
    """All actions, in the order of footer, help and palette."""

    actions: tuple[Action, ...] = ()
    _keys: dict[tuple[str, ...], tuple[Key, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def find(self, name: str) -> Action | None:
        """Return the action with this name, or None."""
        return next((each for each in self.actions if each.name == name), None)

    def find_command(self, word: str) -> Action | None:
        """Return the action for a command after `:`, or None."""
        return next((each for each in self.actions if word in each.commands), None)

    def commands(self, *, is_read_only: bool = False) -> tuple[Action, ...]:
        """Return the actions that have a `:` command."""
        return tuple(
            each for each in self.actions if each.commands and not (is_read_only and each.changes_cluster)
        )

    def keys(self, *places: str) -> tuple[Key, ...]:
        """Return the keys of these places, without those of others that work there too."""
        if places not in self._keys:
            # A plugin may override other keys.
            actions = sorted(self.actions, key=lambda action: action.subject != "plugins")
            self._keys[places] = tuple(
                action.key(on) for action in actions for on in action.on if on.view in places
            )
        return self._keys[places]
