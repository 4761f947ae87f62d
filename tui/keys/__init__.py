"""Every key and every `:` command of the console. Pure; knows no view and no app.

`actions` holds what views ask the app to do, `local_keys` what a view or widget does itself. Bindings,
footer, help, palette and README are made from them, so they cannot disagree.
"""

from __future__ import annotations

from tui.keys.action import EVERYWHERE, Action, ActionTable, Argument, On
from tui.keys.actions import ACTIONS
from tui.keys.key import Key, UserKeys, remapped
from tui.keys.local_keys import (
    CHART,
    DELETE,
    DETAIL,
    DIALOG,
    HELP,
    JOB_PANE,
    LOCAL_KEYS,
    LOG,
    NEW_JOB,
    PROMPT,
    STRIP,
    TABLE,
    TEXT,
    YAML,
)

__all__ = [
    "ACTIONS",
    "CHART",
    "DELETE",
    "DETAIL",
    "DIALOG",
    "EVERYWHERE",
    "HELP",
    "JOB_PANE",
    "LOG",
    "NEW_JOB",
    "PROMPT",
    "STRIP",
    "TABLE",
    "TEXT",
    "YAML",
    "Action",
    "ActionTable",
    "Argument",
    "Key",
    "On",
    "UserKeys",
    "key_sections",
    "remapped",
    "view_keys",
]

_VIEWS = (
    ("Jobs", "jobs"),
    ("Nodes", "nodes"),
    ("GPUs of a node", "node_gpus"),
    ("Users", "users"),
    ("Events", "events"),
    ("Volumes", "volumes"),
    ("Namespaces", "namespaces"),
    ("Contexts", "contexts"),
    ("One job", "job"),
    ("Usage of a job", "usage"),
    ("Logs", "logs"),
)


def view_keys(view: str, actions: ActionTable = ACTIONS) -> tuple[Key, ...]:
    """Return the keys of the view with this name, without those of every view."""
    return (*actions.keys(view), *LOCAL_KEYS.get(view, ()))


def key_sections() -> tuple[tuple[str, tuple[Key, ...]], ...]:
    """Return all keys under the headings of help and README."""
    return (
        ("Everywhere", ACTIONS.keys(EVERYWHERE)),
        ("While typing", PROMPT),
        ("In tables", TABLE),
        ("The nodes above the jobs", (*STRIP, *ACTIONS.keys("strip"))),
        ("What the job says, beside the jobs", JOB_PANE),
        *((title, view_keys(view)) for title, view in _VIEWS),
        ("The text of a log", LOG),
        ("Curves", view_keys("curves")),
        ("One chart", CHART),
        ("New job", NEW_JOB),
        ("Text", TEXT),
        ("YAML", YAML),
        ("A row in full", DETAIL),
        ("Questions", DIALOG),
        ("Before deleting", DELETE),
        ("Help", HELP),
    )
