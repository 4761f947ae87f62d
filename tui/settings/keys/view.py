"""Declaration of a view: its name, keys, command and place in the tab order."""

from __future__ import annotations

import msgspec

from tui.settings.keys.action import Action, ActionTable
from tui.settings.keys.key import Key
from tui.settings.keys.widget_keys import TABLE

TABLE_FOCUSED = tuple(key for key in TABLE if key.id != "table.open")
"""Keys that a focused table takes before its view; enter is for the view."""


class ViewDeclaration(msgspec.Struct, frozen=True):
    """A view's name, keys and command. The view class holds its own as `VIEW`."""

    name: str
    # Heading of its keys in the manual.
    title: str = ""
    # Handled by the view itself; keys of actions are in the action table.
    keys: tuple[Key, ...] = ()
    # Handled by its focused widget first.
    focused: tuple[Key, ...] = TABLE_FOCUSED
    command: Action | None = None
    """Action that opens the view; None if an action on a job or a node does."""
    next_view: str = ""
    """Name of the view that tab opens; empty if tab does something else."""
    # Its rows stand for jobs, or it is the view of one: the keys of `ROW` work.
    has_job_rows: bool = False


def view_keys(view: ViewDeclaration, actions: ActionTable) -> tuple[Key, ...]:
    """Return a view's own keys, without those of every view and of rows of jobs."""
    return (*actions.keys(view.name), *view.keys)
