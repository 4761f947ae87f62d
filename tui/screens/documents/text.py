"""Searchable plain text, such as the explanation of a job's state; base of the YAML view."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.widgets import Label

from k8s.logs import targets_of
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.screens.base.view import View
from tui.screens.documents import TEXT_VIEW
from tui.settings.keys import ViewDeclaration
from tui.widgets.log.paint import pattern_of
from tui.widgets.text_lines import TextLine, TextLines

SIDE_CELLS = 16
_ADVISED = re.compile(r"^  .*: \S+ on (?:rank (\d+)|(\S+))$", re.MULTILINE)


class TextView(View):
    """Text that is fetched when shown and on `ctrl+r`; matches of the filter are highlighted."""

    CSS_PATH = "text.tcss"
    AUTO_FOCUS: ClassVar[str] = "TextLines"
    VIEW: ViewDeclaration = TEXT_VIEW
    WRAPS: ClassVar[bool] = True

    def __init__(
        self, heading: str, fetch: Callable[[], Awaitable[str]], *, wraps: bool | None = None
    ) -> None:
        """Show the text that `fetch` returns under `heading`; `wraps` overrides `WRAPS`."""
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
        """Write the title."""
        self.call_after_refresh(self.say)  # there is no title to write before that

    def resume_feeds(self) -> None:
        """Fetch the text."""
        self.read()

    def pause_feeds(self) -> None:
        """Cancel the fetch."""
        for group in ("read", "follow"):
            self.workers.cancel_group(self, group)

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Fetch the text."""
        was_shown = bool(self._text)
        self.set_line("notice", "" if was_shown else "Reading…")
        try:
            self._text = await self._fetch()
        except KubeError as error:
            if was_shown:
                self.set_line("notice", "\n".join(map(sanitize, str(error).split("\n"))))
            else:
                # Here it can be scrolled: all that was tried is more than the notice has room for.
                self._show_lines(str(error), wraps=True)
        else:
            self._show_lines(self._text, wraps=self._reader.wraps if was_shown else self._wraps)

    def _show_lines(self, text: str, *, wraps: bool) -> None:
        self.set_line("notice", "")
        self._reader.wraps = wraps
        self._reader.show([TextLine(line) for line in text.splitlines()])
        self.say()

    def watch_filter_text(self, text: str) -> None:
        """Highlight the matches."""
        if self.is_drawable:
            self._reader.search(pattern_of(text))
            self.say()

    def said(self) -> list[str]:
        """Return the parts of the title about the text."""
        return []

    def say(self) -> None:
        """Write the title."""
        words = " · ".join(filter(None, self.said()))
        found = f"/{sanitize(self.filter_text)}  {self._reader.match_text}" if self.filter_text else ""
        self.set_title("   ".join(filter(None, (self._heading, found, words))))

    def selected_instance(self) -> str:
        """Return the instance named in the advice, as in `l on worker-0`, for the key to open."""
        route = self.route
        is_advice = route is not None and route.action in ("why", "diagnose")
        found = _ADVISED.search(self._text) if is_advice else None
        if found is None or route is None or route.job is None or found[2]:
            return found[2] if found else ""
        job = self.snapshot.job(route.job)
        writers = (
            each.instance
            for each in (targets_of(job) if job is not None else ())
            if each.prints_all_ranks or int(found[1]) in each.ranks
        )
        return next(writers, "")

    def copy_text(self) -> str:
        """Return the plain text."""
        return "\n".join(map(sanitize, self._text.splitlines()))

    def action_scroll(self, rows: int) -> None:
        """Scroll by rows."""
        self._reader.action_scroll(rows)

    def action_page(self, pages: float) -> None:
        """Scroll by pages."""
        self._reader.action_page(pages)

    def action_end(self, way: int) -> None:
        """Scroll to the start or the end."""
        self._reader.action_end(way)

    def action_side(self, way: int) -> None:
        """Scroll sideways."""
        self._reader.scroll_side(way * SIDE_CELLS)

    def action_match(self, way: int) -> None:
        """Scroll to the next or previous match."""
        self._reader.step(way)
        self.say()

    def action_wrap(self) -> None:
        """Toggle wrapping of long lines."""
        self._reader.wraps = not self._reader.wraps

    def refresh_feeds(self) -> None:
        """Fetch the text again."""
        self.read()
