"""Full text of one row, over its view."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from k8s.text.sanitize import sanitize
from tui.settings.keys import DETAIL
from tui.widgets.bindings import bindings
from tui.widgets.scroll_pane import ScrollPane


class DetailScreen(ModalScreen[None]):
    """Text that stays until it is closed."""

    CSS_PATH = "detail.tcss"
    AUTO_FOCUS: ClassVar[str] = "ScrollPane"
    BINDINGS: ClassVar[list[BindingType]] = bindings(DETAIL)

    def __init__(self, heading: str, text: str) -> None:
        """Show `text` under `heading`; both may come from a cluster."""
        super().__init__()
        self._heading = sanitize(heading)
        self._text = "\n".join(map(sanitize, text.split("\n")))

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with ScrollPane(classes="pane") as pane:
            pane.border_title = Content(self._heading)
            yield Static(self._text, markup=False)
            yield Label(" · ".join(f"{key.shown} {key.footer}" for key in DETAIL if key.footer), id="keys")

    def action_close(self) -> None:
        """Go back to the view."""
        self.dismiss(None)
