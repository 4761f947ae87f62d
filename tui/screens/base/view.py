"""The frame that all views share: a line about the cluster, a title, the middle, a line to type on, keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Label

from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize_lines
from tui.keys import EVERYWHERE, PROMPT, Key, remapped
from tui.keys.completion import complete
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view_context import ViewContext
from tui.widgets.bindings import bindings
from tui.widgets.key_bar import KeyBar
from tui.widgets.prompt import Prompt
from tui.widgets.status_line import StatusLine
from tui.widgets.table.row_order import row_filter
from tui.widgets.table.table import Table

if TYPE_CHECKING:
    from k8s.kinds import JobRef

FLASH_S = 5.0
"""How long a word about what just happened stays."""

MOST_TYPED = 100
"""Filters, and commands, that are remembered."""

INTERRUPT = f"{EVERYWHERE}.interrupt"
"""The one key of every view that the app binds itself, for it works in dialogs too."""


class View(Screen[None]):
    """One full-width view; subclasses fill the middle."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    NAME: ClassVar[str] = ""
    """What the tables of keys call this view."""

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    """What is shown."""
    filter_text: reactive[str] = reactive("")
    """What was typed after `/`."""
    refused: reactive[Mapping[str, str]] = reactive(dict, layout=False)
    """Ids of keys that the cluster would refuse this user, and why."""

    class PermissionsNeeded(Message):
        """What this user may do here, with the selected job, should be found out."""

        def can_replace(self, message: Message) -> bool:
            """Ask once for what the cursor rests on last."""
            return isinstance(message, View.PermissionsNeeded)

    def __init__(self) -> None:
        """Make the view."""
        super().__init__()
        self.context = ViewContext()
        """What the application gives; set before the view is shown."""
        self.route: Route | None = None
        """What it shows; set before the view is shown."""
        self.is_shown = False
        """Whether no other view covers it; a question above it does not."""
        self._is_behind = True
        self._written: dict[str, str] = {}
        self._flash_ends: Timer | None = None
        self._typed_from: Widget | None = None

    def compose(self) -> ComposeResult:
        """Lay out the frame around the body."""
        yield StatusLine(is_read_only=self.context.is_read_only).data_bind(View.snapshot)
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
        """Lay out the middle of the view."""
        return iter(())

    def on_mount(self) -> None:
        """Bind the keys that are there for this user; which they are the context knows, not the class."""
        keys = [key for key in (*self.keys, *self.context.everywhere_keys) if key.id != INTERRUPT]
        withheld = self.context.withheld_keys(self.NAME)
        ours = BindingsMap(bindings((*keys, *withheld))).key_to_bindings
        self._bindings = BindingsMap.from_keys({**self._bindings.key_to_bindings, **ours})

    @property
    def keys(self) -> tuple[Key, ...]:
        """Return the keys of this view, without those of every view."""
        return self.context.view_keys(self.NAME)

    @property
    def bar_keys(self) -> tuple[Key, ...]:
        """Return the keys of the line below, as far as they have words there."""
        return (*self.keys, *self.context.everywhere_keys)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave `/` and `:` to a field that is being typed in."""
        return not (action in ("filter", "command") and isinstance(self.focused, Input))

    @property
    def is_drawable(self) -> bool:
        """Tell whether its parts are there: not before it is laid out, nor while it is taken down."""
        return self.is_mounted and self.query_one_optional("#title") is not None

    def set_title(self, text: str) -> None:
        """Say what the view shows; the text is plain."""
        self.put("title", text)

    def put(self, line: str, text: str) -> None:
        """Write one of the view's lines, as `title` or `totals`; the same words again cost nothing."""
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
        """Say what just happened on the line below, for a while; the text is plain."""
        if not self.is_drawable:
            return
        if self._flash_ends is not None:
            self._flash_ends.stop()
        self.put("flash", text if severity == "information" else f"! {text}")
        self.query_one("#flash").set_class(severity != "information", "-loud")
        self.add_class("-flashing")
        self._flash_ends = self.set_timer(for_s, self._end_flash)

    def _end_flash(self) -> None:
        self.remove_class("-flashing")

    def action_request(self, name: str) -> None:
        """Ask the app for an action, with what is selected here."""
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
        """Return the job that the view's keys act on, where there is one."""
        return self.route.job if self.route is not None else None

    def targets(self) -> Sequence[JobRef]:
        """Return the jobs that an action for many acts on: the marked ones, otherwise the current one."""
        job = self.current_job()
        return [job] if job is not None else []

    def hidden_targets(self) -> int:
        """Return how many of the targets the filter hides."""
        return 0

    def selected_instance(self) -> str:
        """Return the instance of the current job under the cursor."""
        return ""

    def selected_object(self) -> str:
        """Return what is under the cursor where that is no job: a node, `NAMESPACE/CLAIM`, `pod/NAME`."""
        return ""

    def step_back(self) -> bool:
        """Undo one step inside the view, as a filter; tell whether there was one."""
        has_filter = bool(self.filter_text)
        self.filter_text = ""
        return has_filter

    def refresh_feeds(self) -> None:
        """Ask again for what only this view shows."""

    def redraw(self) -> None:
        """Draw what is known; a view that another one covers draws once it is shown again."""
        self._is_behind = not (self.is_shown and self.is_drawable)
        if not self._is_behind:
            self.paint()

    def paint(self) -> None:
        """Draw what is known; called by `redraw`."""

    def uncovered(self) -> None:
        """Begin to ask for what only this view shows, or go on; called when it is shown."""

    def covered(self) -> None:
        """Ask for nothing more; called when another view is shown instead."""

    def on_screen_resume(self) -> None:
        """Catch up with what came in the meantime, and find out what may be done here."""
        if not self.is_shown:
            self.is_shown = True
            self.uncovered()
        if self._is_behind:
            self.redraw()
        self.ask_permissions()

    def on_screen_suspend(self) -> None:
        """Rest while another view is shown; a question above this one is none."""
        if self.is_shown and not isinstance(self.app.screen, ModalScreen):
            self.is_shown = False
            self.covered()

    def ask_permissions(self) -> None:
        """Find out which of the view's keys would be refused."""
        if any(key.permission for key in self.keys):
            self.post_message(self.PermissionsNeeded())

    def copy_text(self) -> str:
        """Return the text that is copied from here."""
        return self._written.get("title", "")

    def action_preview(self) -> None:
        """Show or hide what is beside a list; here is nothing."""
        self.flash("Only jobs and nodes have a preview.")

    def action_filter(self) -> None:
        """Type a filter."""
        self.add_class("-typing")
        self.query_one(Prompt).open("/", self.filter_text, history=self.context.typed["/"])

    def action_command(self) -> None:
        """Type a command."""
        self._typed_from = self.focused
        typed = self.context.typed[":"]
        names = self.context.names()
        self.add_class("-typing")
        self.query_one(Prompt).open(
            ":",
            complete=lambda text: complete(
                text, names, typed, is_read_only=self.context.is_read_only, actions=self.context.actions
            ),
            history=typed,
        )

    def filter_tables(
        self, text: str, labels_of: Callable[[str], Mapping[str, str]] = lambda _key: {}
    ) -> None:
        """Show the rows that match, and say beside what is typed why it makes no sense or none does.

        Args:
            text: What was typed after `/`.
            labels_of: Returns the labels of what the row with a key stands for.
        """
        problem, hints, tables = "", [], self.query(Table)
        for table in tables:
            found = row_filter(text, table.columns, labels_of)
            table.set_filter(found.accepts, found.hint)
            problem = problem or found.problem
            hints.append("" if table.row_count else found.hint)
        self.query_one(Prompt).say(problem or (hints[0] if hints and all(hints) else ""))

    @property
    def is_prompt_open(self) -> bool:
        """Tell whether a filter or a command is being typed."""
        return self.query_one(Prompt).is_open

    def close_prompt(self) -> None:
        """Forget what is being typed."""
        self.query_one(Prompt).press("escape")

    def on_prompt_typed(self, event: Prompt.Typed) -> None:
        """Filter at once; run a command when it is complete."""
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
                self.post_message(ActionRequest(word, argument.strip(), is_typed=True))

    def on_prompt_closed(self, event: Prompt.Closed) -> None:
        """Forget the filter that was being typed."""
        event.stop()
        if event.mark == "/":
            self.filter_text = ""
        self._end_typing(event.mark, "")

    def _end_typing(self, mark: str, text: str) -> None:
        """Give the focus back to what had it, after a filter to what is filtered; remember what was typed."""
        self.remove_class("-typing")
        typed = self.context.typed[mark]
        if text:
            typed[:] = [*(each for each in typed if each != text), text][-MOST_TYPED:]
        if mark == ":" and self._typed_from is not None and self._typed_from.focusable:
            self.set_focus(self._typed_from)
        else:
            self.focus_body()

    def focus_body(self) -> None:
        """Give the focus back to what the view is about."""
        if self.AUTO_FOCUS:
            for widget in self.query(self.AUTO_FOCUS):
                self.set_focus(widget)
                return
