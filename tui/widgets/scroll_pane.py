"""A pane of text that scrolls immediately."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll

from tui.settings.keys import SCROLL
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
