"""A scroll container that scrolls immediately."""

from __future__ import annotations

from typing import Any

from textual.containers import VerticalScroll


class ScrollPane(VerticalScroll):
    """Scroll container without animation or delay.

    Textual delays a scroll until after the next refresh and computes it from the old position: ten keys in
    one packet, over SSH or by key repeat, would scroll by one line.
    """

    def scroll_to(self, *args: Any, **options: Any) -> None:
        """Scroll immediately; every scroll method except `scroll_end` ends here."""
        super().scroll_to(*args, **{**options, "animate": False, "immediate": True})

    def scroll_end(self, **options: Any) -> None:
        """Scroll to the end immediately."""
        super().scroll_end(**{**options, "animate": False, "immediate": True})
