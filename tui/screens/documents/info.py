"""What this console is, what it talks to, and what its user may do there; kept true while it is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual import work

from k8s.errors import KubeError
from k8s.snapshot import ClusterSnapshot
from tui.feeds.info import AllowedVerbs
from tui.screens.documents.text import TextView
from tui.widgets.text_lines import TextLine

REWRITTEN_S = 2.0
"""How often what no snapshot tells is looked at again: the server's wish for silence, its clock."""
Describe = Callable[[ClusterSnapshot, AllowedVerbs | None, str], str]
"""Returns the text, given what is known of the user's rights, and why that is nothing."""
Learn = Callable[[], Awaitable[AllowedVerbs]]
"""Finds out what the user may do."""


class InfoView(TextView):
    """The text of `:info`. What has to be asked for is added when it comes."""

    def __init__(self, describe: Describe, badge: Callable[[ClusterSnapshot], str], learn: Learn) -> None:
        """Show what `describe` says, with what `learn` finds out; `badge` is said in the title."""
        super().__init__("Info", self._learned)
        self._describe = describe
        self._badge = badge
        self._learn = learn
        self._allowed: AllowedVerbs | None = None
        self._why_not = ""

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Ask what the user may do; all else is known."""
        self._write(await self._learned())

    async def _learned(self) -> str:
        try:
            self._allowed, self._why_not = await self._learn(), ""
        except KubeError as error:
            self._why_not = error.why or error.what
        return self._described()

    def _described(self) -> str:
        return self._describe(self.snapshot, self._allowed, self._why_not)

    def on_mount(self) -> None:
        """Look again now and then."""
        self.set_interval(REWRITTEN_S, self.redraw)
        self.watch(self.app, "theme", self.redraw, init=False)

    def on_resize(self) -> None:
        """Tell the new size."""
        self.redraw()

    def watch_snapshot(self, before: ClusterSnapshot, now: ClusterSnapshot) -> None:
        """Write what has changed; in another namespace, or on another cluster, ask again."""
        self.redraw()
        if self.is_shown and (before.context, before.namespace, bool(before.kinds)) != (
            now.context,
            now.namespace,
            bool(now.kinds),
        ):
            self.read()

    def paint(self) -> None:
        """Write what is known."""
        self._write(self._described())

    def _write(self, text: str) -> None:
        if self.is_drawable and text != self._text:
            self._text = text
            self._reader.show(list(map(_line, text.splitlines())))
            self.put("notice", "")
        self.say()

    def said(self) -> list[str]:
        """Say in the title how real the cluster is."""
        return [self._badge(self.snapshot)]


def _line(text: str) -> TextLine:
    """Return a line, drawn apart where it is a heading."""
    return TextLine(text, 0, 0 if text.startswith(" ") else len(text))
