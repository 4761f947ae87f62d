"""Full views and the dialogs over them, each with its `.tcss` beside it.

They arrange widgets and ask the app by `ActionRequest`; they change nothing on a cluster themselves.
What the views declare is collected here without importing a view, for a console must open fast and
`gpuconsole info --keys` draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tui.screens import documents, job, lists
from tui.settings import keys
from tui.settings.options import ConsoleOptions

if TYPE_CHECKING:
    from tui.settings.plugins_file import UserPlugins

VIEWS: tuple[keys.ViewDeclaration, ...] = (*lists.VIEWS, *job.VIEWS)

ACTIONS = keys.ActionTable(
    (
        *keys.EVERYWHERE_ACTIONS,
        *(view.command for view in VIEWS if view.command is not None),
        *keys.JOB_ACTIONS,
        *keys.OTHER_ACTIONS,
        keys.Action(
            "next_view",
            "Next view",
            "navigate",
            on=tuple(
                keys.On(view.name, "tab", f"Next view: {view.next_view}", view.next_view)
                for view in VIEWS
                if view.next_view
            ),
        ),
    )
)


def key_table() -> keys.KeyTable:
    """Return all keys under the headings of help and manual."""
    everywhere = ACTIONS.keys(keys.EVERYWHERE)
    of_rows = ACTIONS.keys(keys.ROW)
    of_home = (*keys.view_keys(lists.JOBS, ACTIONS), *of_rows)
    return keys.KeyTable(
        sections=(
            ("Everywhere", everywhere),
            ("While typing", keys.PROMPT),
            ("In tables", keys.TABLE),
            ("The nodes above the jobs", (*keys.STRIP, *ACTIONS.keys("strip"))),
            ("What the job says, beside the jobs", keys.JOB_PANE),
            ("On a row of a job, and in views about one", of_rows),
            *((view.title, own) for view in VIEWS if (own := keys.view_keys(view, ACTIONS))),
            ("Wherever a text scrolls", keys.SCROLL),
            ("The text of a log", keys.LOG),
            ("One chart", keys.CHART),
            ("New job", keys.NEW_JOB),
            ("Text", keys.TEXT),
            ("YAML", documents.YAML_KEYS),
            ("A row in full", keys.DETAIL),
            ("The commands of a job", keys.JOB_COMMANDS),
            ("Questions", keys.DIALOG),
            ("Before deleting", keys.DELETE),
            ("Help", keys.HELP),
        ),
        combined=(
            *(
                (
                    view.title,
                    (*view.focused, *keys.view_keys(view, ACTIONS), *(of_rows if view.has_job_rows else ())),
                )
                for view in VIEWS
            ),
            *(("Beside the jobs", (*table, *of_home)) for table in (keys.STRIP, keys.JOB_PANE)),
        ),
        everywhere=everywhere,
    )


def user_plugins(options: ConsoleOptions, keymap: Mapping[str, str]) -> UserPlugins | None:
    """Read plugins.yaml; return None if there is none, as most people have none."""
    if not options.plugins_file.exists():
        return None
    from tui.settings.plugins_file import read_plugins

    return read_plugins(options.plugins_file, ACTIONS, VIEWS, keymap)
