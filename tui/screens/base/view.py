"""The frame of all views: status line, title, body, prompt and key bar; and the stack of open views."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Label

from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize_lines
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view_context import ViewContext
from tui.settings.keys import EVERYWHERE, PROMPT, Key, ViewDeclaration, remapped, unshadowed
from tui.settings.keys.completion import complete
from tui.terminal.driver import PacedScreen
from tui.text.format import Run
from tui.widgets.bindings import bindings
from tui.widgets.prompt import Prompt
from tui.widgets.status_line import KeyBar, StatusLine
from tui.widgets.table.row_set import LabelsOf
from tui.widgets.table.table import Table

if TYPE_CHECKING:
    from textual.app import App

    from k8s.jobs.permissions import Permissions
    from k8s.kinds import JobRef
    from tui.session.session import Session
    from tui.tables.notices import JobNotice


FLASH_S = 5.0
# Send no request for the permissions on every job that the cursor passes.
CURSOR_RESTS_S = 0.5

MOST_TYPED = 100
MOST_VISITED = 100

# The app binds this key itself, because it has to work in dialogs too.
INTERRUPT = f"{EVERYWHERE}.interrupt"


class View(PacedScreen[None]):
    """Full-screen view; subclasses fill the body."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VIEW: ViewDeclaration = ViewDeclaration("", focused=())

    session: reactive[Session | None] = reactive(None, repaint=False)
    """The connected cluster; None before there is one."""
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    notices: reactive[tuple[JobNotice, ...]] = reactive(tuple, repaint=False)
    """The notices of this session, the newest first."""
    unseen: reactive[tuple[Run, ...]] = reactive(tuple, repaint=False)
    """Counter of notices that were not looked at, in pieces."""
    filter_text: reactive[str] = reactive("")
    refused: reactive[Mapping[str, str]] = reactive(dict, layout=False)
    """Reasons of refused keys, by key id."""

    class PermissionsNeeded(Message):
        """Request to check the permissions for the selected job."""

        def can_replace(self, message: Message) -> bool:
            """Check only the last of several."""
            return isinstance(message, View.PermissionsNeeded)

    def __init__(self) -> None:
        super().__init__()
        # Context and route are set before the view is shown.
        self.context = ViewContext()
        self.route: Route | None = None
        self.is_shown = False
        """True unless another view covers this one; a dialog does not."""
        self._is_behind = True
        self._written: dict[str, str] = {}
        self._flash_ends: Timer | None = None
        self._is_typing = self._is_flashing = False
        self._typed_from: Widget | None = None

    def compose(self) -> ComposeResult:
        """Lay out the frame around the body."""
        yield StatusLine(is_read_only=self.context.is_read_only).data_bind(View.snapshot, View.unseen)
        yield from self.compose_heading()
        yield from self.compose_body()
        yield Label("", id="totals", markup=False)
        yield Label("", id="flash", markup=False)
        yield Prompt(remapped(PROMPT, self.context.keymap))
        yield KeyBar(self.bar_keys).data_bind(View.refused)

    def compose_heading(self) -> ComposeResult:
        """Lay out the title."""
        yield Label("", id="title", markup=False)

    def compose_body(self) -> ComposeResult:
        """Lay out the body of the view."""
        return iter(())

    def on_mount(self) -> None:
        """Bind this user's keys; the keymap is per session, so they are not in `BINDINGS`."""
        everywhere = remapped(self.context.actions.keys(EVERYWHERE), self.context.keymap)
        keys = [key for key in (*self._bound_keys, *everywhere) if key.id != INTERRUPT]
        ours = BindingsMap(bindings(keys)).key_to_bindings
        self._bindings = BindingsMap.from_keys({**self._bindings.key_to_bindings, **ours})

    @property
    def keys(self) -> tuple[Key, ...]:
        """Return the keys of this view, without the global ones."""
        return self.context.permitted(self._bound_keys)

    @property
    def _bound_keys(self) -> tuple[Key, ...]:
        is_about_job = self.route is not None and self.route.job is not None
        return self.context.view_keys(self.VIEW, is_about_job=is_about_job)

    @property
    def bar_keys(self) -> tuple[Key, ...]:
        """Return the keys for the key bar."""
        return unshadowed((*self.keys, *self.context.everywhere_keys), self.context.keys(self.VIEW.focused))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave `/` and `:` to a focused input."""
        return not (action in ("filter", "command") and isinstance(self.focused, Input))

    @property
    def is_drawable(self) -> bool:
        """True while the view's widgets are mounted."""
        return self.is_mounted and self.query_one_optional("#title") is not None

    def row_steps(self, snapshot: ClusterSnapshot) -> Iterable[None]:
        """Prepare what takes long before a snapshot is shown; other tasks may run between the steps."""
        return ()

    @property
    def is_idle(self) -> bool:
        """True if nothing that the view or a widget of it shows is being fetched or computed."""
        return all(getattr(each, "is_idle", True) for each in self.walk_children(with_self=False))

    def set_title(self, text: str) -> None:
        """Set the title; no markup."""
        self.set_line("title", text)

    def set_line(self, line: str, text: str) -> None:
        """Set a line of the view, such as `title` or `totals`."""
        if not self.is_drawable or self._written.get(line) == text:
            return
        self._written[line] = text
        label = self.query_one(f"#{line}", Label)
        label.update(sanitize_lines(text), layout=line in ("notice", "why"))
        label.set_class(bool(text), "-shown")

    def flash(
        self,
        text: str,
        severity: Literal["information", "warning", "error"] = "information",
        *,
        for_s: float = FLASH_S,
    ) -> None:
        """Show a message in the status line for a while; no markup."""
        if not self.is_drawable:
            return
        if self._flash_ends is not None:
            self._flash_ends.stop()
        self.set_line("flash", text if severity == "information" else f"! {text}")
        self.query_one("#flash").set_class(severity != "information", "-loud")
        self._show_line(is_flashing=True)
        self._flash_ends = self.set_timer(for_s, self.end_flash)

    def end_flash(self) -> None:
        """Hide the message."""
        self._show_line(is_flashing=False)

    def _show_line(self, *, is_typing: bool | None = None, is_flashing: bool | None = None) -> None:
        # Not a class of the screen, which would update the styles of all its widgets.
        self._is_typing = self._is_typing if is_typing is None else is_typing
        self._is_flashing = self._is_flashing if is_flashing is None else is_flashing
        for line in self.query_children("#flash, #totals"):
            line.display = not self._is_typing and self._is_flashing == (line.id == "flash")

    def action_request(self, name: str) -> None:
        """Request an action for the current selection."""
        action = self.context.actions.find(name)
        takes_many = action is not None and action.takes_many
        job = self.current_job()
        targets = self.targets() if takes_many else [job] if job is not None else []
        self.post_message(
            ActionRequest(
                name,
                targets=targets,
                instance=self.selected_instance(),
                selected=self.selected_object(),
                hidden=self.hidden_targets() if takes_many else 0,
            )
        )

    def current_job(self) -> JobRef | None:
        """Return the job that keys act on."""
        return self.route.job if self.route is not None else None

    def targets(self) -> Sequence[JobRef]:
        """Return the marked jobs, or the current one."""
        job = self.current_job()
        return [job] if job is not None else []

    def hidden_targets(self) -> int:
        """Return the number of targets hidden by the filter."""
        return 0

    def selected_instance(self) -> str:
        """Return the selected instance of the current job."""
        return ""

    def selected_object(self) -> str:
        """Return the selected object if it is not a job: a node, `NAMESPACE/CLAIM`, `pod/NAME`."""
        return ""

    def step_back(self) -> bool:
        """Undo one step inside the view, such as a filter; return False if there is none."""
        has_filter = bool(self.filter_text)
        self.filter_text = ""
        return has_filter

    def refresh_feeds(self) -> None:
        """Poll the feeds of this view now."""

    def refresh_view(self) -> None:
        """Paint the view now, or when it is shown again."""
        self._is_behind = not (self.is_shown and self.is_drawable)
        if not self._is_behind:
            self.render_view()

    def render_view(self) -> None:
        """Paint the view; called by `refresh_view`."""

    def resume_feeds(self) -> None:
        """Start the feeds of this view; called when it is shown."""

    def pause_feeds(self) -> None:
        """Stop the feeds of this view; called when another view is shown."""

    def on_screen_resume(self) -> None:
        """Start the feeds, catch up, and check permissions."""
        if not self.is_shown:
            self.is_shown = True
            self.resume_feeds()
        if self._is_behind:
            self.refresh_view()
        self.check_permissions()

    def on_screen_suspend(self) -> None:
        """Stop the feeds, unless only a dialog opens."""
        if self.is_shown and not isinstance(self.app.screen, ModalScreen):
            self.is_shown = False
            self.pause_feeds()

    def check_permissions(self) -> None:
        """Mark the keys that the cluster would refuse this user, once the cursor rests."""
        if any(key.permission for key in self.keys):
            self.post_message(self.PermissionsNeeded())

    def on_view_permissions_needed(self, event: PermissionsNeeded) -> None:
        """Check the permissions for the selected job."""
        event.stop()
        # While a view is taken down its table goes first.
        if self.session is not None and self.is_current and self.is_drawable:
            job = self.current_job()
            namespace = job.namespace if job else self.session.namespace
            self._find_refused(self.session.permissions, namespace, job)

    @work(group="permissions", exclusive=True)
    async def _find_refused(self, permissions: Permissions, namespace: str, job: JobRef | None) -> None:
        keys = [key for key in self.keys if key.permission]

        def show() -> None:
            found = {key.id: permissions.known(key.permission, namespace, job) for key in keys}
            self.refused = {id: each.why for id, each in found.items() if each.is_allowed is False}

        show()
        await asyncio.sleep(CURSOR_RESTS_S)
        if self.is_current:
            await permissions.fetch_all(dict.fromkeys(key.permission for key in keys), namespace, job)
            show()

    def copy_text(self) -> str:
        """Return the text to copy."""
        return self._written.get("title", "")

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]] | None:
        """Return titles and rows to save as CSV; None without a table."""
        return None

    def action_filter(self) -> None:
        """Open the prompt for a filter."""
        self._show_line(is_typing=True)
        self.query_one(Prompt).open("/", self.filter_text, history=self.context.typed["/"])

    def action_command(self) -> None:
        """Open the prompt for a command."""
        self._typed_from = self.focused
        typed = self.context.typed[":"]
        names = self.context.names()
        self._show_line(is_typing=True)
        self.query_one(Prompt).open(
            ":",
            complete=lambda text: complete(
                text, names, self.context.actions, typed, is_read_only=self.context.is_read_only
            ),
            history=typed,
        )

    def filter_tables(self, text: str, labels_of: LabelsOf | None = None) -> None:
        """Filter the tables, and show the filter's problem or hint in the prompt.

        Args:
            text: Text typed after `/`.
            labels_of: Returns the labels of a row; None if rows have none.
        """
        problem, hints = "", []
        for table in self.query(Table):
            found = table.filter_by(text, labels_of)
            problem = problem or found.problem
            hints.append("" if table.row_count else found.hint)
        self.query_one(Prompt).show_problem(problem or (hints[0] if hints and all(hints) else ""))

    @property
    def is_prompt_open(self) -> bool:
        """True while a filter or a command is being typed."""
        return self.query_one(Prompt).is_open

    def close_prompt(self) -> None:
        """Cancel the prompt."""
        self.query_one(Prompt).press("escape")

    def on_prompt_typed(self, event: Prompt.Typed) -> None:
        """Filter at once; run a command on enter."""
        event.stop()
        if event.is_final:
            self._end_typing(event.mark, event.text.strip())
        if event.mark == "/":
            self.filter_text = event.text
            has_rows = any(table.row_count for table in self.query(Table))  # without, the table says it
            if event.is_final and has_rows and (problem := self.query_one(Prompt).problem):
                self.flash(problem, "warning")
        elif event.is_final:
            word, _, argument = event.text.strip().partition(" ")
            if word:
                self.post_message(ActionRequest(word.lower(), argument.strip(), is_typed=True))

    def on_prompt_closed(self, event: Prompt.Closed) -> None:
        """Clear the canceled filter."""
        event.stop()
        if event.mark == "/":
            self.filter_text = ""
        self._end_typing(event.mark, "")

    def _end_typing(self, mark: str, text: str) -> None:
        self._show_line(is_typing=False)
        typed = self.context.typed[mark]
        if text:
            typed[:] = [*(each for each in typed if each != text), text][-MOST_TYPED:]
        # A pane without content passes its focus on to the content that came while a command was typed.
        origin = self._typed_from
        panes = [origin, *origin.query("*")] if mark == ":" and origin is not None else []
        if target := next((pane for pane in panes if pane.focusable), None):
            self.set_focus(target)
        else:
            self.focus_body()

    def focus_body(self) -> None:
        """Focus the body of the view."""
        if self.AUTO_FOCUS:
            for widget in self.query(self.AUTO_FOCUS):
                self.set_focus(widget)
                return


