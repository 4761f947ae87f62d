"""What takes something out of the console: to a clipboard, to a file, to another job."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING

from k8s.errors import KubeError
from k8s.kinds import JobRef
from tui.options import login_name
from tui.screens.base.view import View

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.snapshot import Job
    from tui.app import Console


def copy(console: Console, wish: View.Go) -> None:
    """Copy a text to wherever it can be pasted from."""
    console.begin(_copy, wish.argument, group="copy", exclusive=True)


async def _copy(console: Console, text: str) -> None:
    from tui.terminal import clipboard

    folder = console.options.state_folder
    try:
        copied = await asyncio.to_thread(clipboard.copy, text, console.write_to_terminal, folder=folder)
    except OSError as error:
        console.notify(f"{error}.", title="Could not copy.", severity="error")
    else:
        console.notify(copied.words)


def save(console: Console, wish: View.Go) -> None:
    """Save the table that is shown, all its columns, as CSV."""
    from tui.files.csv_export import save_table
    from tui.screens.base.list_view import ListView

    view = console.screen
    if not isinstance(view, ListView):
        console.notify("There is no table here to save.", severity="warning")
        return
    titles, rows = view.saved()
    name = type(view).__name__.removesuffix("View").lower()
    try:
        path = save_table(console.options.state_folder, name, titles, rows, datetime.now().astimezone())
    except OSError as error:
        console.notify(f"{error}.", title="Could not save the table.", severity="error")
    else:
        console.notify(f"{path} has it.", timeout=20)


def bundle(console: Console, wish: View.Go) -> None:
    """Pack what is known of a job into one file, without its secrets."""
    if (meant := console.meant(wish)) and (job := console.snapshot.job(meant[1])):
        console.begin(_bundle, meant[0], job, group="bundle")


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
        console.notify(f"{made.path} has it, secrets removed.{unread}", timeout=30)


def clone(console: Console, wish: View.Go) -> None:
    """Open the new-job form filled in like a job that is there."""
    if console.options.is_read_only:
        console.notify("Nothing is changed with --readonly.", severity="warning")
    elif meant := console.meant(wish):
        console.begin(_clone, *meant, group="clone", exclusive=True)


async def _clone(console: Console, client: Client, ref: JobRef) -> None:
    from k8s.jobs import clone
    from k8s.jobs.create import resource_of
    from tui.actions.jobs import ask_for_job, ask_for_manifest

    try:
        found = await client.get(resource_of(ref), ref.name, ref.namespace)
        taken = {job.ref.name for job in console.snapshot.jobs if job.ref.namespace == ref.namespace}
        made = clone.clone(found, taken, user=login_name())
    except KubeError as error:
        console.notify(error.details, title=error.what, severity="error")
    else:
        (ask_for_job if made.fits_form else ask_for_manifest)(console, client, made)
