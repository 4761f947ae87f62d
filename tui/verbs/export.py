"""Actions that export: to the clipboard or to a file."""

from __future__ import annotations

import asyncio
from datetime import datetime

from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View


def copy(console: BaseConsole, request: ActionRequest) -> None:
    """Copy the given text, or else the selection, to the clipboard."""
    view = console.views.current
    text = request.argument or (view.copy_text() if view is not None else "")
    console.begin(_copy, text, group="copy", exclusive=True)


async def _copy(console: BaseConsole, text: str) -> None:
    from tui.terminal import clipboard

    folder = console.options.state_folder
    try:
        copied = await asyncio.to_thread(clipboard.copy, text, console.write_to_terminal, folder=folder)
    except OSError as error:
        console.notify(f"{error}.", title="Could not copy.", severity="error")
    else:
        console.notify(copied.words)


def save(console: BaseConsole, request: ActionRequest) -> None:
    """Save the visible table with all columns as CSV."""
    from tui.settings.csv_export import save_table

    view = console.screen
    if not isinstance(view, View) or (found := view.export_rows()) is None:
        console.notify("Nothing to save: this view has no table.", severity="warning")
        return
    titles, rows = found
    try:
        path = save_table(
            console.options.state_folder, view.VIEW.name, titles, rows, datetime.now().astimezone()
        )
    except OSError as error:
        console.notify(f"{error}.", title="Could not save the table.", severity="error")
    else:
        console.notify(f"Saved to {path}.", timeout=20)


FUNCTIONS: Functions = {"copy": copy, "save": save}
