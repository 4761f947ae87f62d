"""The console application: it connects to a cluster and runs actions.

Only home is imported at the start. The Kubernetes client, the other views and the functions of
actions (see `tui.verbs`) are imported on first use.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from textual import events, work
from textual.binding import BindingType
from textual.filter import LineFilter
from textual.screen import ModalScreen
from textual.theme import Theme
from textual.worker import Worker

import themes
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui import program
from tui.screens import ACTIONS, key_table, user_plugins
from tui.screens.base.console import BaseConsole
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view import INTERRUPT, TooSmall, View, is_too_small
from tui.screens.lists.jobs import JobsView
from tui.settings.keys import EVERYWHERE, Action, ActionTable, UserKeys
from tui.settings.keys.advice import REMOVED
from tui.settings.keys.completion import nearest_command
from tui.settings.options import ConsoleOptions
from tui.terminal import tty_state
from tui.terminal.line_filters import AsciiOnly, SanitizeFilter
from tui.verbs.registry import run_action
from tui.widgets.bindings import bindings

if TYPE_CHECKING:
    from k8s.kinds import JobRef
    from k8s.reasons.failures import FailureCause
    from tui.session.session import Session
    from tui.settings.plugins_file import UserPlugins
    from tui.verbs.notices import Notifier


# Groups of workers that run as long as what they follow.
FOLLOWING = frozenset(
    "cluster curve curves events follow forward life lines logs tail telemetry".split()  # noqa: SIM905
)

# Completes options once the console is on screen; its second argument receives progress messages.
OptionsResolver = Callable[[ConsoleOptions, Callable[[str], None]], Awaitable[ConsoleOptions]]


async def _unchanged(options: ConsoleOptions, _progress: Callable[[str], None]) -> ConsoleOptions:
    return options


class Console(BaseConsole):
    """The application: it connects, shows home and runs actions."""

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
        super().__init__(options, keys or UserKeys(), actions, plugins)
        self.notifier: Notifier | None = None
        """None until the console is connected for the first time."""
        self._resolve_options = resolve_options
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
            ("Some of your settings are not used.", (*self.options.config_problems, *self._alias_problems())),
            ("Some of your keys are not used.", self._keys.problems),
            ("Some of your plugins are not used.", self.plugins.problems if self.plugins else ()),
            ("Some of your themes are not used.", self._theme_problems),
        )
        return [(title, problems) for title, problems in found if problems]

    def _alias_problems(self) -> Iterator[str]:
        actions = self.context.actions
        for name, alias in self.options.aliases.items():
            from tui.text.kind_words import find_kind  # slow to import, and most people have no aliases

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

    @work(group="cluster", exclusive=True)
    async def connect(self) -> None:
        """Resolve the options, connect, and mirror the cluster until exit or a context switch."""
        self.session = None
        await asyncio.to_thread(_import_modules, "tui.session.session", "tui.verbs.notices")
        from k8s.client.client import Client
        from tui.session.session import Session
        from tui.verbs.context import login_dialog
        from tui.verbs.notices import Notifier

        try:
            options = await self._resolve_options(self.options, self._show_progress)
            where = options.kubeconfig, options.context, options.namespace, options.overrides
            client = await Client.connect(*where, is_brief=True, dialog=login_dialog(self))
        except KubeError as error:
            self.snapshot = replace(self.snapshot, stale=str(error), is_synced=True, progress="")
            return
        if options.notice:
            self.notify(options.notice, severity="warning", markup=False)
        self.notifier = notifier = self.notifier or Notifier(self)
        # The namespace may have been switched meanwhile.
        place = {name: getattr(self.options, name) for name in ("namespace", "is_all_namespaces")}
        session = Session(client, replace(options, **place), self.context.runs, self._read_causes())
        self.session = session
        has_rows = asyncio.Event()
        reading: Worker[None] = self.run_worker(
            partial(self._read_life, session, has_rows), group="life", exclusive=True
        )

        def take(snapshot: ClusterSnapshot) -> None:
            if self.session is session:
                if snapshot.is_synced and not self.snapshot.is_synced:
                    self.paint_soon()
                self.snapshot = snapshot
                notifier.update(snapshot, session.mirror.all_jobs)
                if session.recorder is not None:
                    session.recorder.update(snapshot)
            if snapshot.is_synced or snapshot.stale:
                has_rows.set()

        def prepare(snapshot: ClusterSnapshot) -> Iterable[None]:
            view = self.views.current
            return () if view is None else view.row_steps(snapshot)

        take(session.mirror.snapshot())
        try:
            await session.mirror.run(take, prepare)
        except Exception as error:
            self.session = None  # ctrl+r connects again
            self.snapshot = replace(self.snapshot, stale=f"Updates ended: {error!r}. ctrl+r connects again.")
            raise
        finally:
            reading.cancel()
            try:
                await session.close()
            finally:  # the worker may be cancelled a second time
                await client.close()

    async def _read_life(self, session: Session, has_rows: asyncio.Event) -> None:
        await has_rows.wait()
        await asyncio.to_thread(
            _import_modules,
            "tui.session.life_feed",
            "tui.session.telemetry_feed",
            "tui.runs.journal.recorder",
        )
        if self.session is session:  # no other context was chosen meanwhile
            from tui.verbs.notices import report_news

            async with asyncio.TaskGroup() as group:
                group.create_task(session.observe("console"))
                group.create_task(report_news(self, session))  # once that has begun
                if self.notifier is not None:
                    group.create_task(self.notifier.share())

    def _show_progress(self, words: str) -> None:
        self.snapshot = replace(self.snapshot, stale="", is_synced=False, progress=f"{words}…")

    @property
    def is_idle(self) -> bool:
        """True if nothing is queued, drawn or running; the next change comes from a key or the cluster.

        A worker that follows something, such as a log, does not count once that was read for the first time.
        """
        has_life = self.session is None or self.session.life.is_idle()
        is_read = has_life and self.snapshot.is_synced
        groups = {each.group for each in self.workers if not each.is_finished} - FOLLOWING
        is_working = groups and not isinstance(self.screen, ModalScreen)  # else they may wait for an answer
        views = (each for each in self.screen_stack if isinstance(each, View))
        return is_read and not is_working and all(each.is_idle for each in views) and super().is_idle

    def accepts_keys(self) -> bool:
        """Return True once the top screen is mounted with its widgets."""
        return self.screen.is_drawable if isinstance(self.screen, View) else super().accepts_keys()

    def on_action_request(self, request: ActionRequest) -> None:
        """Run the requested action, or report why not."""
        from tui.text.kind_words import find_kind  # kinds are not imported before the first frame

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

    def mark_job_seen(self, context: str, job: JobRef) -> None:
        """Mark all notices of a job as seen."""
        if self.notifier is not None:
            self.notifier.mark_job_seen(context, job)

    def on_notices_seen(self) -> None:
        """Reset the counter of notices."""
        if self.notifier is not None:
            self.notifier.mark_seen(*self.notices)

    def report_bug(self, error: Exception) -> None:
        """Write an unexpected exception to the log, and notify of each once."""
        from tui.settings.console_log import log_bug

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

    def _read_causes(self) -> Sequence[FailureCause] | None:
        if not self.options.causes_file.exists():
            return None
        from tui.settings.causes_file import read_causes

        found = read_causes(self.options.causes_file)
        if found.problems:
            title = "Some of your causes of failures are not used."
            self.notify("\n".join(found.problems), title=title, severity="warning", markup=False)
        return found.causes


def _import_modules(*names: str) -> None:
    # In a thread: these imports would delay the first frame and the first keys.
    for name in names:
        importlib.import_module(name)


def run_console(options: ConsoleOptions, resolve_options: OptionsResolver = _unchanged) -> int:
    """Open the console and return the exit status."""
    keys = UserKeys()
    if options.keys_file.exists():  # reading YAML is slow to import, and most people keep our keys
        from tui.settings.keys_file import read_keys

        keys = read_keys(options.keys_file, key_table())
    console = Console(options, resolve_options, keys, plugins=user_plugins(options, keys.keymap))
    try:
        console.run(mouse=False)
    finally:
        tty_state.restore(keeps_cursor=True)
    return console.return_code or 0
