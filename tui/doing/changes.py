"""What changes something on the cluster, each after a question."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING

from k8s.client import Client
from k8s.errors import KubeError, NotFound
from k8s.kinds import JobRef
from tui.deletion import delete_question
from tui.screens.choose import ConfirmScreen
from tui.screens.view import View

if TYPE_CHECKING:
    from tui.app import Console


def new(console: Console, wish: View.Go) -> None:
    """Fill in a new job."""
    from tui.screens.new_job import NewJobScreen

    client, options = console.client, console.options
    if client is None or options.is_read_only:
        why = "There is no cluster yet." if client is None else "Nothing is changed with --readonly."
        console.notify(why, severity="warning", markup=False)
        return
    screen = NewJobScreen(
        client,
        namespace=console.snapshot.namespace or client.access.namespace,
        state_folder=options.state_folder,
        user=getpass.getuser(),
    )
    screen.data_bind(snapshot=type(console).snapshot)

    def made(ref: JobRef | None) -> None:
        if ref is not None:
            console.notify(f"{ref.kind} {ref.name} is created.", markup=False)
            console.post_message(View.Go("logs", refs=[ref]))

    console.push_screen(screen, made)


def delete(console: Console, wish: View.Go) -> None:
    """Ask whether jobs are to be deleted, and delete them."""
    if console.options.is_read_only:
        console.notify("Nothing is changed with --readonly.", title="Read only.", markup=False)
        return
    meant = console.meant(wish)
    if meant is None:
        return
    jobs = [job for ref in wish.refs if (job := console.snapshot.job(ref)) is not None]
    question, details = delete_question(jobs)
    uids = {job.ref: job.uid for job in jobs}

    def answered(answer: str | None) -> None:
        if answer == "do":
            console.run_worker(_delete(console, meant[0], list(uids.items())), group="delete")

    console.push_screen(ConfirmScreen(question, details, "Delete"), answered)


async def _delete(console: Console, client: Client, jobs: Sequence[tuple[JobRef, str]]) -> None:
    """Delete jobs one after the other; one that fails does not keep the others."""
    from k8s.submit import delete_job

    for ref, uid in jobs:
        try:
            await delete_job(client, ref, uid)
        except NotFound:
            continue
        except KubeError as error:
            console.notify(error.details, title=error.what, severity="error", markup=False)
        else:
            console.notify(f"{ref.kind} {ref.name} is being deleted.", markup=False)
