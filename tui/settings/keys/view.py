"""Declaration of a view: its name, keys, command and place in the tab order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tui.settings.keys.action import Action, ActionTable
from tui.settings.keys.key import Key
from tui.settings.keys.widget_keys import TABLE

TABLE_FOCUSED = tuple(key for key in TABLE if key.id != "table.open")
"""Keys that a focused table takes before its view; enter is for the view."""


@dataclass(frozen=True, slots=True)
class ViewDeclaration:
    """A view's name, keys and command. The view class holds its own as `VIEW`."""

    name: str
    # Heading of its keys in the manual.
    title: str = ""
    # Handled by the view itself; keys of actions are in the action table.
    keys: tuple[Key, ...] = ()
    # Handled by its focused widget first.
    focused: tuple[Key, ...] = ()
    command: Action | None = None
    """Action that opens the view; None if an action on a job or a node does."""
    next_view: str = ""
    """Name of the view that tab opens; empty if tab does something else."""


def sorting_key(view: str, keys: str, column: str, what: str, footer: str = "") -> Key:
    """Return the key that sorts a list by one of its columns."""
    help_text = f"Sort by {what} (press again to reverse)"
    return Key(f"{view}.sort_{column}", keys, f"sort('{column}')", help_text, footer)


def view_keys(view: ViewDeclaration, actions: ActionTable) -> tuple[Key, ...]:
    """Return the keys of a view, without those of every view."""
    return (*actions.keys(view.name), *view.keys)


def job_letters(actions: ActionTable) -> tuple[Key, ...]:
    """Return the keys that act on the job of any view about one, in order of precedence.

    The ids are those of the list of jobs and of the view of one job, so that a letter has one id.
    """
    names = {f"{view}.{each.name}" for each in actions if each.acts_on_job for view in ("jobs", "job")}
    keys = (key for view in ("jobs", "job") for key in actions.keys(view) if key.id in names)
    return tuple(replace(key, footer="") for key in keys)
