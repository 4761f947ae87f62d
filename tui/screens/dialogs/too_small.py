"""The card that stands in for every view while the terminal is too small for any."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Label

LEAST = Size(60, 15)
"""Columns and lines that every view can do with."""


def is_too_small(size: Size) -> bool:
    """Tell whether no view can be shown in so few cells."""
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmall(ModalScreen[None]):
    """Says how large the terminal is and should be; what is behind stays as it is."""

    DEFAULT_CSS = """
    TooSmall { align: center middle; background: $background; }
    TooSmall Label { width: auto; max-width: 100%; text-align: center; }
    """

    def compose(self) -> ComposeResult:
        """Lay out the words."""
        yield Label(self._words(self.app.size), markup=False)

    def on_resize(self, event: events.Resize) -> None:
        """Count anew, and go once there is room."""
        if is_too_small(event.size):
            self.query_one(Label).update(self._words(event.size))
        elif self.app.screen is self:
            self.app.pop_screen()

    def _words(self, size: Size) -> str:
        return f"{size.width}x{size.height} is too small.\n{LEAST.width}x{LEAST.height} will do.\n^c leaves"
