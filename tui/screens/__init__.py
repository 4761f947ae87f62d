"""Full views and the dialogs over them, each with its `.tcss` beside it.

They arrange widgets and ask the app by `ActionRequest`; they change nothing on a cluster themselves.
What the views declare is collected here without importing a view, for a console must open fast and
`gpuconsole info --keys` draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tui.screens import documents, job, lists
from tui.settings.keys import (
    CHART,
    DELETE,
    DETAIL,
    DIALOG,
    EVERYWHERE,
    EVERYWHERE_ACTIONS,
    HELP,
    JOB_ACTIONS,
    JOB_COMMANDS,
    JOB_PANE,
    LOG,
    NEW_JOB,
    OTHER_ACTIONS,
    PROMPT,
    ROW,
    SCROLL,
    STRIP,
    TABLE,
    TEXT,
    Action,
    ActionTable,
    KeyTable,
    On,
    ViewDeclaration,
    view_keys,
)
from tui.settings.options import ConsoleOptions

if TYPE_CHECKING:
    from tui.settings.plugins_file import UserPlugins

VIEWS: tuple[ViewDeclaration, ...] = (*lists.VIEWS, *job.VIEWS)

ACTIONS = ActionTable(
    (
        *EVERYWHERE_ACTIONS,
        *(view.command for view in VIEWS if view.command is not None),
        *JOB_ACTIONS,
        *OTHER_ACTIONS,
        Action(
            "next_view",
            "Next view",
            "navigate",
            on=tuple(
                On(view.name, "tab", f"Next view: {view.next_view}", view.next_view)
                for view in VIEWS
                if view.next_view
            ),
        ),
    )
)


def key_table() -> KeyTable:
    """Return all keys under the headings of help and manual."""
    everywhere = ACTIONS.keys(EVERYWHERE)
    of_rows = ACTIONS.keys(ROW)
    of_home = (*view_keys(lists.JOBS, ACTIONS), *of_rows)
    return KeyTable(
        sections=(
            ("Everywhere", everywhere),
            ("While typing", PROMPT),
            ("In tables", TABLE),
            ("The nodes above the jobs", (*STRIP, *ACTIONS.keys("strip"))),
            ("What the job says, beside the jobs", JOB_PANE),
            ("On a row of a job, and in views about one", of_rows),
            *((view.title, keys) for view in VIEWS if (keys := view_keys(view, ACTIONS))),
            ("Wherever a text scrolls", SCROLL),
            ("The text of a log", LOG),
            ("One chart", CHART),
            ("New job", NEW_JOB),
            ("Text", TEXT),
            ("YAML", documents.YAML_KEYS),
            ("A row in full", DETAIL),
            ("The commands of a job", JOB_COMMANDS),
            ("Questions", DIALOG),
            ("Before deleting", DELETE),
            ("Help", HELP),
        ),
        combined=(
            *(
                (
                    view.title,
                    (*view.focused, *view_keys(view, ACTIONS), *(of_rows if view.has_job_rows else ())),
                )
                for view in VIEWS
            ),
            *(("Beside the jobs", (*table, *of_home)) for table in (STRIP, JOB_PANE)),
        ),
        everywhere=everywhere,
    )


def user_plugins(options: ConsoleOptions, keymap: Mapping[str, str]) -> UserPlugins | None:
    """Read plugins.yaml; return None if there is none, as most people have none."""
    if not options.plugins_file.exists():
        return None
    from tui.settings.plugins_file import read_plugins

    return read_plugins(options.plugins_file, ACTIONS, VIEWS, keymap)
