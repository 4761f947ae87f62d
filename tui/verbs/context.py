"""Actions that choose the cluster and the namespace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

import themes
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import Forbidden, KubeError, NotFound
from k8s.text.sanitize import sanitize
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route
from tui.screens.lists.jobs import JobsView
from tui.tables.namespace_usage import ALL
from tui.terminal.key_queue import keys_held

if TYPE_CHECKING:
    from k8s.client.auth.exec_plugin import LoginDialog

MOST_RECENT = 20
# End of an exec plugin's output that is shown while the console connects.
_DIALOG_CHARS, _DIALOG_LINES = 2_000, 3
# A device code has to be typed elsewhere.
TOAST_S = 60.0
# Anything else would be another path of the API.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def ns(console: BaseConsole, request: ActionRequest) -> None:
    """Show the jobs of the named namespace, or of all; without a name, list the namespaces."""
    if request.argument:
        console.begin(_go_to_namespace, request.argument, group="namespace", exclusive=True)
        return
    from tui.screens.lists.contexts import namespaces_view

    console.views.show(Route("ns"), namespaces_view())


async def _go_to_namespace(console: BaseConsole, name: str) -> None:
    exists, names = await find_namespace(console, name)
    # Many users may not read namespaces: only a definite "not found" stops the switch.
    if exists is False:
        near = next(iter(get_close_matches(name, names, 1)), "")
        message = f"Did you mean :ns {sanitize(near)}?" if near else ":ns lists those there are."
        console.notify(message, title=f"There is no namespace {sanitize(name)!r}.", severity="warning")
    else:
        show_namespace(console, name)


async def find_namespace(console: BaseConsole, name: str) -> tuple[bool | None, Sequence[str]]:
    """Return the existence of a namespace, None if the user may not know it, and the names of others."""
    from k8s.models.resources import NAMESPACES

    known = console.context.names()["namespace"]
    if name in known or console.session is None:
        return name in known or None, known
    if not _NAME.fullmatch(name):
        return False, known
    client = console.session.client
    exists: bool | None = False
    with keys_held(console):
        try:
            await client.get(NAMESPACES, name)
        except NotFound:
            pass
        except Forbidden:
            exists = None
        except KubeError:
            return None, known
        else:
            return True, known
        with suppress(KubeError):
            known = [each["metadata"]["name"] for each in await client.list(NAMESPACES)]
            exists = name in known
    return exists, known


def switch(console: BaseConsole, request: ActionRequest) -> None:
    """Switch to the cluster of the selected context, or show the jobs of the selected namespace."""
    from tui.screens.lists.contexts import ALL_KEY

    if not request.selected:
        return
    if (view := console.views.current) is not None and view.route == Route("ctx"):
        console.begin(_switch_context, request.selected, group="context", exclusive=True)
    else:
        show_namespace(console, ALL if request.selected == ALL_KEY else request.selected)
        console.post_message(ActionRequest("jobs"))


def all_namespaces(console: BaseConsole, request: ActionRequest) -> None:
    """Toggle between all namespaces and the user's own."""
    show_namespace(console, ALL if console.snapshot.namespace else "")


def show_namespace(console: BaseConsole, name: str) -> None:
    """Show the jobs of a namespace, or of `ALL`; empty for the user's own."""
    is_all = name == ALL
    name = "" if is_all else name
    if name:
        recent = console.context.recent
        recent[:] = [name, *(each for each in recent if each != name)][:MOST_RECENT]
    console.options = replace(console.options, namespace=name, is_all_namespaces=is_all)
    if (session := console.session) is not None:
        session.mirror.show_namespace("" if is_all else name or session.client.config.namespace)


def ctx(console: BaseConsole, request: ActionRequest) -> None:
    """Switch to the named context; without a name, list the contexts."""
    from k8s.client.auth.kubeconfig import read_kubeconfig
    from tui.screens.lists.contexts import contexts_view

    if request.argument:
        console.begin(_switch_context, request.argument, group="context", exclusive=True)
        return
    read = partial(read_kubeconfig, console.options.kubeconfig)
    console.views.show(Route("ctx"), contexts_view(read))


async def _switch_context(console: BaseConsole, name: str) -> None:
    from k8s.client.auth.kubeconfig import read_kubeconfig

    try:
        with keys_held(console):
            known = await asyncio.to_thread(read_kubeconfig, console.options.kubeconfig)
        context = known.resolve(name).context
    except KubeError as error:
        console.notify(error.why, title=error.what, severity="warning", markup=False)
        return
    _apply_settings(console, name)
    console.context.recent.clear()
    own = console.options.namespace or context.namespace
    namespace = "" if console.options.is_all_namespaces else own
    progress = f"Connecting to {sanitize(name)}…"
    console.snapshot = ClusterSnapshot(name, context.user, namespace, progress=progress)
    console.views.restart(Route("jobs"), JobsView())
    console.connect()


def _apply_settings(console: BaseConsole, name: str) -> None:
    before = console.options
    if console.theme != themes.find(before.context_theme, console.palettes):
        before = replace(before, kept_theme=console.theme)  # the user's own
    options = replace(before, context=name, namespace="", is_sandbox=False).in_context(name)
    console.options = options
    if options.is_read_only != console.context.is_read_only:
        console.context = replace(console.context, is_read_only=options.is_read_only)
    if options.contexts and not options.is_theme_fixed:
        found = [themes.find(each, console.palettes) for each in (options.context_theme, options.kept_theme)]
        console.theme = next(filter(None, found), themes.DEFAULT)


def refresh(console: BaseConsole, request: ActionRequest) -> None:
    """Reconnect now, and reload the data of the current view."""
    if (view := console.views.current) is not None:
        view.refresh_feeds()
    if console.session is not None:
        if (plugin := console.session.client.config.exec_plugin) is not None:
            plugin.dialog.lend_terminal = partial(_lend_terminal, console, plugin.dialog)
        console.session.mirror.retry_now()
    else:
        console.connect()


def login_dialog(console: BaseConsole) -> LoginDialog:
    """Return the means by which exec plugins reach the user: the connecting view, and the terminal once."""
    from k8s.client.auth.exec_plugin import LoginDialog

    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        shown = f"{shown}{text}"[-_DIALOG_CHARS:]
        lines = [line.strip() for line in shown.split("\n") if line.strip()]
        if console.session is None:
            progress = "\n".join(("Waiting for your login…", *lines[-_DIALOG_LINES:]))
            console.snapshot = replace(console.snapshot, stale="", is_synced=False, progress=progress)
        elif text.strip():
            console.notify(text.strip(), title="Message of your exec plugin", timeout=TOAST_S, markup=False)

    dialog = LoginDialog(show, hint="Press ctrl+r to log in on this terminal.")
    dialog.lend_terminal = partial(_lend_terminal, console, dialog)
    return dialog


@contextmanager
def _lend_terminal(console: BaseConsole, dialog: LoginDialog) -> Iterator[None]:
    from tui.terminal.pod_shell import handed_over, signals_left_to_program

    # Once for each ctrl+r: a renewal must not take the terminal from somebody who types.
    dialog.lend_terminal = None
    with handed_over(console), signals_left_to_program():
        yield


FUNCTIONS: Functions = {
    "all_namespaces": all_namespaces,
    "ctx": ctx,
    "ns": ns,
    "refresh": refresh,
    "switch": switch,
}
