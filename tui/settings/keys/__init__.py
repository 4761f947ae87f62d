"""Keys and actions of the console. Pure; knows no view and no app.

`actions` holds what views ask the app to do, `widget_keys` what a widget or dialog does itself; a view
declares its own keys, see `tui.screens`. Bindings, footer, help, palette and manual are made from them,
so they cannot disagree.
"""

from __future__ import annotations

from tui.settings.keys.action import EVERYWHERE, ROW, Action, ActionTable, Argument, On
from tui.settings.keys.actions import EVERYWHERE_ACTIONS, JOB_ACTIONS, OTHER_ACTIONS
from tui.settings.keys.key import Key, KeyTable, UserKeys, remapped, unshadowed
from tui.settings.keys.view import TABLE_FOCUSED, ViewDeclaration, view_keys
from tui.settings.keys.widget_keys import (
    CHART,
    DELETE,
    DETAIL,
    DIALOG,
    HELP,
    JOB_COMMANDS,
    JOB_PANE,
    LOG,
    NEW_JOB,
    PROMPT,
    SCROLL,
    STRIP,
    TABLE,
    TEXT,
)

__all__ = [
    "CHART", "DELETE", "DETAIL", "DIALOG", "EVERYWHERE", "EVERYWHERE_ACTIONS", "HELP", "JOB_ACTIONS",
    "JOB_COMMANDS", "JOB_PANE", "LOG", "NEW_JOB", "OTHER_ACTIONS", "PROMPT", "ROW", "SCROLL", "STRIP",
    "TABLE", "TABLE_FOCUSED", "TEXT", "Action", "ActionTable", "Argument", "Key", "KeyTable", "On",
    "UserKeys", "ViewDeclaration", "remapped", "unshadowed", "view_keys",
]  # fmt: skip
