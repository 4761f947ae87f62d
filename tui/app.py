"""The console application: it owns the cluster snapshot and the stack of views, and runs actions.

Only home is imported at the start. The Kubernetes client, the other views and the functions of
actions (see `tui.actions`) are imported on first use.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
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
from k8s.errors import KubeError, join_sentences
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.sanitize import sanitize, sanitize_lines
from tui.actions import run_action
from tui.files.stored_choices import StoredLayouts
from tui.keys import EVERYWHERE, Action, ActionTable, Argument, UserKeys
from tui.keys.advice import console_advice
from tui.keys.completion import nearest_command
from tui.keys.removed import REMOVED
from tui.manual import TOPICS
from tui.options import ConsoleOptions, program
from tui.runs.store import RunStore
from tui.screens import ACTIONS, key_table, user_plugins
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view import FLASH_S, INTERRUPT, View, ViewStack
from tui.screens.base.view_context import ViewContext
from tui.screens.dialogs.too_small import TooSmall, is_too_small
from tui.screens.lists.jobs import JobsView
from tui.terminal import tty_state
from tui.terminal.driver import PacedApp
from tui.terminal.line_filters import AsciiOnly, SanitizeFilter
from tui.text.cells import cell_len
from tui.widgets.bindings import bindings

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.cluster.cluster_mirror import ClusterMirror
    from k8s.diagnosis.failures import FailureCause
    from k8s.diagnosis.job_reasons import JobReasons
    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from k8s.topology.links import LinkMatrix
    from tui.actions.notices import Notifier
    from tui.feeds.life_feed import LifeFeed
    from tui.feeds.telemetry_feed import TelemetryFeed
    from tui.files.plugins_file import UserPlugins
    from tui.jobs.notices import JobNotice
    from tui.text.format import Run


# Groups of workers that run as long as what they follow.
FOLLOWING = frozenset(
    "cluster curve curves events follow forward life lines logs tail telemetry".split(),  # noqa: SIM905
)

# Completes options once the console is on screen; its second argument receives progress messages.
OptionsResolver = Callable[[ConsoleOptions, Callable[[str], None]], Awaitable[ConsoleOptions]]


async def _unchanged(options: ConsoleOptions, _progress: Callable[[str], None]) -> ConsoleOptions:
    return options


class Console(PacedApp[int]):
    """The application. Its one state is `snapshot`; everything on screen is bound to it."""

    CSS_PATH = [  # noqa: RUF012
        themes.STYLESHEET,
        # Home's own too: what a view brings later makes everything be read anew.
        *(Path(__file__).parent / "screens" / name for name in ("base/view.tcss", "lists/jobs.tcss")),
    ]
    BINDINGS: ClassVar[list[BindingType]] = bindings(
        key for key in ACTIONS.keys(EVERYWHERE) if key.id == INTERRUPT
    )
    ENABLE_COMMAND_PALETTE = False
    TITLE = "gpuconsole"

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    notices: reactive[tuple[JobNotice, ...]] = reactive(tuple, repaint=False)
    unseen: reactive[tuple[Run, ...]] = reactive(tuple, repaint=False)

    def __init__(
        self,
        options: ConsoleOptions,
        resolve_options: OptionsResolver = _unchanged,
        keys: UserKeys | None = None,
        actions: ActionTable = ACTIONS,
        plugins: UserPlugins | None = None,
    ) -> None:
        """Prepare the console.

        Args:
            options: The user's options.
            resolve_options: Completes the options once the console is on screen, before it connects.
            keys: The user's own keys, and the rejected ones.
            actions: The action table.
            plugins: The user's plugins, and the rejected ones.
        """
        self._theme_problems: list[str] = []
        self.palettes = themes.load(options.themes_folder, self._theme_problems.append)
        super().__init__()
        self.options = options
        # None until the console is connected.
        self.client: Client | None = None
        self.cluster_feed: ClusterMirror | None = None
        self.reasons: JobReasons | None = None
        self.permissions: Permissions | None = None
        self.life_feed: LifeFeed | None = None
        self.telemetry_feed: TelemetryFeed | None = None
        self.causes: Sequence[FailureCause] | None = None
        """Known causes of failures; None for the packaged ones."""
        self.notifier: Notifier | None = None
        """None until the console is connected for the first time."""
        self.forwards: dict[JobRef, Worker[None]] = {}
        self.gpu_links: dict[str, LinkMatrix] = {}
        """By node, filled on demand."""
        self.kubeconfig = options.kubeconfig
        """Path in use: the sandbox's once it has started; empty for kubectl's default."""
        self.plugin_outputs: dict[str, str] = {}
        """Newest outputs of plugins, by number."""
        self._keys = keys or UserKeys()
        self.plugins = plugins
        if plugins is not None:
            actions = ActionTable((*actions, *plugins.plugins))
        self.context = ViewContext(
            self._keys.keymap,
            options.is_read_only,
            self._names,
            client=lambda: self.client,
            explain=self._set_visible_jobs,
            telemetry=lambda: self.telemetry_feed,
            life=lambda: self.life_feed,
            causes=lambda: self.causes,
            permissions=lambda: self.permissions,
            finished_days=options.finished_days,
            strip_by=options.strip_by,
            has_loss=options.has_loss,
            layouts=StoredLayouts(options.state_folder),
            runs=RunStore(options.state_folder),
            log_folder=options.state_folder / "logs",
            actions=actions,
            columns=options.columns,
        )
        self.views = ViewStack(self, self._prepare)
        self._resolve_options = resolve_options
        self._pending_notices: list[Callable[[], None]] = []
        self._bugs: set[str] = set()
        self._line_filters = (SanitizeFilter(), AsciiOnly(enabled=options.is_ascii))
        for palette in self.palettes.values():
            self.register_theme(Theme(**palette))
        asked = themes.MONO if options.is_mono else options.theme
        self.theme = themes.find(asked, self.palettes) or themes.DEFAULT
        self.set_keymap(dict(self._keys.keymap))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Define our own variables for any theme."""
        theme = self.current_theme
        return themes.variable_defaults(dark=theme.dark, ansi=theme.ansi)

    def refresh_css(self, animate: bool = True) -> None:
        """Reload the stylesheet; before mounting only set variables, as it is parsed once then."""
        if self._is_mounted:
            super().refresh_css(animate=animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Add our line filters before those that change colours."""
        return [*(each for each in self._line_filters if each.enabled), *super().get_line_filters()]

    def on_mount(self) -> None:
        """Show home, then connect."""
        self.screen_change_signal.subscribe(self, self._show_pending_notices)
        self.views.show(Route("jobs"), JobsView())
        self.call_after_refresh(self.connect)
        names = (self.options.kept_theme, *(each.theme for each in self.options.contexts))
        for name in dict.fromkeys(name for name in names if name and not themes.find(name, self.palettes)):
            self._theme_problems.append(f"There is no theme {name}.")
        if found := ["\n".join((title, *problems)) for title, problems in self.file_problems()]:
            from tui.screens.dialogs.detail import DetailScreen

            self.call_after_refresh(self.push_screen, DetailScreen("Your files", "\n\n".join(found)))

    def file_problems(self) -> list[tuple[str, Sequence[str]]]:
        """Return the problems in the user's files, under headings."""
        found = (
            (
                "Some of your settings are not used.",
                (*self.options.config_problems, *self._alias_problems()),
            ),
            ("Some of your keys are not used.", self._keys.problems),
            ("Some of your plugins are not used.", self.plugins.problems if self.plugins else ()),
            ("Some of your themes are not used.", self._theme_problems),
        )
        return [(title, problems) for title, problems in found if problems]

    def _alias_problems(self) -> Iterator[str]:
        from tui.jobs.kind_words import find_kind

        actions = self.context.actions
        for name, alias in self.options.aliases.items():
            word = alias.command.partition(" ")[0].lower()
            place = f"{self.options.config_file}, line {alias.line}"
            if actions.find_command(name):
                yield f"{place}, aliases: :{name} is a command already."
            elif not actions.find_command(word) and not find_kind(word):
                yield f"{place}, aliases: {name}: there is no command :{sanitize(word)}."

    def on_resize(self, event: events.Resize) -> None:
        """Show a card while the terminal is too small, and restore the screen afterwards."""
        if not isinstance(self.screen, TooSmall) and is_too_small(event.size):
            self.push_screen(TooSmall())

    def action_interrupt(self) -> None:
        """Close the open dialog, or quit."""
        screen = self.screen
        if isinstance(screen, View) and screen.is_prompt_open:
            screen.close_prompt()
        elif isinstance(screen, View | TooSmall):
            self.leave(0)
        else:
            self.key_queue.push_first(events.Key("escape", None))

    def leave(self, code: int) -> None:
        """Quit with this exit status."""
        self.exit(code, return_code=code)

    @work(group="cluster", exclusive=True)
    async def connect(self) -> None:
        """Resolve the options, connect, and mirror the cluster until exit or a context switch."""
        self.client = self.cluster_feed = self.reasons = self.permissions = None
        self.telemetry_feed = self.life_feed = None
        self.gpu_links = {}
        slow = ("k8s.diagnosis.job_reasons", "k8s.jobs.permissions", "tui.actions.notices")
        await asyncio.to_thread(_import_modules, *slow)
        from k8s.client.client import Client
        from k8s.cluster.cluster_mirror import ClusterMirror
        from k8s.diagnosis.job_reasons import JobReasons
        from k8s.jobs.permissions import Permissions
        from tui.actions.context import login_dialog
        from tui.actions.notices import Notifier
        from tui.files.served_kinds import find_served, store_served
        from tui.jobs.filters import own_names

        try:
            options = await self._resolve_options(self.options, self._show_progress)
            where = options.kubeconfig, options.context, options.namespace, options.overrides
            client = await Client.connect(*where, is_brief=True, dialog=login_dialog(self))
        except KubeError as error:
            self.snapshot = replace(self.snapshot, stale=str(error), is_synced=True, progress="")
            return
        self.kubeconfig = options.kubeconfig
        if options.notice:
            self.notify(options.notice, severity="warning", markup=False)
        self.notifier = notifier = self.notifier or Notifier(self)
        own = self.options.namespace or client.config.namespace
        cluster_feed = ClusterMirror(client, "" if self.options.is_all_namespaces else own)
        cluster_feed.known_served = find_served(self.options.state_folder, client.config)
        cluster_feed.store_served = partial(store_served, self.options.state_folder, client.config)
        self._read_causes()
        self.reasons = JobReasons(cluster_feed, own_names, self.causes)
        permissions = Permissions(client)
        self.client, self.cluster_feed, self.permissions = client, cluster_feed, permissions
        has_rows = asyncio.Event()
        read_more = partial(self._read_more, cluster_feed, permissions, has_rows, options.prometheus)
        reading: Worker[None] = self.run_worker(read_more, group="life", exclusive=True)

        def take(snapshot: ClusterSnapshot) -> None:
            if self.cluster_feed is cluster_feed:
                if snapshot.is_synced and not self.snapshot.is_synced:
                    self.paint_soon()
                self.snapshot = snapshot
                notifier.update(snapshot, cluster_feed.all_jobs)
            if snapshot.is_synced or snapshot.stale:
                has_rows.set()

        take(cluster_feed.snapshot())
        try:
            await cluster_feed.run(take)
        except Exception as error:
            self.cluster_feed = None  # ctrl+r connects again
            self.snapshot = replace(self.snapshot, stale=f"Updates ended: {error!r}. ctrl+r connects again.")
            raise
        finally:
            reading.cancel()
            await client.close()

    async def _read_more(
        self, cluster_feed: ClusterMirror, permissions: Permissions, has_rows: asyncio.Event, prometheus: str
    ) -> None:
        await has_rows.wait()
        await asyncio.to_thread(_import_modules, "tui.feeds.life_feed", "tui.feeds.telemetry_feed")
        from tui.feeds.life_feed import LifeFeed
        from tui.feeds.run_feed import NodesAndPods
        from tui.feeds.telemetry_feed import open_telemetry

        if self.cluster_feed is not cluster_feed:
            return  # another context was chosen meanwhile
        self.telemetry_feed = open_telemetry(
            cluster_feed.client, lambda: cluster_feed.all_jobs, lambda: self.snapshot.nodes, prometheus
        )
        self.life_feed = LifeFeed(
            cluster_feed.client,
            permissions,
            lambda: cluster_feed.all_jobs,
            runs=self.context.runs,
            place=lambda: NodesAndPods(self.snapshot.nodes, cluster_feed.pods),
            on_marks=cluster_feed.publish_soon,
            rules=self.options.alerts,
        )
        cluster_feed.overlay = self.life_feed.overlay
        if (view := self.views.current) is not None:
            view.refresh_view()  # it asks for the losses of what it shows, and the cluster may stay quiet
        await self.life_feed.run()

    def _set_visible_jobs(self, visible: Callable[[], Iterable[Job]]) -> None:
        if self.reasons is not None:
            self.reasons.visible_jobs = visible

    def _show_progress(self, words: str) -> None:
        self.snapshot = replace(self.snapshot, stale="", is_synced=False, progress=f"{words}…")

    def _prepare(self, view: View, route: Route) -> View:
        view.context, view.route = self.context, route
        return view.data_bind(snapshot=Console.snapshot, notices=Console.notices, unseen=Console.unseen)

    @property
    def is_idle(self) -> bool:
        """True if nothing is queued, drawn or running; the next change comes from a key or the cluster.

        A worker that follows something, such as a log, does not count once that was read for the first time.
        """
        has_life = self.cluster_feed is None or (self.life_feed is not None and self.life_feed.is_idle)
        is_read = has_life and self.snapshot.is_synced
        running = (each for each in self.workers if each.group not in FOLLOWING and not each.is_finished)
        views = (each for each in self.screen_stack if isinstance(each, View))
        return is_read and not any(running) and all(each.is_idle for each in views) and super().is_idle

    def accepts_keys(self) -> bool:
        """Return True once the top screen is mounted with its widgets."""
        return self.screen.is_drawable if isinstance(self.screen, View) else super().accepts_keys()

    def on_key(self, event: events.Key) -> None:
        """Name the replacement of a removed key, also over a form."""
        view = self.screen.VIEW.name if isinstance(self.screen, View) else ""
        if words := REMOVED.get(event.key) or REMOVED.get(f"{view}.{event.key}"):
            super().notify(words, severity="warning", markup=False)

    def on_action_request(self, request: ActionRequest) -> None:
        """Run the requested action, or report why not."""
        from tui.jobs.kind_words import find_kind  # kinds are not imported before the first frame

        request.stop()
        actions = self.context.actions
        alias = self.options.aliases.get(request.name) if request.is_typed else None
        if alias is not None and actions.find_command(request.name) is None:
            word, _, argument = alias.command.partition(" ")
            request.name, request.argument = word.lower(), f"{argument} {request.argument}".strip()
        action = (actions.find_command if request.is_typed else actions.find)(request.name)
        if action is None and request.is_typed and find_kind(request.name):
            action = actions.find("jobs")
        if action is None:
            near = nearest_command(
                request.name, self._names()["kind"], actions, is_read_only=self.options.is_read_only
            )
            title = f"Unknown command :{sanitize(request.name)}."
            message = f"Did you mean :{near}?" if near else ":aliases lists them."
            message = REMOVED.get(f":{request.name}", message)
            self.notify(message, title=title, severity="warning")
        elif why := self._refusal(action):
            self.notify(f"{why[:1].upper()}{why[1:]}.", severity="warning")
        elif request.is_typed and request.argument and not action.argument:
            self.notify(f":{request.name} takes no argument.", severity="warning")
        else:
            run_action(action, self, request)

    def _refusal(self, action: Action) -> str:
        if action.changes_cluster and self.options.is_read_only:
            return f"changes are disabled by {self.options.read_only_reason}"
        view = self.views.current
        if view is None or not action.permission:
            return ""
        refused = (view.refused.get(key.id, "") for key in view.keys if key.permission == action.permission)
        return next(filter(None, refused), "")

    def on_view_permissions_needed(self, event: View.PermissionsNeeded) -> None:
        """Check the user's permissions for the current view."""
        event.stop()
        if self.permissions is not None and (view := self.views.current) is not None:
            from tui.actions.permissions import find_permissions

            find_permissions(self, view)

    def on_notices_view_looked(self) -> None:
        """Reset the counter of notices."""
        if self.notifier is not None:
            self.notifier.mark_seen(*self.notices)

    def begin(
        self,
        work: Callable[..., Coroutine[None, None, None]],
        *arguments: object,
        group: str,
        exclusive: bool = False,
    ) -> Worker[None]:
        """Start a worker; `exclusive` cancels the others of its group."""
        worker: Worker[None] = self.run_worker(
            partial(work, self, *arguments), group=group, exclusive=exclusive
        )
        return worker

    def require_client(self) -> Client | None:
        """Return the client, or notify that there is none yet."""
        if self.client is None:
            self.notify("Not connected to a cluster yet.", severity="warning", markup=False)
        return self.client

    def target_job(self, request: ActionRequest) -> tuple[Client, JobRef] | None:
        """Return the client and the one job that a request is about, or notify that there is none."""
        targets = self.target_jobs(request)
        if (client := self.require_client()) is None:
            return None
        if not targets:
            what = f"No job {sanitize(request.argument)!r} here." if request.argument else "Which job?"
            self.notify("Type its name after the command.", title=what, severity="warning", markup=False)
            return None
        return client, targets[0]

    def target_jobs(self, request: ActionRequest) -> list[JobRef]:
        """Return the jobs that a request is about: those it names, or the one that is shown."""
        if request.targets:
            return list(request.targets)
        if request.argument:
            return [job.ref for job in self.snapshot.jobs if job.ref.name == request.argument]
        view = self.views.current
        job = view.current_job() if view is not None else None
        return [job] if job is not None else []

    def report_bug(self, error: Exception) -> None:
        """Write an unexpected exception to the log, and notify of each once."""
        from tui.files.console_log import log_bug

        where = log_bug(self.options.log_file, error)
        if where in self._bugs:
            return
        self._bugs.add(where)
        self.notify(
            f"{where}\n{type(error).__name__}: {error}\nThe console goes on. Please report it with the end of"
            f" {self.options.log_file} and the output of `{program()} info --json`.",
            title="Unexpected error",
            severity="error",
            timeout=30,
        )

    def record_refusal(self, error: KubeError) -> None:
        """Remember that the cluster refused this user, so that the action is disabled."""
        if self.permissions is not None:
            self.permissions.record_refusal(error)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
        is_toast: bool = False,
    ) -> None:
        """Show a message: in the status line, or as a toast if it is an error, too long, or `is_toast`.

        While a dialog is open, messages wait until it is closed.
        """
        if isinstance(self.screen, ModalScreen):
            again = partial(
                self.notify,
                message,
                title=title,
                severity=severity,
                timeout=timeout,
                markup=markup,
                is_toast=is_toast,
            )
            self._pending_notices.append(again)
            return
        message = self.advice(message)
        words = join_sentences(title, *message.split("\n"))
        fits = cell_len(words) < self.size.width - 3
        if severity != "error" and fits and not is_toast and isinstance(self.screen, View):
            self.screen.flash(words, severity, for_s=timeout or FLASH_S)
        else:
            if severity == "error" and isinstance(self.screen, View):
                self.screen.end_flash()  # it may announce what has just failed
            title, message = sanitize(title), sanitize_lines(message)
            for holder in self.screen.query("ToastHolder"):
                if not holder.children:  # Textual leaves it behind, and its room with it
                    holder.remove()
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def advice(self, text: str) -> str:
        """Return advice with the console's keys in place of commands."""
        return console_advice(text, self._keys.keymap)

    def _show_pending_notices(self, screen: Screen[Any]) -> None:
        if not isinstance(screen, ModalScreen):
            unsaid, self._pending_notices = self._pending_notices, []
            for say in unsaid:
                say()

    def _read_causes(self) -> None:
        if not self.options.causes_file.exists():
            return
        from tui.files.causes_file import read_causes

        found = read_causes(self.options.causes_file)
        self.causes = found.causes
        if found.problems:
            title = "Some of your causes of failures are not used."
            self.notify("\n".join(found.problems), title=title, severity="warning", markup=False)

    def write_to_terminal(self, sequence: str) -> None:
        """Write an escape sequence to the terminal outside of rendering: for its clipboard."""
        if self._driver is not None:
            self._driver.write(sequence)
            self._driver.flush()

    def _names(self) -> Mapping[Argument, Sequence[str]]:
        seen = (
            {job.ref.namespace for job in self.cluster_feed.all_jobs}
            if self.cluster_feed is not None
            else set[str]()
        )
        return {
            "job": [job.ref.name for job in self.snapshot.jobs],
            "namespace": [*self.context.recent, "all", *sorted(seen.difference(self.context.recent))],
            "theme": list(self.palettes),
            "topic": list(TOPICS),
            "kind": [
                *self.options.aliases,
                *(f"{kind.lower()}s" for kind in dict.fromkeys(self.snapshot.kinds)),
            ],
        }


def _import_modules(*names: str) -> None:
    # In a thread: these imports would delay the first frame and the first keys.
    for name in names:
        importlib.import_module(name)


def run_console(options: ConsoleOptions, resolve_options: OptionsResolver = _unchanged) -> int:
    """Open the console and return the exit status."""
    keys = UserKeys()
    if options.keys_file.exists():  # reading YAML is slow to import, and most people keep our keys
        from tui.files.keys_file import read_keys

        keys = read_keys(options.keys_file, key_table())
    console = Console(options, resolve_options, keys, plugins=user_plugins(options, keys.keymap))
    try:
        console.run(mouse=False)
    finally:
        tty_state.restore(keeps_cursor=True)
    return console.return_code or 0
