"""Sees to what the console needs before it opens: a terminal, and a cluster to show."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from k8s.errors import NoCluster
from tui import terminal
from tui.commands.errors import WrongUsage, say
from tui.settings import ConsoleOptions


def prepare(options: ConsoleOptions) -> ConsoleOptions:
    """Return the options with which the console opens; where there is no cluster, offer the sandbox.

    Raises:
        WrongUsage: There is no terminal.
        NoCluster: There is no kubeconfig, and the sandbox is not wanted.
    """
    if not terminal.is_usable():
        raise WrongUsage(
            "The console needs a terminal, and this is none.\n"
            "Commands work without one, as in: gpuconsole list"
        )
    if not options.is_sandbox and not _has_cluster(options):
        from k8s.access import SANDBOX_HINT
        from tui.commands.output import confirm

        say("There is no kubeconfig. The sandbox is a cluster of processes on this machine.")
        if not confirm("Start the sandbox?", default=True):
            raise NoCluster("No cluster to talk to.", hint=SANDBOX_HINT)
        options = replace(options, is_sandbox=True)
    terminal.prepare()
    return replace(
        options,
        is_mono=options.is_mono or (not options.theme and terminal.wants_no_colours()),
        is_ascii=options.is_ascii or terminal.wants_ascii(),
    )


async def reach(options: ConsoleOptions, progress: Callable[[str], None]) -> ConsoleOptions:
    """Return options that name a kubeconfig, having started the sandbox if that is meant.

    Called when the console is on screen already: what it waits for is told to `progress`.

    Raises:
        KubeError: The sandbox cannot be started.
    """
    from tui.commands.connect import with_sandbox

    return await with_sandbox(options, progress)


def _has_cluster(options: ConsoleOptions) -> bool:
    """Tell whether there is anything to try; whether it works is seen later."""
    from k8s.access import kubeconfig_files

    return bool(options.kubeconfig or kubeconfig_files() or "KUBERNETES_SERVICE_HOST" in os.environ)
