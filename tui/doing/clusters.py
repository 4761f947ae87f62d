"""Which cluster is shown, and which part of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from k8s.errors import KubeError
from k8s.snapshot import ClusterSnapshot
from k8s.text import sanitize
from tui.screens.jobs import JobsView
from tui.screens.view import View

if TYPE_CHECKING:
    from tui.app import Console


def ns(console: Console, wish: View.Go) -> None:
    """Show the jobs of another namespace, or of all."""
    is_all = wish.argument == "all"
    wanted = "" if is_all else wish.argument
    console.options = replace(console.options, namespace=wanted, is_all_namespaces=is_all)
    if console.live is not None:
        console.live.show_namespace("" if is_all else wanted or console.live.client.access.namespace)


def ctx(console: Console, wish: View.Go) -> None:
    """Go to another cluster, or show which there are."""
    from k8s.contexts import read_kubeconfig
    from tui.screens.contexts import ContextsView

    if wish.argument:
        console.run_worker(_change_context(console, wish.argument), group="context", exclusive=True)
        return
    read = partial(read_kubeconfig, console.options.kubeconfig)
    console.show(ContextsView(read, ascii_only=console.options.is_ascii))


async def _change_context(console: Console, name: str) -> None:
    """Leave the cluster as it is, dead or alive, and go to another; a sandbox too is left."""
    from k8s.contexts import read_kubeconfig

    try:
        known = await asyncio.to_thread(read_kubeconfig, console.options.kubeconfig)
        context = known.choose(name).context
    except KubeError as error:
        console.notify(error.why, title=error.what, severity="warning", markup=False)
        return
    console.options = replace(console.options, context=name, namespace="", is_sandbox=False)
    namespace = "" if console.options.is_all_namespaces else context.namespace
    progress = f"Connecting to {sanitize(name)}…"
    console.snapshot = ClusterSnapshot(name, context.user, namespace, progress=progress)
    console.switch(JobsView(ascii_only=console.options.is_ascii))
    console.connect()


def retry(console: Console, wish: View.Go) -> None:
    """Ask the cluster again now."""
    if console.live is not None:
        console.live.try_again()
    else:
        console.connect()
