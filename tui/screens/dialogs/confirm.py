"""A confirmation with two or more buttons; the safe one has the focus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label

from k8s.text.sanitize import sanitize_lines
from tui.keys import CONFIRM, DIALOG
from tui.widgets.bindings import bindings
from tui.widgets.scroll_pane import ScrollPane

# Details that are longer may need scrolling.
_MOST_LINES = 10


class ConfirmScreen(ModalScreen[str]):
    """Asks for confirmation; returns the id of the answer: `do`, `cancel`, or one of `answers`."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "Button"
    BINDINGS: ClassVar[list[BindingType]] = bindings((*DIALOG, *CONFIRM))

    def __init__(
        self,
        question: str,
        details: str,
        action: str = "",
        *,
        answers: Sequence[tuple[str, str]] = (),
        escape: int = 0,
    ) -> None:
        """Prepare the prompt.

        Args:
            question: One sentence.
            details: Consequences of the action.
            action: Label of the button beside Cancel, whose id is `do`.
            answers: Replaces Cancel and `action`: ids and labels, the safe one first.
            escape: Index of the answer for `esc`.
        """
        super().__init__()
        self._question = question
        self._details = details
        self._answers = answers or (("cancel", "Cancel"), ("do", action))
        self._escape = self._answers[escape]

    def compose(self) -> ComposeResult:
        """Lay out the question and its buttons."""
        with Vertical(id="dialog"):
            yield Label(sanitize_lines(self._question), id="question", markup=False)
            with ScrollPane(id="reading", can_focus=False):
                yield Label(sanitize_lines(self._details), id="details", markup=False)
            with Horizontal(id="buttons"):
                for answer, label in self._answers:
                    yield Button(label, id=answer, compact=True)
            page = "PgDn scroll · " if self._details.count("\n") >= _MOST_LINES else ""
            keys = f"tab next · enter press · {page}esc {self._escape[1].lower()}"
            yield Label(keys, id="keys", markup=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Return the answer."""
        event.stop()
        self.dismiss(event.button.id)

    def action_page(self, pages: int) -> None:
        """Scroll details that do not fit."""
        pane = self.query_one(ScrollPane)
        pane.scroll_relative(y=pages * max(1, pane.size.height - 1))

    def action_escape(self) -> None:
        """Return the answer that changes nothing."""
        self.dismiss(self._escape[0])
