"""The `:info` view: the console, its cluster and the user's permissions, updated live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual import work

from k8s.errors import KubeError
from k8s.snapshot import ClusterSnapshot
from tui.feeds.info import AllowedVerbs
from tui.screens.documents.text import TextView
from tui.widgets.text_lines import TextLine

# Some facts change without a snapshot: rate limiting, the server's clock.
REWRITTEN_S = 2.0
# Returns the text, given the user's permissions, or the reason they are unknown.
Describe = Callable[[ClusterSnapshot, AllowedVerbs | None, str], str]
Learn = Callable[[], Awaitable[AllowedVerbs]]


class InfoView(TextView):
    """The text of `:info`; permissions are added when the answer arrives."""

    def __init__(self, describe: Describe, badge: Callable[[ClusterSnapshot], str], learn: Learn) -> None:
        """Show the text of `describe` with the permissions that `learn` fetches, and `badge` in the title."""
        super().__init__("Info", self._learned)
        self._describe = describe
        self._badge = badge
        self._learn = learn
        self._allowed: AllowedVerbs | None = None
        self._why_not = ""

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Fetch the user's permissions."""
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
        """Start the refresh timer."""
        self.set_interval(REWRITTEN_S, self.refresh_view)
        self.watch(self.app, "theme", self.refresh_view, init=False)

    def on_resize(self) -> None:
        """Update the size."""
        self.refresh_view()

    def watch_snapshot(self, before: ClusterSnapshot, now: ClusterSnapshot) -> None:
        """Update the text; in another namespace or cluster, fetch permissions again."""
        self.refresh_view()
        if self.is_shown and (before.context, before.namespace, bool(before.kinds)) != (
            now.context,
            now.namespace,
            bool(now.kinds),
        ):
            self.read()

    def render_view(self) -> None:
        """Write the known facts."""
        self._write(self._described())

    def _write(self, text: str) -> None:
        if self.is_drawable and text != self._text:
            self._text = text
            self._reader.show(list(map(_line, text.splitlines())))
            self.set_line("notice", "")
        self.say()

    def said(self) -> list[str]:
        """Return the cluster's badge for the title."""
        return [self._badge(self.snapshot)]


def _line(text: str) -> TextLine:
    return TextLine(text, 0, 0 if text.startswith(" ") else len(text))
