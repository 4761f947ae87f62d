"""The lines of every view: cluster, GPUs and age of the data above, keys below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.style import Style
from rich.text import Text
from textual.reactive import reactive

from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from tui.settings.keys import Key
from tui.text.format import CellStyle, Run, age, gpu_bar
from tui.widgets.home.node_groups import NodeGroups
from tui.widgets.painted import PaintedWidget

# Looks of the counter's pieces.
_LOOKS: dict[CellStyle, str] = {"failed": "stale", "pending": "simulated"}


class StatusLine(PaintedWidget):
    """Context, namespace and user; held GPUs; connection state or the age of stale data."""

    DEFAULT_CSS = """
    StatusLine { height: 1; }
    """

    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)
    unseen: reactive[tuple[Run, ...]] = reactive(tuple)
    """Counter of notices, in pieces."""

    def __init__(self, *, is_read_only: bool = False) -> None:
        super().__init__()
        self._is_read_only = is_read_only
        self._drawn = Text()
        self._groups = NodeGroups()

    def on_mount(self) -> None:
        """Refresh the age of stale data."""
        self.set_interval(5, self._tick)

    def _tick(self) -> None:
        if self.snapshot.stale or self.snapshot.throttled_until_s:
            self.refresh()

    def watch_snapshot(self) -> None:
        """Redraw only on changes: snapshots arrive ten times a second."""
        if self.is_mounted and self._text() != self._drawn:
            self.refresh()

    def render(self) -> Text:
        """Render the parts that fit; the connection state always does."""
        self._drawn = self._text()
        return self._drawn

    def _text(self) -> Text:
        snapshot = self.snapshot
        width = self.size.width
        right = self._right(snapshot)
        quiet = self._style("quiet")
        if self._is_read_only:
            right = Text.assemble(" read-only ", ("──", quiet), right)
        if self.unseen:
            marks = ((f"{text} ", self._style(_LOOKS.get(style, "live"))) for text, style in self.unseen)
            right = Text.assemble(" ", *marks, ("──", quiet), right)
        bar_width = 16 if width >= 100 else 8
        gpus = Text()
        if snapshot.nodes:
            self._groups.update(snapshot.nodes)
            groups = self._groups.groups.values()
            total, held = sum(each.total for each in groups), sum(each.held for each in groups)
            bar = gpu_bar(held, max(0, total - held), width=bar_width)
            of_all = "?" if "nodes" in snapshot.problems else total
            gpus = Text.assemble((" GPUs ", quiet), bar, f" {held}/{of_all}")
            if snapshot.missing_gpus:
                gpus.append(" partial", self._style("stale"))
            if any(each.simulated for each in groups):
                gpus.append(" simulated", self._style("simulated"))
            gpus.append(" ")
        room = width - gpus.cell_len - right.cell_len - 4
        left = self._left(snapshot)
        left.truncate(max(8, room), overflow="ellipsis")
        fill = max(1, room - left.cell_len + 1)
        return Text.assemble(left, " ", ("─" * fill, quiet), gpus, ("──", quiet), right, no_wrap=True, end="")

    def _left(self, snapshot: ClusterSnapshot) -> Text:
        quiet = self._style("quiet")
        left = Text(" ", no_wrap=True)
        left.append(sanitize(snapshot.context) or "…", self._style("context"))
        left.append(" / ", quiet)
        left.append(sanitize(snapshot.namespace) or "all namespaces")
        if snapshot.user:
            left.append(f" · {sanitize(snapshot.user)}", quiet)
        if snapshot.server_version and self.size.width >= 100:
            left.append(f" · {sanitize(snapshot.server_version)}", quiet)
        return left

    def _right(self, snapshot: ClusterSnapshot) -> Text:
        now_s = self.app._loop.time() if self.app._loop is not None else snapshot.stale_since_s
        busy_s = snapshot.throttled_until_s - now_s
        if busy_s > 0 and snapshot.trouble in ("", "throttled"):
            return Text(f" throttled by the server for {math.ceil(busy_s)}s ", self._style("stale"))
        if snapshot.stale:
            lost = "" if not snapshot.stale_since_s else f", {age(now_s - snapshot.stale_since_s)} old"
            return Text(f" {snapshot.trouble or 'away'}{lost} ", self._style("stale"))
        if not snapshot.is_synced:
            return Text(" reading… ", self._style("quiet"))
        shown = [missing.shown for missing in snapshot.missing_jobs]
        if refused := shown.count("") + ("nodes" in snapshot.problems):
            return Text(f" live, {refused} not readable ", self._style("stale"))
        if shown:
            return Text(f" live, only namespace {sanitize(shown[0])} ", self._style("stale"))
        return Text(" live ", self._style("live"))

    def _style(self, name: str) -> Style:
        return self.look(f"status-line--{name}")


# The last keys are shown however narrow the terminal is.
LAST = 2


class KeyBar(PaintedWidget):
    """One line of keys with short labels."""

    DEFAULT_CSS = """
    KeyBar { height: 1; }
    """

    refused: reactive[Mapping[str, str]] = reactive(dict, layout=False)
    """Refused keys by id, with reasons; drawn dim."""

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self._keys = [key for key in keys if key.footer]

    def show(self, keys: Sequence[Key]) -> None:
        """Replace the keys; those without a label are not shown."""
        shown = [key for key in keys if key.footer]
        if shown != self._keys:
            self._keys = shown
            self.refresh()

    def render(self) -> Text:
        """Render the keys; keys in the middle are dropped first if they do not fit."""
        parts = [self._part(key) for key in self._keys]
        ends = parts[-LAST:]
        kept: list[Text] = []
        room = self.size.width - 1 - sum(part.cell_len for part in ends)
        for part in parts[:-LAST]:
            if part.cell_len > room:
                break
            kept.append(part)
            room -= part.cell_len
        return Text.assemble(" ", *kept, *ends, no_wrap=True, end="")

    def _part(self, key: Key) -> Text:
        is_refused = key.id in self.refused
        looks = ("refused", "refused") if is_refused else ("key", "words")
        key_style, words_style = (self.look(f"key-bar--{look}") for look in looks)
        return Text.assemble((key.shown, key_style), (f" {key.footer}  ", words_style))
