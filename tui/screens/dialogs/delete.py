"""The confirmation before jobs are deleted, with the propagation policy, and a word to type for many."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label

from tui.jobs.change_plans import PROPAGATIONS, ChangePlan
from tui.keys import DELETE, DIALOG
from tui.widgets.bindings import bindings
from tui.widgets.form.line_input import LineInput
from tui.widgets.scroll_pane import ScrollPane


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
                yield LineInput(compact=True, id="word")
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
