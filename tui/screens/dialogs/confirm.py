"""A question with a few answers, of which the safe one has the focus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label

from k8s.text.sanitize import sanitize_lines
from tui.keys import DIALOG
from tui.widgets.bindings import bindings


class ChooseScreen(ModalScreen[str]):
    """Asks, and answers with what stands for the button pressed."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "Button"
    BINDINGS: ClassVar[list[BindingType]] = bindings(DIALOG)

    def __init__(
        self, question: str, details: str, answers: Sequence[tuple[str, str]], *, escape: int = -1
    ) -> None:
        """Ask a question.

        Args:
            question: What is asked.
            details: What hangs on it.
            answers: Ids and the words on their buttons, the safe one first: it has the focus.
            escape: Index of the answer that `esc` gives.
        """
        super().__init__()
        self._question = question
        self._details = details
        self._answers = answers
        self._escape = answers[escape]

    def compose(self) -> ComposeResult:
        """Lay out the question and its buttons."""
        with Vertical(id="dialog"):
            yield Label(sanitize_lines(self._question), id="question", markup=False)
            yield Label(sanitize_lines(self._details), id="details", markup=False)
            with Horizontal(id="buttons"):
                for answer, words in self._answers:
                    yield Button(words, id=answer, compact=True)
            words = f"tab other button · enter press it · esc {self._escape[1].lower()}"
            yield Label(words, id="keys", markup=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer."""
        event.stop()
        self.dismiss(event.button.id)

    def action_escape(self) -> None:
        """Give the answer that takes nothing away."""
        self.dismiss(self._escape[0])


class ConfirmScreen(ChooseScreen):
    """Asks before something is done that cannot be undone; answers `do` only for the button that says it."""

    def __init__(self, question: str, details: str, act: str) -> None:
        """Ask `question`; `act` is the word on the button that does it."""
        super().__init__(question, details, (("cancel", "Cancel"), ("do", act)), escape=0)
