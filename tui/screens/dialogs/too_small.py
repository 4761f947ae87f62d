"""The card over every view while the terminal is too small."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Label

MIN_SIZE = Size(60, 15)


def is_too_small(size: Size) -> bool:
    """Return True if no view fits."""
    return size.width < MIN_SIZE.width or size.height < MIN_SIZE.height


class TooSmall(ModalScreen[None]):
    """Shows the actual and the required size; closes when the terminal is large enough."""

    DEFAULT_CSS = """
    TooSmall { align: center middle; background: $background; }
    TooSmall Label { width: auto; max-width: 100%; text-align: center; }
    """

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Label(self._text(self.app.size), markup=False)

    def on_resize(self, event: events.Resize) -> None:
        """Show the new size, or close once it is large enough."""
        if is_too_small(event.size):
            self.query_one(Label).update(self._text(event.size))
        elif self.app.screen is self:
            self.app.pop_screen()

    def _text(self, size: Size) -> str:
        need = f"{MIN_SIZE.width}x{MIN_SIZE.height}"
        return f"{size.width}x{size.height} is too small.\nAt least {need} is needed.\n^c quits"
