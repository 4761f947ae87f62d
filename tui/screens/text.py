"""Plain text to read: a job's object as YAML."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from k8s.errors import KubeError
from k8s.text import sanitize
from tui.keys import TEXT, Key
from tui.match import matcher
from tui.screens.view import View, bindings


class TextView(View):
    """Text that was asked for once; `ctrl+r` asks again."""

    AUTO_FOCUS: ClassVar[str] = "VerticalScroll"
    KEYS: ClassVar[tuple[Key, ...]] = TEXT
    BINDINGS: ClassVar[list[BindingType]] = bindings(TEXT)

    def __init__(
        self, heading: str, fetch: Callable[[], Awaitable[str]], *, ascii_only: bool = False
    ) -> None:
        """Show under `heading` what `fetch` returns."""
        super().__init__(ascii_only=ascii_only)
        self._heading = heading
        self._fetch = fetch
        self._lines: list[str] = []

    def compose_body(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll():
            yield Static("Reading…", id="text", markup=False)

    def on_mount(self) -> None:
        """Ask for the text."""
        self.call_after_refresh(self.set_title, self._heading)  # there is no title to write before that
        self._read()

    @work(exclusive=True, group="read")
    async def _read(self) -> None:
        try:
            text = await self._fetch()
        except KubeError as error:
            text = str(error)
        self._lines = [sanitize(line) for line in text.splitlines()]
        self.watch_filter_text(self.filter_text)

    def watch_filter_text(self, text: str) -> None:
        """Show the lines that match."""
        if not self.is_drawable:
            return
        matches = matcher(text)
        lines = [line for line in self._lines if matches is None or matches(line)]
        self.query_one("#text", Static).update("\n".join(lines))

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_retry(self) -> None:
        """Ask again."""
        self._read()
