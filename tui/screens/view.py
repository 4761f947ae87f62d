"""What all views have: the status line, a title, the prompt, the keys; and how a view asks for another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Input, Label

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot
from tui.keys import COMMANDS, EVERYWHERE, Key
from tui.match import matcher
from tui.widgets.key_bar import KeyBar
from tui.widgets.prompt import Prompt
from tui.widgets.status_line import StatusLine
from tui.widgets.table import Row


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """Turn the table of keys into Textual's bindings, those that a widget does not bind itself."""
    return [
        Binding(key.keys, key.action, key.words, show=False, priority=key.opens_prompt)
        for key in keys
        if key.action
    ]


def row_filter(typed: str) -> Callable[[Row], bool] | None:
    """Return the test that a table's rows must pass; None when nothing is typed."""
    matches = matcher(typed)
    if matches is None:
        return None
    return lambda row: matches(" ".join(cell.text for cell in row.cells))


class View(Screen[None]):
    """One full-width view; subclasses fill the middle."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(EVERYWHERE)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    KEYS: ClassVar[tuple[Key, ...]] = ()
    """The keys of this view, beside those that work everywhere."""

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, layout=False)
    """What is shown."""
    filter_text: reactive[str] = reactive("")
    """What was typed after `/`."""

    class Go(Message):
        """The user wants another view, or something done that concerns more than this view."""

        def __init__(self, where: str, argument: str = "", refs: Sequence[JobRef] = ()) -> None:
            super().__init__()
            self.where = where
            """The name of a command: see `tui.keys.COMMANDS`, and `back`, `retry`, `delete`, `open`."""
            self.argument = argument
            """What was typed after the command, or an instance's name."""
            self.refs = refs
            """The jobs that are meant."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        """Make the view; `ascii_only` draws nothing but ASCII."""
        super().__init__()
        self.ascii_only = ascii_only
        """Whether only ASCII is drawn."""
        self._written: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """Lay out the frame around the body."""
        yield StatusLine(ascii_only=self.ascii_only).data_bind(View.snapshot)
        yield Label("", id="title", markup=False)
        yield from self.compose_body()
        yield Prompt()
        yield KeyBar((*self.KEYS, *(key for key in EVERYWHERE if key.short)))

    def compose_body(self) -> ComposeResult:
        """Lay out the middle of the view."""
        return iter(())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave `/` and `:` to a field that is being typed in."""
        return not (action in ("filter", "command") and isinstance(self.focused, Input))

    @property
    def is_drawable(self) -> bool:
        """Tell whether its parts are there: not before it is laid out, nor while it is taken down."""
        return self.is_mounted and bool(self.query("#title"))

    def set_title(self, text: str) -> None:
        """Say what the view shows; the text is plain."""
        self.put("title", text)

    def put(self, line: str, text: str) -> None:
        """Write one of the view's lines, `title`, `notice` or `totals`; the same words again cost nothing."""
        if not self.is_drawable or self._written.get(line) == text:
            return
        self._written[line] = text
        label = self.query_one(f"#{line}", Label)
        label.update(text, layout=line in ("notice", "why"))
        label.set_class(bool(text), "-shown")

    def action_back(self) -> None:
        """Clear the filter, or go back."""
        if self.filter_text:
            self.filter_text = ""
        else:
            self.post_message(self.Go("back"))

    def action_quit_or_back(self) -> None:
        """Go back; at home ask whether to leave."""
        self.post_message(self.Go("quit-or-back"))

    def action_help(self) -> None:
        """Show the keys."""
        self.post_message(self.Go("help"))

    def action_retry(self) -> None:
        """Ask the cluster again."""
        self.post_message(self.Go("retry"))

    def action_filter(self) -> None:
        """Type a filter."""
        self.query_one(Prompt).open("/", self.filter_text)

    def action_command(self) -> None:
        """Type a command."""
        self.query_one(Prompt).open(":", suggestions=self.suggestions())

    @property
    def is_prompt_open(self) -> bool:
        """Tell whether a filter or a command is being typed."""
        return self.query_one(Prompt).display

    def close_prompt(self) -> None:
        """Forget what is being typed."""
        self.query_one(Prompt).action_close()

    def suggestions(self) -> list[str]:
        """Return what may be typed after `:`."""
        names = [command.name for command in COMMANDS]
        jobs = [job.ref.name for job in self.snapshot.jobs]
        return [*names, *(f"{word} {name}" for word in ("logs", "curves") for name in jobs), "ns all"]

    def on_prompt_typed(self, event: Prompt.Typed) -> None:
        """Filter at once; run a command when it is complete."""
        event.stop()
        if event.mark == "/":
            self.filter_text = event.text
            if event.is_final:
                self.focus_body()
        elif event.is_final:
            self.focus_body()
            where, _, argument = event.text.strip().partition(" ")
            if where:
                self.post_message(self.Go(where, argument.strip()))

    def on_prompt_closed(self, event: Prompt.Closed) -> None:
        """Forget the filter that was being typed."""
        event.stop()
        if event.mark == "/":
            self.filter_text = ""
        self.focus_body()

    def focus_body(self) -> None:
        """Give the focus back to what the view is about."""
        if self.AUTO_FOCUS:
            for widget in self.query(self.AUTO_FOCUS):
                self.set_focus(widget)
                return
