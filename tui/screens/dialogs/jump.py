"""Letters over the focusable widgets: press one to focus its widget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Label

LETTERS = "asdfghjklqwertyuiopzxcvbnm"


class JumpScreen(ModalScreen[Widget | None]):
    """Letters over the screen below; returns the widget to focus, or None."""

    CSS_PATH: ClassVar = "jump.tcss"
    AUTO_FOCUS: ClassVar[str] = ""

    def __init__(self, targets: Mapping[str, Widget]) -> None:
        """Show `targets`, each under its letter."""
        super().__init__()
        self._targets = targets

    def compose(self) -> ComposeResult:
        """Place a letter at the top left of each target."""
        for letter, target in self._targets.items():
            label = Label(letter, markup=False)
            label.styles.offset = target.region.offset
            yield label

    def on_key(self, event: events.Key) -> None:
        """Return the letter's target; any other key closes."""
        event.stop()
        event.prevent_default()
        self.dismiss(self._targets.get(event.character or ""))


def jump_targets(screen: Widget) -> dict[str, Widget]:
    """Return the visible focusable widgets of a screen, each under a letter."""
    visible = [
        widget
        for widget in screen.query("*")
        if widget.focusable and widget.region.area and screen.region.overlaps(widget.region)
    ]
    return dict(zip(LETTERS, visible, strict=False))
