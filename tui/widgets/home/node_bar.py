"""The node bar of home: nodes and the holders of their GPUs, in a given number of lines.

Lines are composed for every snapshot, but only changed lines are redrawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from rich.segment import Segment
from textual.binding import BindingsMap, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from k8s.snapshot import ClusterSnapshot, NodeRow
from tui.settings.keys import STRIP, Key
from tui.text.cells import cell_len
from tui.text.empty_states import no_cluster
from tui.text.format import Run
from tui.widgets.bindings import bindings
from tui.widgets.home.node_bar_layout import Lines, NodeBarHighlight, NodeBarLayout
from tui.widgets.painted import PaintedWidget


def _of_the_view(key: Key) -> Key:
    return replace(key, action=f"screen.{key.action}")


class NodeBar(PaintedWidget, can_focus=True):
    """Nodes in a grid under a heading; has a cursor while it is focused."""

    DEFAULT_CSS = """
    NodeBar { width: 1fr; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings(STRIP)

    class NodeHighlighted(Message):
        """The cursor moved, or the focus changed."""

        def can_replace(self, message: Message) -> bool:
            """Keep only the newest."""
            return isinstance(message, NodeBar.NodeHighlighted)

    class NodeSelected(Message):
        """The user pressed enter on an entry."""

    def __init__(self, label: str = "", keys: Sequence[Key] = ()) -> None:
        """Create an empty bar.

        Args:
            label: Node label to group by where the nodes do not all fit; empty groups by GPU model.
            keys: Keys of actions on a node.
        """
        super().__init__(id="strip")
        self._bindings = BindingsMap(bindings((*STRIP, *map(_of_the_view, keys))))
        self._layout = NodeBarLayout(label)
        self._node_rows: Sequence[NodeRow] = ()
        self._highlight = NodeBarHighlight()
        self._problem = ""
        self._most_lines = 2
        self._lines: Lines = []
        self._cursor: str | None = None
        self._top = 0

    @property
    def cursor(self) -> str:
        """Node or group under the cursor; empty if there is none."""
        return self._cursor or ""

    @property
    def is_grouped(self) -> bool:
        """True if groups of nodes are shown."""
        return self._layout.is_grouped

    @property
    def nodes_under_cursor(self) -> frozenset[str]:
        """Names of the nodes under the cursor."""
        return self._layout.names_under(self._cursor) if self._cursor else frozenset()

    def show(self, snapshot: ClusterSnapshot, highlight: NodeBarHighlight, most_lines: int) -> None:
        """Show the nodes of a snapshot with highlights, in at most `most_lines` lines."""
        self._node_rows, self._highlight, self._most_lines = snapshot.nodes, highlight, most_lines
        missing = snapshot.missing_gpus
        unread = "" if snapshot.nodes else no_cluster(snapshot)
        if unread:
            progress = snapshot.progress.partition("\n")[0] or "reading…"
            unread = snapshot.trouble or ("no cluster" if snapshot.stale else progress)
        self._problem = missing[0].words if missing else unread
        self._update()

    def on_resize(self) -> None:
        """Lay out for the new width."""
        self._update()

    def on_focus(self) -> None:
        """Show the cursor."""
        self._update()
        self.post_message(self.NodeHighlighted())

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._update()
        self.post_message(self.NodeHighlighted())

    def _update(self) -> None:
        width = self.size.width
        if not self.display or width < 1:
            return
        layout = self._layout
        layout.lay_out(self._node_rows, self._highlight, width, self._most_lines - 1)
        keys = [entry.key for entry in layout.entries]
        if self._cursor not in keys:
            self._cursor = keys[0] if keys else None
        shown_rows = min(layout.rows, self._most_lines - 1)
        self._scroll(keys, shown_rows)
        hidden = layout.rows - shown_rows
        cursor = self._cursor if self.has_focus else None
        heading = layout.heading(self._highlight, self._problem, hidden, width - 4)
        lines: Lines = [[(" 1 ", "running" if self.has_focus else "quiet"), *heading]]
        lines += [layout.row(self._top + row, cursor) for row in range(shown_rows)]
        self._set_lines(lines)

    def _scroll(self, keys: Sequence[str], rows: int) -> None:
        row = keys.index(self._cursor) // self._layout.columns if self._cursor else 0
        self._top = max(0, min(max(self._top, row - rows + 1), row, self._layout.rows - rows))

    def _set_lines(self, lines: Lines) -> None:
        before, self._lines = self._lines, lines
        if len(before) != len(lines):
            self.styles.height = len(lines)
            self.refresh(layout=True)
            return
        for y, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new:
                self.refresh(Region(0, y, self.size.width, 1))

    def action_step(self, entries: int) -> None:
        """Move the cursor by entries."""
        self._move_to(self._place + entries)

    def action_step_rows(self, rows: int) -> None:
        """Move the cursor by lines."""
        columns = self._layout.columns
        if 0 <= self._place // columns + rows < self._layout.rows:
            self._move_to(self._place + rows * columns)

    def action_go(self, place: int) -> None:
        """Move the cursor to an entry; -1 is the last one."""
        self._move_to(place if place >= 0 else len(self._layout.entries) + place)

    @property
    def _place(self) -> int:
        keys = [entry.key for entry in self._layout.entries]
        return keys.index(self._cursor) if self._cursor in keys else 0

    def _move_to(self, place: int) -> None:
        entries = self._layout.entries
        if entries:
            key = entries[max(0, min(place, len(entries) - 1))].key
            if key != self._cursor:
                self._cursor = key
                self._update()
                self.post_message(self.NodeHighlighted())

    def action_open(self) -> None:
        """Select the entry under the cursor."""
        if self._cursor is not None:
            self.post_message(self.NodeSelected())

    def render_line(self, y: int) -> Strip:
        """Render one line."""
        base, width = self.rich_style, self.size.width
        runs: Sequence[Run] = self._lines[y] if y < len(self._lines) else ()
        segments = [Segment(text, base + self.look(f"table--{style}")) for text, style in runs]
        cells = sum(cell_len(text) for text, _ in runs)
        return self._with_cursor(y, Strip(segments, cells).adjust_cell_length(width, base))

    def _with_cursor(self, y: int, line: Strip) -> Strip:
        if not self.has_focus or self._cursor is None or y < 1:
            return line
        row, cells = self._layout.place_of(self._cursor)
        if row - self._top != y - 1:
            return line
        style = self.look("table--cursor-focused")
        before, entry, after = line.divide([cells.start, min(cells.stop, line.cell_length), line.cell_length])
        drawn = Strip(Segment.apply_style(entry, post_style=style), entry.cell_length)
        return Strip.join([before, drawn, after])
