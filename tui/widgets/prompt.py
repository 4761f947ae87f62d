"""The line on which a filter or a command is typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label

from tui.widgets.line_input import LineInput


class Prompt(Horizontal):
    """Hidden until asked for. `/` filters while one types, `:` waits for enter."""

    DEFAULT_CSS = """
    Prompt { height: 1; }
    Prompt Label { width: 2; padding-left: 1; }
    Prompt Input { height: 1; border: none; padding: 0; background: transparent; width: 1fr; }
    Prompt Input:focus { border: none; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False),
        Binding("tab", "accept", "Take the suggestion", show=False, priority=True),
    ]

    class Typed(Message):
        """The text has changed, or was accepted with enter."""

        def __init__(self, mark: str, text: str, *, is_final: bool) -> None:
            super().__init__()
            self.mark = mark
            """`/` or `:`."""
            self.text = text
            self.is_final = is_final
            """Enter was pressed."""

    class Closed(Message):
        """Escape was pressed: what was typed is to be forgotten."""

        def __init__(self, mark: str) -> None:
            super().__init__()
            self.mark = mark
            """`/` or `:`."""

    mark = "/"
    """What is being typed: `/` a filter, `:` a command."""

    def on_mount(self) -> None:
        """Stay hidden until asked for."""
        self.display = False

    def compose(self) -> ComposeResult:
        """Lay out the mark and the input."""
        yield Label("/", markup=False)
        yield LineInput(compact=True)

    def open(self, mark: str, text: str = "", suggestions: Sequence[str] = ()) -> None:
        """Show the line and give it the focus."""
        self.mark = mark
        self.query_one(Label).update(mark)
        field = self.query_one(Input)
        field.suggester = SuggestFromList(list(suggestions), case_sensitive=False) if suggestions else None
        with field.prevent(Input.Changed):
            field.value = text
        field.cursor_position = len(text)
        self.display = True
        # At once, not at the next idle moment: what is typed right after the mark belongs here.
        self.screen.set_focus(field)

    def close(self) -> None:
        """Hide the line."""
        self.display = False

    def action_close(self) -> None:
        """Forget what was typed."""
        self.close()
        self.post_message(self.Closed(self.mark))

    def action_accept(self) -> None:
        """Take the suggestion, and stay."""
        self.query_one(Input).action_cursor_right()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while one types."""
        event.stop()
        if self.display:
            self.post_message(self.Typed(self.mark, event.value, is_final=False))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close, and say what was typed."""
        event.stop()
        self.close()
        self.post_message(self.Typed(self.mark, event.value, is_final=True))
