"""A pane of Textual's that scrolls at once, so that each key of a burst counts."""

from __future__ import annotations

from typing import Any

from textual.containers import VerticalScroll


class ScrollPane(VerticalScroll):
    """Scrolls when it is told to, not at the next frame and not by an animation.

    Textual puts a scroll off until after the next refresh, and counts from where it is until then:
    ten keys that come in one packet, over SSH or by key repeat, would scroll by one line.
    """

    def scroll_to(self, *args: Any, **options: Any) -> None:
        """Scroll to a place, as every way to scroll does but `scroll_end`; see Textual."""
        super().scroll_to(*args, **{**options, "animate": False, "immediate": True})

    def scroll_end(self, **options: Any) -> None:
        """Scroll to the end; see Textual."""
        super().scroll_end(**{**options, "animate": False, "immediate": True})
