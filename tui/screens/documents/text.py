"""Plain text to read and to search: why a job waits; the base of the view of YAML."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.widgets import Label

from k8s.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.screens.base.view import View
from tui.widgets.log.text import pattern_of
from tui.widgets.text_lines import TextLine, TextLines

SIDE_CELLS = 16
"""Cells that one key scrolls to the side."""


class TextView(View):
    """Text that is asked for when it is shown, and by `ctrl+r`. What is typed after `/` is marked."""

    CSS_PATH = "text.tcss"
    AUTO_FOCUS: ClassVar[str] = "TextLines"
    NAME: ClassVar[str] = "text"
    WRAPS: ClassVar[bool] = True
    """Whether long lines are broken at first."""

    def __init__(
        self, heading: str, fetch: Callable[[], Awaitable[str]], *, wraps: bool | None = None
    ) -> None:
        """Show under `heading` what `fetch` returns; `wraps` in place of `WRAPS`."""
        super().__init__()
        self._heading = sanitize(heading)
        self._fetch = fetch
        self._text = ""
        self._wraps = self.WRAPS if wraps is None else wraps
        self._reader = TextLines(wraps=self._wraps)

    def compose_body(self) -> ComposeResult:
        """Lay out the text."""
        yield Label("", id="notice", markup=False)
        yield self._reader

    def on_mount(self) -> None:
        """Say what is shown."""
        self.call_after_refresh(self.say)  # there is no title to write before that

    def uncovered(self) -> None:
        """Ask for the text."""
        self.read()

    def covered(self) -> None:
        """Ask no longer."""
        self.workers.cancel_group(self, "read")

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Ask for the text."""
        was_shown = bool(self._text)
        self.put("notice", "" if was_shown else "Reading…")
        try:
            self._text = await self._fetch()
        except KubeError as error:
            if was_shown:
                self.put("notice", "\n".join(map(sanitize, str(error).split("\n"))))
            else:
                # Here it can be scrolled: all that was tried is more than the notice has room for.
                self._show_lines(str(error), wraps=True)
        else:
            self._show_lines(self._text, wraps=self._reader.wraps if was_shown else self._wraps)

    def _show_lines(self, text: str, *, wraps: bool) -> None:
        self.put("notice", "")
        self._reader.wraps = wraps
        self._reader.show([TextLine(line) for line in text.splitlines()])
        self.say()

    def watch_filter_text(self, text: str) -> None:
        """Mark what matches."""
        if self.is_drawable:
            self._reader.search(pattern_of(text))
            self.say()

    def said(self) -> list[str]:
        """Return what the title says of the text, part by part."""
        return []

    def say(self) -> None:
        """Write the title."""
        words = " · ".join(filter(None, self.said()))
        found = f"/{sanitize(self.filter_text)}  {self._reader.match_words}" if self.filter_text else ""
        self.set_title("   ".join(filter(None, (self._heading, found, words))))

    def copy_text(self) -> str:
        """Return the text, clean."""
        return "\n".join(map(sanitize, self._text.splitlines()))

    def action_scroll(self, rows: int) -> None:
        """Scroll by rows."""
        self._reader.scroll_rows(rows)

    def action_page(self, pages: float) -> None:
        """Scroll by what fits on the screen."""
        self._reader.scroll_pages(pages)

    def action_end(self, way: int) -> None:
        """Go to the start, or to the end."""
        self._reader.scroll_rows(way * math.inf)

    def action_side(self, way: int) -> None:
        """Scroll to the side."""
        self._reader.scroll_side(way * SIDE_CELLS)

    def action_match(self, way: int) -> None:
        """Go to the next match, or the one before."""
        self._reader.step(way)
        self.say()

    def action_wrap(self) -> None:
        """Break long lines, or let them go on to the right."""
        self._reader.wraps = not self._reader.wraps

    def refresh_feeds(self) -> None:
        """Ask again."""
        self.read()
