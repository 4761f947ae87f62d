"""Which cluster is shown, and which part of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from k8s.errors import KubeError
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from tui.jobs.namespace_usage import ALL
from tui.screens.base.view import View
from tui.screens.lists.jobs import JobsView

if TYPE_CHECKING:
    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from tui.app import Console

MOST_RECENT = 20
"""Namespaces that were gone to and are remembered."""
RESTS_S = 0.5
"""How long the cursor stays on a job before the cluster is asked what may be done with it."""


def ns(console: Console, wish: View.Go) -> None:
    """Show the jobs of another namespace, or of all; without a name, which there are."""
    if not wish.argument:
        from tui.screens.lists.namespaces import NamespacesView

        console.show(NamespacesView(lambda: console.cluster_feed))
        return
    name = "" if wish.argument == ALL else wish.argument
    if name:
        recent = console.context.recent
        recent[:] = [name, *(each for each in recent if each != name)][:MOST_RECENT]
    _show_namespace(console, name, is_all=not name)


def own_namespace(console: Console, wish: View.Go) -> None:
    """Show the jobs of the namespace that is the user's own."""
    _show_namespace(console, "", is_all=False)


def _show_namespace(console: Console, name: str, *, is_all: bool) -> None:
    console.options = replace(console.options, namespace=name, is_all_namespaces=is_all)
    if console.cluster_feed is not None:
        console.cluster_feed.show_namespace(
            "" if is_all else name or console.cluster_feed.client.config.namespace
        )


def ctx(console: Console, wish: View.Go) -> None:
    """Go to another cluster, or show which there are."""
    from k8s.client.auth.kubeconfig import read_kubeconfig
    from tui.screens.lists.contexts import ContextsView

    if wish.argument:
        console.begin(_change_context, wish.argument, group="context", exclusive=True)
        return
    read = partial(read_kubeconfig, console.options.kubeconfig)
    console.show(ContextsView(read))


async def _change_context(console: Console, name: str) -> None:
    """Leave the cluster as it is, dead or alive, and go to another; a sandbox too is left."""
    from k8s.client.auth.kubeconfig import read_kubeconfig

    try:
        known = await asyncio.to_thread(read_kubeconfig, console.options.kubeconfig)
        context = known.resolve(name).context
    except KubeError as error:
        console.notify(error.why, title=error.what, severity="warning", markup=False)
        return
    console.options = replace(console.options, context=name, namespace="", is_sandbox=False)
    console.context.recent.clear()
    namespace = "" if console.options.is_all_namespaces else context.namespace
    progress = f"Connecting to {sanitize(name)}…"
    console.snapshot = ClusterSnapshot(name, context.user, namespace, progress=progress)
    console.switch(JobsView())
    console.connect()


def permissions(console: Console, wish: View.Go) -> None:
    """Find out what this user may do with a job, so that keys that would be refused say so."""
    if console.permissions is not None and console.client is not None and isinstance(console.screen, View):
        ref = next(iter(wish.refs), None)
        namespace = ref.namespace if ref else console.snapshot.namespace or console.client.config.namespace
        console.begin(
            _learn_rights, console.permissions, console.screen, namespace, ref, group="rights", exclusive=True
        )


async def _learn_rights(
    console: Console, known: Permissions, view: View, namespace: str, ref: JobRef | None
) -> None:
    """Ask once the cursor rests; what is known already is shown at once."""
    keys = [key for key in view.KEYS if key.right]

    def show() -> None:
        found = {key.id: known.known(key.right, namespace, ref) for key in keys}
        view.refused = {id: right.why for id, right in found.items() if right.is_allowed is False}

    show()
    await asyncio.sleep(RESTS_S)
    await known.fetch_all(dict.fromkeys(key.right for key in keys), namespace, ref)
    show()


def retry(console: Console, wish: View.Go) -> None:
    """Ask the cluster again now."""
    if console.cluster_feed is not None:
        console.cluster_feed.try_again()
    else:
        console.connect()
