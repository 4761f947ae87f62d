"""Full text of one row, over its view, and the pane in which dialogs scroll their text."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from k8s.text.sanitize import sanitize
from tui.settings.keys import DETAIL, SCROLL
from tui.widgets.bindings import bindings


class ScrollPane(VerticalScroll):
    """Scroll container without animation or delay.

    Textual delays a scroll until after the next refresh and computes it from the old position: ten keys in
    one packet, over SSH or by key repeat, would scroll by one line.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings(SCROLL)

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.scroll_relative(y=lines)

    def action_page(self, pages: float) -> None:
        """Scroll by pages."""
        self.scroll_relative(y=round(pages * max(1, self.size.height - 1)))

    def action_end(self, way: int) -> None:
        """Scroll to the start or the end."""
        if way < 0:
            self.scroll_home()
        else:
            self.scroll_end()

    def scroll_to(self, *args: Any, **options: Any) -> None:
        """Scroll immediately; every scroll method except `scroll_end` ends here."""
        super().scroll_to(*args, **{**options, "animate": False, "immediate": True})

    def scroll_end(self, **options: Any) -> None:
        """Scroll to the end immediately."""
        super().scroll_end(**{**options, "animate": False, "immediate": True})


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
