"""Sees to what the console needs before it opens: a terminal, and a cluster to show.

Where there is no terminal the jobs are printed instead, so that `gpuconsole` alone is of use in a pipe too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import themes
from k8s.errors import KubeError, NoCluster
from tui import terminal
from tui.commands.errors import WrongUsage, say
from tui.settings import ConsoleOptions

ANSI_THEME = "gpuconsole-ansi"
"""The palette for terminals of sixteen colours."""


def prepare(options: ConsoleOptions) -> ConsoleOptions:
    """Return the options with which the console opens; where there is no cluster, offer the sandbox.

    Raises:
        WrongUsage: There is no terminal; the jobs were printed.
        NoCluster: There is no kubeconfig, and the sandbox is not wanted.
    """
    if not terminal.is_usable():
        _print_jobs(options)
        raise WrongUsage(
            "The console needs a terminal, and this is none.\n"
            "Commands work without one; what it prints instead is: gpuconsole list"
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
        theme=options.theme or _theme(),
        is_mono=options.is_mono or (not options.theme and terminal.colours() == "none"),
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


def _print_jobs(options: ConsoleOptions) -> None:
    """Print what `gpuconsole list` prints, or why it cannot."""
    from tui.commands import list as list_command

    try:
        asyncio.run(list_command.run(options, argparse.Namespace(output="table")))
    except KubeError as error:
        say(str(error))


def _theme() -> str:
    """Return the palette for the colours that the terminal has; empty for the usual one."""
    has_few = terminal.colours() == "16"
    return ANSI_THEME if has_few and themes.STYLESHEET.with_name(f"{ANSI_THEME}.toml").exists() else ""


def _has_cluster(options: ConsoleOptions) -> bool:
    """Tell whether there is anything to try; whether it works is seen later."""
    from k8s.access import kubeconfig_files

    return bool(options.kubeconfig or kubeconfig_files() or "KUBERNETES_SERVICE_HOST" in os.environ)
