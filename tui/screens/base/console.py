"""The application as actions see it: its state, its views, and messages to the user."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events
from textual.notifications import SeverityLevel
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.worker import Worker

import themes
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError, join_sentences
from k8s.text.sanitize import sanitize, sanitize_lines
from tui.runs.store import RunStore
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view import FLASH_S, View, ViewStack
from tui.screens.base.view_context import ViewContext
from tui.settings.keys import ActionTable, Argument, UserKeys
from tui.settings.keys.advice import REMOVED, console_advice
from tui.settings.manual import TOPICS
from tui.settings.options import ConsoleOptions
from tui.terminal.driver import PacedApp
from tui.text.cells import cell_len

if TYPE_CHECKING:
    from k8s.kinds import JobRef
    from tui.session.session import Session
    from tui.settings.plugins_file import UserPlugins
    from tui.tables.notices import JobNotice
    from tui.text.format import Run


class BaseConsole(PacedApp[int]):
    """The console's state and services; everything on screen is bound to `session` and `snapshot`."""

    session: reactive[Session | None] = reactive(None, repaint=False)
    """The connected cluster; None before there is one."""
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    notices: reactive[tuple[JobNotice, ...]] = reactive(tuple, repaint=False)
    unseen: reactive[tuple[Run, ...]] = reactive(tuple, repaint=False)

    def __init__(
        self, options: ConsoleOptions, keys: UserKeys, actions: ActionTable, plugins: UserPlugins | None
    ) -> None:
        self._theme_problems: list[str] = []
        self.palettes = themes.load(options.themes_folder, self._theme_problems.append)
        super().__init__()
        self.options = options
        self.forwards: dict[JobRef, Worker[None]] = {}
        self.plugins = plugins
        """The user's plugins, and the rejected ones."""
        self.plugin_outputs: dict[str, str] = {}
        """Newest outputs of plugins, by number."""
        self._keys = keys
        if plugins is not None:
            actions = ActionTable((*actions, *plugins.plugins))
        self.context = ViewContext(
            keys.keymap,
            options.is_read_only,
            self._names,
            finished_days=options.finished_days,
            strip_by=options.strip_by,
            has_loss=options.has_loss,
            runs=RunStore(options.state_folder, options.history),
            log_folder=options.state_folder / "logs",
            actions=actions,
            columns=options.columns,
        )
        self.views = ViewStack(self, self._prepare)
        self._pending_notices: list[Callable[[], None]] = []

    def connect(self) -> object:
        """Connect with the current options, and mirror that cluster."""
        raise NotImplementedError

    def mark_job_seen(self, context: str, job: JobRef) -> None:
        """Mark all notices of a job as seen."""
        raise NotImplementedError

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

    def require_session(self) -> Session | None:
        """Return the session, or notify that there is none yet."""
        if self.session is None:
            self.notify("Not connected to a cluster yet.", severity="warning", markup=False)
        return self.session

    def target_job(self, request: ActionRequest) -> tuple[Session, JobRef] | None:
        """Return the session and the one job that a request is about, or notify that there is none."""
        targets = self.target_jobs(request)
        if (session := self.require_session()) is None:
            return None
        if not targets:
            what = f"No job {sanitize(request.argument)!r} here." if request.argument else "Which job?"
            self.notify("Type its name after the command.", title=what, severity="warning", markup=False)
            return None
        return session, targets[0]

    def target_jobs(self, request: ActionRequest) -> list[JobRef]:
        """Return the jobs that a request is about: those it names, or the one that is shown."""
        if request.targets:
            return list(request.targets)
        if request.argument:
            return [job.ref for job in self.snapshot.jobs if job.ref.name == request.argument]
        view = self.views.current
        job = view.current_job() if view is not None else None
        return [job] if job is not None else []

    def record_refusal(self, error: KubeError) -> None:
        """Remember that the cluster refused this user, so that the action is disabled."""
        if self.session is not None:
            self.session.permissions.record_refusal(error)

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

    def write_to_terminal(self, sequence: str) -> None:
        """Write an escape sequence to the terminal outside of rendering: for its clipboard."""
        if self._driver is not None:
            self._driver.write(sequence)
            self._driver.flush()

    def leave(self, code: int) -> None:
        """Quit with this exit status."""
        self.exit(code, return_code=code)

    def _prepare(self, view: View, route: Route) -> View:
        view.context, view.route = self.context, route
        return view.data_bind(
            BaseConsole.session, BaseConsole.snapshot, BaseConsole.notices, BaseConsole.unseen
        )

    def _names(self) -> Mapping[Argument, Sequence[str]]:
        known = self.session.mirror.all_jobs if self.session is not None else ()
        seen = {job.ref.namespace for job in known}
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

    def on_key(self, event: events.Key) -> None:
        """Name the replacement of a removed key, also over a form."""
        view = self.screen.VIEW.name if isinstance(self.screen, View) else ""
        if words := REMOVED.get(event.key) or REMOVED.get(f"{view}.{event.key}"):
            super().notify(words, severity="warning", markup=False)


Functions = dict[str, Callable[[BaseConsole, ActionRequest], None]]
"""Functions of a subject of actions, by the names of their actions."""
