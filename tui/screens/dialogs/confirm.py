"""Dialogs that ask: with two or more buttons, before a delete, for a text or a login."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, NamedTuple

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label

from k8s.text.sanitize import sanitize_lines
from tui.screens.dialogs.detail import ScrollPane
from tui.settings.keys import DELETE, DIALOG, SCROLL
from tui.text.change_plans import PROPAGATIONS, ChangePlan
from tui.widgets.bindings import bindings
from tui.widgets.prompt import LineInput

# Details that are longer may need scrolling.
_MOST_LINES = 10


class ConfirmScreen(ModalScreen[str]):
    """Asks for confirmation; returns the id of the answer: `do`, `cancel`, or one of `answers`."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "Button"
    BINDINGS: ClassVar[list[BindingType]] = bindings(
        (*DIALOG, *(key for key in SCROLL if key.action.startswith("page")))
    )

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

    def action_page(self, pages: float) -> None:
        """Scroll details that do not fit."""
        self.query_one(ScrollPane).action_page(pages)

    def action_escape(self) -> None:
        """Return the answer that changes nothing."""
        self.dismiss(self._escape[0])


class DeleteScreen(ModalScreen[ChangePlan | None]):
    """Asks for confirmation; returns the confirmed plan, or None."""

    CSS_PATH: ClassVar = "confirm.tcss"
    AUTO_FOCUS: ClassVar[str] = "#word, #cancel"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = bindings((*DIALOG, *DELETE))

    def __init__(self, plan: ChangePlan) -> None:
        """Ask for confirmation of `plan`."""
        super().__init__()
        self._plan = plan

    def compose(self) -> ComposeResult:
        """Lay out the question, the jobs, the consequences, and the buttons, Cancel first."""
        word = self._plan.word
        with Vertical(id="dialog"):
            yield Label(self._plan.question, id="question", markup=False)
            yield Label("", id="details", markup=False)
            with ScrollPane(id="reading"):
                yield Label("\n".join(self._plan.names), markup=False)
            yield Label("", id="propagation", markup=False)
            if word:
                yield Label(f'Type "{word}" to confirm:', id="ask", markup=False)
                yield LineInput(id="word")
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Delete", id="do", compact=True, disabled=bool(word))
            enter = "enter delete · tab p propagation" if word else "tab next · enter press · p propagation"
            yield Label(f"{enter} · esc cancel", id="keys", markup=False)

    def on_mount(self) -> None:
        """Show the consequences."""
        self._show_plan()

    def _show_plan(self) -> None:
        propagation = self._plan.propagation
        self.query_one("#details", Label).update("\n".join(self._plan.consequences))
        self.query_one("#propagation", Label).update(f"p  {propagation}: {PROPAGATIONS[propagation]}")

    def action_propagation(self) -> None:
        """Choose the next propagation policy."""
        names = list(PROPAGATIONS)
        index = names.index(self._plan.propagation) + 1
        self._plan = replace(self._plan, propagation=names[index % len(names)])
        self._show_plan()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Enable the button once the word is typed."""
        event.stop()
        self.query_one("#do", Button).disabled = event.value.strip() != self._plan.word

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the plan if the word is right."""
        event.stop()
        if event.value.strip() == self._plan.word:
            self.dismiss(self._plan)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Return the plan, or None for Cancel."""
        event.stop()
        self.dismiss(self._plan if event.button.id == "do" else None)

    def action_escape(self) -> None:
        """Delete nothing."""
        self.dismiss(None)


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
            yield LineInput(id="answer")
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
            yield LineInput(self._user, id="user", placeholder="user")
            yield LineInput(password=True, id="password", placeholder="password or token")
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
