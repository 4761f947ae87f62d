"""Check the user's permissions on the selection, so that refused keys can say so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tui.screens.base.view import View

if TYPE_CHECKING:
    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from tui.app import Console

# Do not send a request for every job that the cursor passes.
CURSOR_RESTS_S = 0.5


def find_permissions(console: Console, view: View) -> None:
    """Mark the view's keys that the cluster would refuse this user."""
    # While a view is taken down its table goes first.
    if console.permissions is not None and console.client is not None and view.is_drawable:
        job = view.current_job()
        namespace = job.namespace if job else console.snapshot.namespace or console.client.config.namespace
        console.begin(_find, console.permissions, view, namespace, job, group="permissions", exclusive=True)


async def _find(
    console: Console, permissions: Permissions, view: View, namespace: str, job: JobRef | None
) -> None:
    keys = [key for key in view.keys if key.permission]

    def show() -> None:
        found = {key.id: permissions.known(key.permission, namespace, job) for key in keys}
        view.refused = {id: each.why for id, each in found.items() if each.is_allowed is False}

    show()
    await asyncio.sleep(CURSOR_RESTS_S)
    await permissions.fetch_all(dict.fromkeys(key.permission for key in keys), namespace, job)
    show()
