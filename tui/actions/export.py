"""Actions that export: to the clipboard or to a file."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING

from k8s.errors import KubeError
from tui.actions import Functions
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.snapshot import Job
    from tui.app import Console


def copy(console: Console, request: ActionRequest) -> None:
    """Copy the given text, or else the selection, to the clipboard."""
    view = console.views.current
    text = request.argument or (view.copy_text() if view is not None else "")
    console.begin(_copy, text, group="copy", exclusive=True)


async def _copy(console: Console, text: str) -> None:
    from tui.terminal import clipboard

    folder = console.options.state_folder
    try:
        copied = await asyncio.to_thread(clipboard.copy, text, console.write_to_terminal, folder=folder)
    except OSError as error:
        console.notify(f"{error}.", title="Could not copy.", severity="error")
    else:
        console.notify(copied.words)


def save(console: Console, request: ActionRequest) -> None:
    """Save the visible table with all columns as CSV."""
    from tui.files.csv_export import save_table

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


def bundle(console: Console, request: ActionRequest) -> None:
    """Write a support bundle for a job, with secrets redacted."""
    if (target := console.target_job(request)) and (job := console.snapshot.job(target[1])):
        console.begin(_bundle, target[0], job, group="bundle")


async def _bundle(console: Console, client: Client, job: Job) -> None:
    from tui.files.support_bundle import bundle_name, make_bundle

    folder = console.options.state_folder / "bundles"
    path = folder / bundle_name(job, time.time())
    told_s = 0.0

    def tell(done: int, total: int, words: str) -> None:
        nonlocal told_s
        if time.monotonic() - told_s > 1:
            told_s = time.monotonic()
            console.notify(f"Bundle of {job.ref.name}: {done} of {total}, {words}…")

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = await make_bundle(client, console.snapshot, job, path, progress=tell)
    except (KubeError, OSError) as error:
        console.notify(str(error), title="Could not write the bundle.", severity="error")
    else:
        unread = (
            f" {len(made.problems)} parts could not be read: its README says why." if made.problems else ""
        )
        console.notify(f"Support bundle written to {made.path}, secrets removed.{unread}", timeout=30)


FUNCTIONS: Functions = {
    "bundle": bundle,
    "copy": copy,
    "save": save,
}
