"""The button under the new-job form, and beside it what it is waiting for."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Button, Label

from tui.text.format import plural


class CreateBar(Horizontal):
    """One button; while the server is asked the button says so."""

    def compose(self) -> ComposeResult:
        """Lay out the button and the words."""
        yield Button("Create", id="create", compact=True)
        yield Label("", id="state", markup=False)

    def show(self, doing: str, problems: int) -> None:
        """Say what is going on (`doing`, empty for nothing), or how many fields are wrong."""
        for button in self.query(Button):
            button.label = Text(doing or "Create")
            button.set_class(bool(doing), "-busy")
        words = "asks the server first, then creates"
        if doing:
            words = "you can wait here; nothing typed is lost"
        elif problems:
            words = f"{plural(problems, 'field')} {'is' if problems == 1 else 'are'} not right yet"
        for label in self.query(Label):
            label.update(words, layout=False)
