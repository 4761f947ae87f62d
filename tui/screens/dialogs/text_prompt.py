"""A prompt for one line of text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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

# Returns why an answer is refused; empty if it is accepted.
FindProblem = Callable[[str], Awaitable[str]]


class TextPromptScreen(ModalScreen[str]):
    """Prompts for one line; returns it, or nothing if cancelled."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "LineInput"
    BINDINGS: ClassVar[list[BindingType]] = bindings(DIALOG)

    def __init__(
        self, question: str, details: str, *, verb: str = "save", find_problem: FindProblem | None = None
    ) -> None:
        """Prepare the prompt.

        Args:
            question: One sentence.
            details: Use of the answer.
            verb: Effect of `enter`, for the footer.
            find_problem: Rejects an answer; the dialog stays open and shows why.
        """
        super().__init__()
        self._question = question
        self._details = details
        self._verb = verb
        self._find_problem = find_problem

    def compose(self) -> ComposeResult:
        """Lay out the question and its line."""
        with Vertical(id="dialog"):
            yield Label(sanitize_lines(self._question), id="question", markup=False)
            yield Label(sanitize_lines(self._details), id="details", markup=False)
            yield LineInput(compact=True, id="answer")
            yield Label("", id="problem", markup=False)
            yield Label(f"enter {self._verb} · esc cancel", id="keys", markup=False)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the answer, or show why it is refused; an empty line cancels."""
        event.stop()
        if not (text := event.value.strip()):
            return
        if self._find_problem is not None and (problem := await self._find_problem(text)):
            self.query_one("#problem", Label).update(f"✕ {sanitize_lines(problem)}")
        else:
            self.dismiss(text)

    def action_escape(self) -> None:
        """Cancel."""
        self.dismiss("")


class GitCredentials(NamedTuple):
    """Credentials as typed; both empty to forget the stored ones."""

    user: str
    password: str


class LoginScreen(ModalScreen[GitCredentials | None]):
    """Prompt for user and password; returns None if cancelled."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "LineInput"
    BINDINGS: ClassVar[list[BindingType]] = bindings(DIALOG)

    def __init__(self, question: str, details: str, user: str = "") -> None:
        """Prepare the prompt.

        Args:
            question: One sentence.
            details: The use of the answer.
            user: The initial user.
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
            yield Label("", id="problem", markup=False)
            yield Label("enter next, then use · esc cancel", id="keys", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Focus the password, or answer once both or neither are filled in."""
        event.stop()
        user, password = (self.query_one(f"#{name}", LineInput) for name in ("user", "password"))
        login = GitCredentials(user.value.strip(), password.value.strip())
        if event.input is user:
            password.focus()
        elif bool(login.user) == bool(login.password):
            self.dismiss(login)
        else:
            (password if login.user else user).focus()
            missing = "password" if login.user else "user"
            self.query_one("#problem", Label).update(f"✕ The {missing} is empty: fill in both, or neither.")

    def action_escape(self) -> None:
        """Cancel."""
        self.dismiss(None)
