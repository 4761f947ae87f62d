"""Prepare the console before it opens: check the terminal and choose a cluster.

Without a terminal the jobs are printed instead, so that a bare `gpuconsole` is useful in a pipe.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection

from msgspec.structs import replace

import themes
from k8s.text.errors import KubeError, NoCluster
from k8s.text.sanitize import sanitize
from tui.commands.support.output import WrongUsage, confirm, write_stderr
from tui.runs.journal.choices import read_theme
from tui.runs.journal.database import Journal
from tui.settings.options import ConsoleOptions
from tui.terminal import tty_state
from tui.text.format import names_there_are


def prepare(options: ConsoleOptions) -> ConsoleOptions:
    """Return the options for the console; without a cluster, offer the sandbox.

    Raises:
        WrongUsage: There is no terminal, and the jobs were printed; or the requested theme does not exist.
        NoCluster: There is no kubeconfig, and the user declined the sandbox.
    """
    if problem := tty_state.terminal_problem():
        _print_jobs(options)
        without = "Without one, it lists the jobs, as gpuconsole list does."
        raise WrongUsage(f"The console needs a terminal; {problem}.\n{without}")
    journal = Journal(options.state_folder, options.history)
    options = replace(options, kept_theme=read_theme(journal, options.config_theme))
    journal.close()
    colours = tty_state.colours()
    theme = choose_theme(options, colours)
    is_fixed = options.is_mono or bool(options.theme) or colours in ("none", "16")
    # The palette does what it asks for; Textual itself would make greys of the terminal's own colours.
    os.environ.pop("NO_COLOR", None)
    if not options.is_sandbox and not options.has_cluster:
        if options.joins_sandbox:
            write_stderr("There is no kubeconfig: joining the sandbox that runs on this machine.")
        else:
            from k8s.client.auth.kubeconfig import SANDBOX_HINT

            write_stderr("No kubeconfig found. The sandbox is a cluster of processes on this machine.")
            if not confirm("Start the sandbox?", default=True):
                raise NoCluster("No cluster to connect to.", hint=SANDBOX_HINT)
        options = replace(options, is_sandbox=True)
    tty_state.prepare()
    return replace(options, theme=theme, is_theme_fixed=is_fixed)


async def resolve_options(options: ConsoleOptions, progress: Callable[[str], None]) -> ConsoleOptions:
    """Start the sandbox if it was requested, and return options that name its kubeconfig.

    Called once the console is on screen; `progress` receives messages while it waits.

    Raises:
        KubeError: The sandbox cannot be started.
    """
    from tui.commands.support.connect import with_sandbox

    return await with_sandbox(options, progress)


def _print_jobs(options: ConsoleOptions) -> None:
    from tui.commands import list as list_command
    from tui.commands.support.parser import make_parser

    try:
        asyncio.run(list_command.run(options, make_parser().parse_args(["list"])))
    except KubeError as error:
        write_stderr(str(error))


def choose_theme(options: ConsoleOptions, colours: tty_state.Colours) -> str:
    """Choose the theme: the requested one, then one that suits the terminal, then the stored one.

    Returns:
        Its name; empty for the default.

    Raises:
        WrongUsage: The requested theme does not exist.
    """
    palettes = themes.load(options.themes_folder)
    asked = check_theme(options.theme, palettes)
    if options.is_mono or (not asked and colours == "none"):
        return themes.MONO
    if asked:
        return asked
    wanted = (options.context_theme, options.kept_theme, options.config_theme)
    kept = next(filter(None, (themes.find(name, palettes) for name in wanted)), None)
    if colours == "16" and not (kept and palettes[kept].get("ansi")):
        return themes.ANSI
    return kept or ""


def check_theme(word: str, palettes: Collection[str]) -> str | None:
    """Return the theme of a name or short name; None for none.

    Raises:
        WrongUsage: There is no theme of this name.
    """
    found = themes.find(word, palettes)
    if word and found is None:
        names = names_there_are(word, map(themes.short, palettes))
        raise WrongUsage(f"There is no theme {sanitize(word)!r}.\n{names}")
    return found
