"""The first pane of home: the nodes and who holds their GPUs, in as many lines as it is given.

Lines are composed anew for every picture, and drawn only where they say something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, get_args

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from k8s.snapshot import ClusterSnapshot, NodeRow
from tui.keys import ACTIONS, STRIP, Key
from tui.text.cells import cell_len
from tui.text.format import Look, Run
from tui.widgets.bindings import bindings
from tui.widgets.home.gpu_strip import GpuStrip, Lines, StripLight


def _of_the_view(key: Key) -> Key:
    """Have the view asked for an action: it knows what is selected."""
    return replace(key, action=f"screen.{key.action}")


class NodeStrip(Widget, can_focus=True):
    """Nodes as cells with a heading; a cursor on one of them while it has the focus."""

    DEFAULT_CSS = """
    NodeStrip { width: 1fr; height: 1; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--cursor",
        *(f"table--{look}" for look in filter(None, get_args(Look))),
    }
    BINDINGS: ClassVar[list[BindingType]] = bindings((*STRIP, *map(_of_the_view, ACTIONS.keys("strip"))))

    class NodeHighlighted(Message):
        """The cursor is on another entry, or the strip got or lost the focus."""

        def can_replace(self, message: Message) -> bool:
            """Let the newest stand for those before it."""
            return isinstance(message, NodeStrip.NodeHighlighted)

    class NodeSelected(Message):
        """The user pressed enter on an entry."""

    def __init__(self, label: str = "") -> None:
        """Show nothing yet; `label` groups nodes, where they do not all fit, by this label of theirs."""
        super().__init__(id="strip")
        self._strip = GpuStrip(label)
        self._node_rows: Sequence[NodeRow] = ()
        self._light = StripLight()
        self._problem = ""
        self._most_lines = 2
        self._lines: Lines = []
        self._cursor: str | None = None
        self._top = 0
        self._styles: dict[Look, Style] = {}

    @property
    def cursor(self) -> str:
        """The node, or the group of nodes, under the cursor; empty where there is none."""
        return self._cursor or ""

    @property
    def is_grouped(self) -> bool:
        """Whether groups of nodes are shown, and not nodes."""
        return self._strip.is_grouped

    @property
    def nodes_under_cursor(self) -> frozenset[str]:
        """The nodes under the cursor, by name."""
        return self._strip.names_under(self._cursor) if self._cursor else frozenset()

    def show(self, snapshot: ClusterSnapshot, light: StripLight, most_lines: int) -> None:
        """Show the nodes of a picture and point at some of them, in `most_lines` lines or fewer."""
        self._node_rows, self._light, self._most_lines = snapshot.nodes, light, most_lines
        missing = snapshot.missing_gpus
        self._problem = missing[0].words if missing else ""
        self._update()

    def on_resize(self) -> None:
        """Lay all out for the new width."""
        self._update()

    def on_focus(self) -> None:
        """Show the cursor."""
        self._update()
        self.post_message(self.NodeHighlighted())

    def on_blur(self) -> None:
        """Hide it."""
        self._update()
        self.post_message(self.NodeHighlighted())

    def _update(self) -> None:
        width = self.size.width
        if not self.display or width < 1:
            return
        strip = self._strip
        strip.lay_out(self._node_rows, self._light, width, self._most_lines - 1)
        keys = [entry.key for entry in strip.entries]
        if self._cursor not in keys:
            self._cursor = keys[0] if keys else None
        shown_rows = min(strip.rows, self._most_lines - 1)
        self._scroll(keys, shown_rows)
        hidden = strip.rows - shown_rows
        cursor = self._cursor if self.has_focus else None
        heading = strip.heading(self._light, self._problem, hidden, width - 4)
        lines: Lines = [[(" 1 ", "running" if self.has_focus else "quiet"), *heading]]
        lines += [strip.row(self._top + row, cursor) for row in range(shown_rows)]
        self._take(lines)

    def _scroll(self, keys: Sequence[str], rows: int) -> None:
        """Keep the cursor in sight."""
        row = keys.index(self._cursor) // self._strip.columns if self._cursor else 0
        self._top = max(0, min(max(self._top, row - rows + 1), row, self._strip.rows - rows))

    def _take(self, lines: Lines) -> None:
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
        """Move the cursor by lines, where there is such a line."""
        columns = self._strip.columns
        if 0 <= self._place // columns + rows < self._strip.rows:
            self._move_to(self._place + rows * columns)

    def action_go(self, place: int) -> None:
        """Move the cursor to an entry by its place; -1 is the last."""
        self._move_to(place if place >= 0 else len(self._strip.entries) + place)

    @property
    def _place(self) -> int:
        keys = [entry.key for entry in self._strip.entries]
        return keys.index(self._cursor) if self._cursor in keys else 0

    def _move_to(self, place: int) -> None:
        entries = self._strip.entries
        if entries:
            key = entries[max(0, min(place, len(entries) - 1))].key
            if key != self._cursor:
                self._cursor = key
                self._update()
                self.post_message(self.NodeHighlighted())

    def action_open(self) -> None:
        """Tell the screen that the entry under the cursor is to be opened."""
        if self._cursor is not None:
            self.post_message(self.NodeSelected())

    def notify_style_update(self) -> None:
        """Draw in the colours of another theme."""
        super().notify_style_update()
        self._styles.clear()

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        base, width = self.rich_style, self.size.width
        runs: Sequence[Run] = self._lines[y] if y < len(self._lines) else ()
        segments = [Segment(text, self._style(look)) for text, look in runs]
        cells = sum(cell_len(text) for text, _ in runs)
        return self._with_cursor(y, Strip(segments, cells).adjust_cell_length(width, base))

    def _with_cursor(self, y: int, line: Strip) -> Strip:
        """Draw the entry under the cursor as a table draws its row, while the keys come here."""
        if not self.has_focus or self._cursor is None or y < 1:
            return line
        row, cells = self._strip.place_of(self._cursor)
        if row - self._top != y - 1:
            return line
        style = self.get_component_rich_style("table--cursor", partial=True)
        before, entry, after = line.divide([cells.start, min(cells.stop, line.cell_length), line.cell_length])
        drawn = Strip(Segment.apply_style(entry, post_style=style), entry.cell_length)
        return Strip.join([before, drawn, after])

    def _style(self, look: Look) -> Style:
        if look not in self._styles:
            above = self.get_component_rich_style(f"table--{look}", partial=True) if look else Style()
            self._styles[look] = self.rich_style + above
        return self._styles[look]
