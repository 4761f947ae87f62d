"""The console: it owns the snapshot of the cluster and the stack of views, and does what views ask for.

Only home is imported at the start. What talks to the cluster, every other view, and what does an
action (see `tui.actions`) is imported when it is first needed.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, work
from textual.binding import BindingType
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.theme import Theme
from textual.worker import Worker

import themes
from k8s.errors import KubeError
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize, sanitize_lines
from tui.files.layout_file import KeptLayouts
from tui.keys import ACTIONS, EVERYWHERE, Action, ActionTable, Argument, UserKeys
from tui.keys.advice import console_advice
from tui.options import ConsoleOptions
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view import FLASH_S, INTERRUPT, View
from tui.screens.base.view_context import ViewContext
from tui.screens.base.view_stack import ViewStack
from tui.screens.dialogs.too_small import TooSmall, is_too_small
from tui.screens.lists.jobs import JobsView
from tui.terminal import tty_state
from tui.terminal.driver import PacedApp
from tui.terminal.line_filters import AsciiOnly, Harmless
from tui.text.cells import cell_len
from tui.widgets.bindings import bindings

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from k8s.topology.links import LinkMatrix
    from tui.feeds.cluster_feed import ClusterFeed
    from tui.feeds.telemetry_feed import TelemetryFeed


OptionsResolver = Callable[[ConsoleOptions, Callable[[str], None]], Awaitable[ConsoleOptions]]
"""Finishes options once the console is on screen, telling what it waits for."""


async def _unchanged(options: ConsoleOptions, _progress: Callable[[str], None]) -> ConsoleOptions:
    return options


class Console(PacedApp[int]):
    """The application. Its one state is `snapshot`; everything on screen is bound to it."""

    CSS_PATH = [  # noqa: RUF012
        themes.STYLESHEET,
        # Home's own too: what a view brings later makes everything be read anew.
        *(
            Path(__file__).parent / "screens" / name
            for name in ("base/view.tcss", "base/list_view.tcss", "lists/jobs.tcss")
        ),
    ]
    BINDINGS: ClassVar[list[BindingType]] = bindings(
        key for key in ACTIONS.keys(EVERYWHERE) if key.id == INTERRUPT
    )
    ENABLE_COMMAND_PALETTE = False
    TITLE = "gpuconsole"

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    """The newest picture of the cluster."""

    def __init__(
        self,
        options: ConsoleOptions,
        resolve_options: OptionsResolver = _unchanged,
        keys: UserKeys | None = None,
        actions: ActionTable = ACTIONS,
    ) -> None:
        """Prepare the console.

        Args:
            options: What the user asked for.
            resolve_options: Finishes the options once the console is on screen; then the cluster is asked.
            keys: The user's own keys, and what could not be used of them.
            actions: What views can ask for.
        """
        self._theme_problems: list[str] = []
        self.palettes = themes.load(options.themes_folder, self._theme_problems.append)
        """Every palette there is, by its name."""
        super().__init__()
        self.options = options
        """What the user asks for now."""
        self.client: Client | None = None
        """The cluster, once it is reached."""
        self.cluster_feed: ClusterFeed | None = None
        """Its mirror, from then on."""
        self.permissions: Permissions | None = None
        """What this user may do there."""
        self.telemetry_feed: TelemetryFeed | None = None
        """What its GPUs do, read while it is shown."""
        self.forwards: dict[JobRef, Worker[None]] = {}
        """Jobs whose TensorBoard is forwarded, and what carries it."""
        self.gpu_links: dict[str, LinkMatrix] = {}
        """How the GPUs of each node are linked, as far as that was looked up."""
        self._keys = keys or UserKeys()
        self.context = ViewContext(
            self._keys.keymap,
            options.is_read_only,
            self._names,
            client=lambda: self.client,
            telemetry=lambda: self.telemetry_feed,
            permissions=lambda: self.permissions,
            finished_days=options.finished_days,
            strip_by=options.strip_by,
            has_loss=options.has_loss,
            layouts=KeptLayouts(options.state_folder),
            log_folder=options.state_folder / "logs",
            actions=actions,
        )
        """What every view gets."""
        self.views = ViewStack(self, self._prepare)
        """The views, above each other."""
        self._resolve_options = resolve_options
        self._unsaid: list[Callable[[], None]] = []
        self._line_filters = (Harmless(), AsciiOnly(enabled=options.is_ascii))
        for palette in self.palettes.values():
            self.register_theme(Theme(**palette))
        asked = themes.MONO if options.is_mono else options.theme
        self.theme = themes.find(asked, self.palettes) or themes.DEFAULT
        self.set_keymap(dict(self._keys.keymap))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give our own variables a value under any theme."""
        theme = self.current_theme
        return themes.variable_defaults(dark=theme.dark, ansi=theme.ansi)

    def refresh_css(self, animate: bool = True) -> None:
        """Read the look anew; before anything is shown only note the theme, with which all is read then."""
        if self._is_mounted:
            super().refresh_css(animate=animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Let every line of every widget pass our filters, before its colours are changed."""
        return [*(each for each in self._line_filters if each.enabled), *super().get_line_filters()]

    def on_mount(self) -> None:
        """Show home, then reach for the cluster."""
        self.screen_change_signal.subscribe(self, self._say_the_unsaid)
        self.views.show(Route("jobs"), JobsView())
        self.call_after_refresh(self.connect)
        if self.options.kept_theme and not themes.find(self.options.kept_theme, self.palettes):
            self._theme_problems.append(f"There is no theme {self.options.kept_theme}.")
        messages: tuple[tuple[str, Sequence[str], SeverityLevel], ...] = (
            ("Some of your keys are not used.", self._keys.problems, "error"),
            ("Some of your themes are not used.", self._theme_problems, "error"),
            ("Some ids in keys.yaml are old; they still work.", self._keys.renamed, "warning"),
        )
        for title, problems, severity in messages:
            if problems:
                words = "\n".join(map(sanitize, problems))
                self.notify(words, title=title, severity=severity, timeout=20)

    def on_resize(self, event: events.Resize) -> None:
        """Hide everything behind a card while the terminal is too small, and bring it back as it was."""
        if not isinstance(self.screen, TooSmall) and is_too_small(event.size):
            self.push_screen(TooSmall())

    def action_interrupt(self) -> None:
        """Close what asks something; else leave."""
        screen = self.screen
        if isinstance(screen, View) and screen.is_prompt_open:
            screen.close_prompt()
        elif isinstance(screen, View | TooSmall):
            self.leave(0)
        else:
            self.key_queue.put_first(events.Key("escape", None))

    def leave(self, code: int) -> None:
        """End the console with this exit status."""
        self.exit(code, return_code=code)

    @work(group="cluster", exclusive=True)
    async def connect(self) -> None:
        """OptionsResolver the cluster, and mirror it until the end, or until another one is asked for."""
        self.client = self.cluster_feed = self.permissions = self.telemetry_feed = None
        self.gpu_links = {}
        await asyncio.to_thread(_import_what_is_slow)
        from k8s.client.client import Client
        from k8s.jobs.permissions import Permissions
        from tui.feeds.cluster_feed import ClusterFeed
        from tui.feeds.telemetry_feed import open_telemetry

        try:
            options = await self._resolve_options(self.options, self._say_progress)
            client = await Client.connect(options.kubeconfig, options.context, options.namespace)
        except KubeError as error:
            self.snapshot = replace(self.snapshot, stale=str(error), is_synced=True, progress="")
            return
        own = self.options.namespace or client.config.namespace
        cluster_feed = ClusterFeed(client, "" if self.options.is_all_namespaces else own)
        self.client, self.cluster_feed, self.permissions = client, cluster_feed, Permissions(client)
        self.telemetry_feed = open_telemetry(
            client, lambda: cluster_feed.all_jobs, lambda: self.snapshot.nodes, options.prometheus
        )

        def take(snapshot: ClusterSnapshot) -> None:
            if self.cluster_feed is cluster_feed:
                if snapshot.is_synced and not self.snapshot.is_synced:
                    self.hurry()
                self.snapshot = snapshot

        take(cluster_feed.snapshot())
        try:
            await cluster_feed.run(take)
        finally:
            await client.close()

    def _say_progress(self, words: str) -> None:
        self.snapshot = replace(self.snapshot, stale="", is_synced=False, progress=f"{words}…")

    def _prepare(self, view: View, route: Route) -> View:
        view.context, view.route = self.context, route
        return view.data_bind(snapshot=Console.snapshot)

    def takes_keys(self) -> bool:
        """Tell whether the screen on top is there, a view with its parts."""
        return self.screen.is_drawable if isinstance(self.screen, View) else super().takes_keys()

    def on_action_request(self, request: ActionRequest) -> None:
        """Do what a view asks for."""
        request.stop()
        actions = self.context.actions
        action = (actions.find_command if request.is_typed else actions.find)(request.name)
        if action is None:
            known = ", ".join(each.commands[0] for each in actions.commands())
            self.notify(f"Commands: {known}.", title=f"No command {request.name!r}.", markup=False)
        elif why := self._refusal(action):
            self.notify(f"{why[:1].upper()}{why[1:]}.", severity="warning")
        else:
            action.resolve()(self, request)

    def _refusal(self, action: Action) -> str:
        """Return why it will not be done; nothing where no refusal is known."""
        if action.changes_cluster and self.options.is_read_only:
            return "nothing is changed with --readonly"
        view = self.views.current
        if view is None or not action.permission:
            return ""
        refused = (view.refused.get(key.id, "") for key in view.keys if key.permission == action.permission)
        return next(filter(None, refused), "")

    def on_view_permissions_needed(self, event: View.PermissionsNeeded) -> None:
        """Find out what this user may do in the view that is shown."""
        event.stop()
        if self.permissions is not None and (view := self.views.current) is not None:
            from tui.actions.permissions import find_permissions

            find_permissions(self, view)

    def begin(
        self,
        work: Callable[..., Coroutine[None, None, None]],
        *arguments: object,
        group: str,
        exclusive: bool = False,
    ) -> Worker[None]:
        """Begin work that waits for something; `exclusive` ends what the group is at."""
        worker: Worker[None] = self.run_worker(
            partial(work, self, *arguments), group=group, exclusive=exclusive
        )
        return worker

    def require_client(self) -> Client | None:
        """Return the cluster, or say that there is none yet."""
        if self.client is None:
            self.notify("Not connected to a cluster yet.", severity="warning", markup=False)
        return self.client

    def target_job(self, request: ActionRequest) -> tuple[Client, JobRef] | None:
        """Return the cluster and the one job that a request is about, or say that there is none."""
        targets = self.target_jobs(request)
        if (client := self.require_client()) is None:
            return None
        if not targets:
            what = f"No job {sanitize(request.argument)!r} here." if request.argument else "Which job?"
            self.notify("Type its name after the command.", title=what, severity="warning", markup=False)
            return None
        return client, targets[0]

    def target_jobs(self, request: ActionRequest) -> list[JobRef]:
        """Return every job that a request is about: those it names, otherwise the one that is shown."""
        if request.targets:
            return list(request.targets)
        if request.argument:
            return [job.ref for job in self.snapshot.jobs if job.ref.name == request.argument]
        view = self.views.current
        job = view.current_job() if view is not None else None
        return [job] if job is not None else []

    def note_refusal(self, error: KubeError) -> None:
        """Remember what the cluster has refused this user, so that it is not offered again."""
        if self.permissions is not None:
            self.permissions.note(error)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Say what happened: on the view's line below; an error, or what is too long, in a box of its own.

        While a question or another dialog is open it is said once that is closed: nothing lies over a dialog.
        """
        if isinstance(self.screen, ModalScreen):
            again = partial(
                self.notify, message, title=title, severity=severity, timeout=timeout, markup=markup
            )
            self._unsaid.append(again)
            return
        message = self.advice(message)
        words = " ".join(part for part in (title, *message.split("\n")) if part)
        fits = cell_len(words) < self.size.width - 3
        if severity != "error" and fits and isinstance(self.screen, View):
            self.screen.flash(words, severity, for_s=timeout or FLASH_S)
        else:
            title, message = sanitize(title), sanitize_lines(message)
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def advice(self, text: str) -> str:
        """Return advice that names commands in the words of the console: keys, where there are any."""
        return console_advice(text, self._keys.keymap)

    def _say_the_unsaid(self, screen: Screen[Any]) -> None:
        if not isinstance(screen, ModalScreen):
            unsaid, self._unsaid = self._unsaid, []
            for say in unsaid:
                say()

    def write_to_terminal(self, sequence: str) -> None:
        """Send an escape sequence past what is drawn: for the terminal's own clipboard."""
        if self._driver is not None:
            self._driver.write(sequence)
            self._driver.flush()

    def _names(self) -> Mapping[Argument, Sequence[str]]:
        """Return what commands may take."""
        seen = (
            {job.ref.namespace for job in self.cluster_feed.all_jobs}
            if self.cluster_feed is not None
            else set[str]()
        )
        return {
            "job": [job.ref.name for job in self.snapshot.jobs],
            "namespace": [*self.context.recent, "all", *sorted(seen.difference(self.context.recent))],
            "theme": list(self.palettes),
        }


def _import_what_is_slow() -> None:
    """Import, in a thread, what would keep the first frame and the first keys waiting."""
    for name in ("tui.feeds.cluster_feed", "k8s.jobs.permissions"):
        importlib.import_module(name)


def run_console(options: ConsoleOptions, resolve_options: OptionsResolver = _unchanged) -> int:
    """Open the console and return the exit status."""
    keys = UserKeys()
    if options.keys_file.exists():  # reading YAML is slow to import, and most people keep our keys
        from tui.files.keys_file import read_keys

        keys = read_keys(options.keys_file)
    console = Console(options, resolve_options, keys)
    try:
        console.run(mouse=False)
    finally:
        tty_state.restore(keeps_cursor=True)
    return console.return_code or 0
