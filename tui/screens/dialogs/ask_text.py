"""A question that is answered by a line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from k8s.text.sanitize import sanitize_lines
from tui.keys import DIALOG
from tui.widgets.bindings import bindings
from tui.widgets.form.line_input import LineInput


class AskTextScreen(ModalScreen[str]):
    """Asks for one line; returns it, or nothing where the question was left."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "LineInput"
    BINDINGS: ClassVar[list[BindingType]] = bindings(DIALOG)

    def __init__(self, question: str, details: str, *, verb: str = "save") -> None:
        """Ask a question.

        Args:
            question: One sentence.
            details: What the answer is for.
            verb: What `enter` does.
        """
        super().__init__()
        self._question = question
        self._details = details
        self._verb = verb

    def compose(self) -> ComposeResult:
        """Lay out the question and its line."""
        with Vertical(id="dialog"):
            yield Label(sanitize_lines(self._question), id="question", markup=False)
            yield Label(sanitize_lines(self._details), id="details", markup=False)
            yield LineInput(compact=True, id="answer")
            yield Label(f"enter {self._verb} · esc cancel", id="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer; an empty line is none."""
        event.stop()
        if text := event.value.strip():
            self.dismiss(text)

    def action_escape(self) -> None:
        """Leave the question."""
        self.dismiss("")
