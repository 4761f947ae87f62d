"""A letter over each place that can have the focus: press it to go there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Label

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""Those under the resting fingers first."""


class JumpScreen(ModalScreen[Widget | None]):
    """Shows the letters above what is behind it, and answers with the place that was chosen."""

    DEFAULT_CSS = """
    JumpScreen { background: transparent; layers: letters; }
    JumpScreen Label {
        layer: letters; position: absolute; width: 3; height: 1; text-align: center;
        background: $mark; color: $background; text-style: bold;
    }
    """
    AUTO_FOCUS: ClassVar[str] = ""

    def __init__(self, places: Mapping[str, Widget]) -> None:
        """Offer these places, each under its letter."""
        super().__init__()
        self._places = places

    def compose(self) -> ComposeResult:
        """Put a letter at the top left of each place."""
        for letter, place in self._places.items():
            label = Label(letter, markup=False)
            label.styles.offset = place.region.offset
            yield label

    def on_key(self, event: events.Key) -> None:
        """Go to the letter's place; any other key goes nowhere."""
        event.stop()
        event.prevent_default()
        self.dismiss(self._places.get(event.character or ""))


def places_of(screen: Widget) -> dict[str, Widget]:
    """Return what on a screen can have the focus and can be seen, each under a letter."""
    seen = [
        widget
        for widget in screen.query("*")
        if widget.focusable and widget.region.area and screen.region.overlaps(widget.region)
    ]
    return dict(zip(LETTERS, seen, strict=False))
