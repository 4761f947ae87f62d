"""A question for a user and a password, which is not shown and is returned only to whoever asked."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from k8s.text.sanitize import sanitize_lines
from tui.keys import DIALOG
from tui.widgets.bindings import bindings
from tui.widgets.form.line_input import LineInput


class Login(NamedTuple):
    """What was typed; both empty where what was known is to be forgotten."""

    user: str
    password: str


class AskLoginScreen(ModalScreen[Login | None]):
    """Asks for user and password; returns None where the question was left."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "LineInput"
    BINDINGS: ClassVar[list[BindingType]] = bindings(DIALOG)

    def __init__(self, question: str, details: str, user: str = "") -> None:
        """Ask a question.

        Args:
            question: One sentence.
            details: What becomes of the answer.
            user: What stands there from the start.
        """
        super().__init__()
        self._question = question
        self._details = details
        self._user = user

    def compose(self) -> ComposeResult:
        """Lay out the question and its lines."""
        with Vertical(id="dialog"):
            yield Label(sanitize_lines(self._question), id="question", markup=False)
            yield Label(sanitize_lines(self._details), id="details", markup=False)
            yield LineInput(self._user, compact=True, id="user", placeholder="user")
            yield LineInput(password=True, compact=True, id="password", placeholder="password or token")
            yield Label("enter next, then use · esc cancel", id="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on to the password, and answer once both or none are there."""
        event.stop()
        user, password = (self.query_one(f"#{name}", LineInput) for name in ("user", "password"))
        login = Login(user.value.strip(), password.value.strip())
        if event.input is user:
            password.focus()
        elif bool(login.user) == bool(login.password):
            self.dismiss(login)
        else:
            (password if login.user else user).focus()

    def action_escape(self) -> None:
        """Leave the question."""
        self.dismiss(None)