class ViewStack:
    """Open views of an app, by route."""

    def __init__(self, app: App[int], prepare: Callable[[View, Route], View]) -> None:
        """Manage the screens of `app`; `prepare` is called before a view is shown."""
        self._app = app
        self._prepare = prepare
        self.previous: Route | None = None
        # Routes in the order in which they were shown, and the place of the visible one.
        self._history: list[Route] = []
        self._place = -1

    @property
    def current(self) -> View | None:
        """Return the visible view; None while a dialog covers it."""
        screen = self._app.screen
        return screen if isinstance(screen, View) else None

    @property
    def is_deep(self) -> bool:
        """True if there is a view below the visible one."""
        return len(self._app.screen_stack) > 2

    def show(self, route: Route, view: View) -> None:
        """Push a view; if one with its route is open, return to that instead."""
        self._remember()
        self._record(route)
        for depth, below in enumerate(reversed(self._app.screen_stack)):
            if isinstance(below, View) and below.route == route:
                for _ in range(depth):
                    self._app.pop_screen()
                return
        self._app.push_screen(self._prepare(view, route))

    def switch(self, route: Route, view: View) -> None:
        """Replace the whole stack by a view, unless the home already has its route."""
        self._remember()
        self._record(route)
        while self.is_deep:
            self._app.pop_screen()
        home, prepared = self._app.screen, self._prepare(view, route)
        # Another context may disable changes.
        if not (isinstance(home, View) and home.route == route and home.context is prepared.context):
            self._app.switch_screen(prepared)

    def restart(self, route: Route, view: View) -> None:
        """Replace the stack after a context switch, and forget the previous routes."""
        self.switch(route, view)
        self.previous, self._history, self._place = None, [route], 0

    def go_back(self) -> None:
        """Close the visible view."""
        self._remember()
        self._app.pop_screen()
        if (view := self.current) is not None and view.route is not None:
            self._record(view.route)

    def step_history(self, by: int) -> Route | None:
        """Move in the history and return the route there, to be shown by the caller; None past its ends."""
        if not 0 <= self._place + by < len(self._history):
            return None
        self._place += by
        return self._history[self._place]

    def _record(self, route: Route) -> None:
        # A route that `step_history` led to is there already.
        if self._history[self._place : self._place + 1] != [route]:
            self._history[self._place + 1 :] = [route]
            del self._history[:-MOST_VISITED]
            self._place = len(self._history) - 1

    def _remember(self) -> None:
        if (view := self.current) is not None and view.route is not None:
            self.previous = view.route


MIN_SIZE = Size(60, 15)


def is_too_small(size: Size) -> bool:
    """Return True if no view fits."""
    return size.width < MIN_SIZE.width or size.height < MIN_SIZE.height


class TooSmall(ModalScreen[None]):
    """Shows the actual and the required size; closes when the terminal is large enough."""

    DEFAULT_CSS = """
    TooSmall { align: center middle; background: $background; }
    TooSmall Label { width: auto; max-width: 100%; text-align: center; }
    """

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Label(self._text(self.app.size), markup=False)

    def on_resize(self, event: events.Resize) -> None:
        """Show the new size, or close once it is large enough."""
        if is_too_small(event.size):
            self.query_one(Label).update(self._text(event.size))
        elif self.app.screen is self:
            self.app.pop_screen()

    def _text(self, size: Size) -> str:
        need = f"{MIN_SIZE.width}x{MIN_SIZE.height}"
        return f"{size.width}x{size.height} is too small.\nAt least {need} is needed.\n^c quits"
