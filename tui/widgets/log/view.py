"""A log as it grows: it follows the end, or keeps what the reader looks at where it is.

Rows are scrolled here, see `tui.widgets.viewport`: a log grows twenty times a second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from k8s.logs import Feed, Item, LogLine, Mark, Marker, Target
from tui.keys import LOG
from tui.text.format import count, plural
from tui.widgets.bindings import bindings
from tui.widgets.log.lines import MAX_ITEMS, LogLines
from tui.widgets.log.paint import PARTS, ItemPainter
from tui.widgets.log.text import pattern_of, plain_text
from tui.widgets.log.viewport import LogViewport
from tui.widgets.viewport import WHEEL_LINES

DRAINS_PER_S = 20
"""How often new lines are shown at most."""
SLOW_LINES_PER_DRAIN = 5_000
"""Lines taken in at once where each must be looked into, so that a key is answered meanwhile."""
ROWS_KEPT = 500
"""Rows that are drawn only once, however far they scroll."""
SIDE_STEP = 8
"""Cells that `h` and `l` move."""


class LogView(Widget, can_focus=True):
    """One log, or several merged. It follows the end until the reader goes up."""

    DEFAULT_CSS = """
    LogView { height: 1fr; width: 1fr; }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"log-view--{part}" for part in PARTS}
    BINDINGS: ClassVar[list[BindingType]] = bindings(LOG)

    wraps: reactive[bool] = reactive(False)
    """Long lines are broken instead of going on to the right."""
    shows_times: reactive[bool] = reactive(True)
    """Each line begins with its time of writing."""
    hides: reactive[bool] = reactive(True)
    """What the filter does not match is not shown."""
    filter_text: reactive[str] = reactive("")
    """What is looked for, as `/` takes it."""

    class Copy(Message):
        """A text is to be copied to wherever it can be pasted from."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text
            """What to copy: lines without anything a terminal obeys."""

    class _OfView(Message):
        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view
            """The view it comes from."""

        @property
        def control(self) -> LogView:
            """The view it comes from."""
            return self.view

    class Save(_OfView):
        """All of the log is to be saved, also what the view does not hold."""

    class Changed(_OfView):
        """Whether it follows, or which match is current, is not what it was."""

        def can_replace(self, message: Message) -> bool:
            """Let the newest state stand for those before it."""
            return isinstance(message, LogView.Changed) and message.view is self.view

    def __init__(
        self,
        feed: Feed | None = None,
        *,
        name_of: Callable[[LogLine], str] | None = None,
        max_items: int = MAX_ITEMS,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make a view.

        Args:
            feed: Where lines come from; see `show`.
            name_of: What to write before each line, for several sources at once.
            max_items: How many lines are held.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self._max_items = max_items
        self._view = LogViewport(max_items, feed.not_kept if feed is not None else None)
        self.empty = "No lines yet."
        """What is said where there is none."""
        self._feed = feed
        self._pending: deque[Item] = deque()
        self._painter = ItemPainter(self._component_style)
        self._painter.name_lines(name_of)
        self._marks = 0
        self._is_cleared = False
        self._is_due = False
        self._base = Style.null()
        self._drawn_thumb = range(0)
        self._drawn: dict[tuple[object, ...], tuple[Item, Strip]] = {}

    @property
    def feed(self) -> Feed | None:
        """Where lines come from."""
        return self._feed

    @property
    def lines(self) -> LogLines:
        """What is held, and what of it is shown."""
        return self._view.lines

    @property
    def follows(self) -> bool:
        """Whether new lines come into sight by themselves."""
        return self._view.follows

    @property
    def match_words(self) -> str:
        """Say how many lines match, and which of them is current: `3 of 41`."""
        if not self.filter_text:
            return ""
        total, index = count(self.lines.match_count), self.lines.index_of(self._painter.current)
        return total if index is None else f"{count(self.lines.match_number(index))} of {total}"

    @property
    def names_lines(self) -> bool:
        """Whether it is written whose each line is."""
        return self._painter.names_lines

    def show(self, feed: Feed | None, *, name_of: Callable[[LogLine], str] | None = None) -> None:
        """Show another log from now on; arguments as for the view."""
        if self._feed is not None:
            self._feed.on_news = None
        self._feed = feed
        self._pending.clear()
        self._view = LogViewport(self._max_items, feed.not_kept if feed is not None else None)
        self.lines.set_filter(self.filter_text, hides=self.hides)
        self._painter.name_lines(name_of)
        self._painter.current = None
        self._is_cleared = False
        self._measure()
        if self.is_mounted:
            self._listen()

    def say_when_empty(self, words: str) -> None:
        """Say this where there is no line."""
        if words != self.empty and not self._is_cleared:
            self.empty = words
            self.refresh()

    def on_mount(self) -> None:
        """Take what there is, and what will come."""
        self._listen()

    def _listen(self) -> None:
        if self._feed is not None:
            self._feed.on_news = self._drain_soon
            self.drain()

    def _drain_soon(self) -> None:
        """Take in what is new in a moment, with all that comes until then."""
        if not self._is_due:
            self._is_due = True
            self.set_timer(1 / DRAINS_PER_S, self.drain)

    def drain(self) -> None:
        """Take in what is new."""
        self._is_due = False
        if self._feed is not None and not self._pending:
            self._pending.extend(self._feed.take())
        if self._pending and self.size.height:
            is_slow = self.wraps or bool(self.filter_text)
            amount = min(SLOW_LINES_PER_DRAIN if is_slow else MAX_ITEMS, len(self._pending))
            self.append([self._pending.popleft() for _ in range(amount)])
        if self._pending or (self._feed is not None and self._feed.waiting):
            self._drain_soon()

    def append(self, items: Sequence[Item]) -> None:
        """Add items at the end; the reader's place stays where it is."""
        if self._painter.widen_names(items):
            self._measure()
        self._fit()
        if self._view.add(items):
            self.refresh()
        else:
            self._refresh_thumb()
        self._say()

    def _say(self) -> None:
        """Say below how far from the end the reader is."""
        if self.follows:
            words = ""
        elif self._view.new_lines:
            words = f" {plural(self._view.new_lines, 'new line')} below, G "
        else:
            words = " follow is off, G "
        if words != self.border_subtitle:
            self.border_subtitle = words
        self.set_class(not self.follows, "-paused")
        self.post_message(self.Changed(self))

    def on_resize(self) -> None:
        """Break lines anew, and keep what is looked at in sight."""
        self._measure()

    def watch_wraps(self) -> None:
        """Break lines, or do not."""
        self._painter.wraps, self._painter.left = self.wraps, 0
        self._measure()

    def watch_shows_times(self) -> None:
        """Make room for the times, or win it back."""
        self._painter.shows_times = self.shows_times
        self._measure()

    def watch_hides(self) -> None:
        """Filter anew."""
        self._filter()

    def watch_filter_text(self) -> None:
        """Filter anew."""
        self._painter.pattern = pattern_of(self.filter_text)
        self._filter()

    def _fit(self) -> None:
        """Scroll no further than there are rows."""
        self._view.resize(self.content_size.height)

    def _measure(self) -> None:
        """Break lines to the width there is now; the first line in sight stays the first."""
        width = self.content_size.width - 1 if self.wraps else 0
        with self._view.keep_place():
            self.lines.set_wrap(max(0, width), self._painter.prefix_cells)
            self._fit()
        self.refresh()

    def _filter(self) -> None:
        with self._view.keep_place():
            self.lines.set_filter(self.filter_text, hides=self.hides)
        self.refresh()
        self._say()

    def action_move(self, rows: int) -> None:
        """Go up or down; up ends following, down at the end begins it."""
        self._go(self._view.top + rows, is_up=rows < 0)

    def action_page(self, pages: float) -> None:
        """Go up or down by what is on screen."""
        rows = max(1, int((self.content_size.height - 1) * abs(pages)))
        self._go(self._view.top + (rows if pages > 0 else -rows), is_up=pages < 0)

    def action_start(self) -> None:
        """Go to the oldest line."""
        self._go(0, is_up=True)

    def action_end(self) -> None:
        """Go to the newest line, and follow."""
        self._go(math.inf, is_up=False)

    def _go(self, row: float, *, is_up: bool) -> None:
        self._fit()
        self._view.scroll_to(row, is_up=is_up)
        self.refresh()
        self._say()

    def action_side(self, steps: int) -> None:
        """Go right or left in long lines; the place is kept while lines come."""
        if not self.wraps:
            left = self._painter.left
            longest = max((len(plain_text(item)) for item in self._view.items), default=0)
            room = self.content_size.width - 1 - self._painter.prefix_cells
            most = max(left if steps < 0 else 0, longest - room // 2)
            self._painter.left = max(0, min(left + steps * SIDE_STEP, most))
            self.refresh()

    def action_switch(self, name: str) -> None:
        """Turn a way of showing on or off."""
        setattr(self, name, not getattr(self, name))

    def action_match(self, step: int) -> None:
        """Go to the next line that matches the filter, or to the one before."""
        shown = self.lines.shown
        start = self.lines.index_of(self._painter.current)
        if start is None:
            start = self.lines.at_row(self._view.top)[0] - 1 if step > 0 else len(shown)
        found = self.lines.next_match(start, step)
        if found is None:
            return
        self._painter.current = shown[found]
        self._view.scroll_to_item(found)
        self.refresh()
        self._say()

    def action_clear(self) -> None:
        """Hide what there is; again brings it back."""
        if self._is_cleared:
            self.lines.undo_clear()
        else:
            self.lines.clear()
        self._is_cleared = not self._is_cleared
        self.empty = "Cleared; C brings it back." if self._is_cleared else "No lines yet."
        self.action_end()

    def action_mark(self) -> None:
        """Draw a line at the end, to see what comes after."""
        self._marks += 1
        last = self.lines.items[-1] if self.lines.items else None
        source = last.source if last is not None else Target("", "")
        words = f"mark {self._marks}, {datetime.now():%H:%M:%S}"
        stamp_ns, seq = (last.stamp_ns, last.seq) if last is not None else (0, 0)
        self.append([Marker(Mark.NOTE, words, source, stamp_ns, seq)])

    def action_copy(self) -> None:
        """Have the lines on screen copied as clean text."""
        self.post_message(self.Copy("\n".join(plain_text(item) for item in self._view.items)))

    def action_save(self) -> None:
        """Have all of the log saved to a file, as it was written."""
        self.post_message(self.Save(self))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go up."""
        event.stop()
        self.action_move(-WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go down."""
        event.stop()
        self.action_move(WHEEL_LINES)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw rows; what they have in common is looked up once, and those drawn before are kept."""
        self._base = self.rich_style
        self._fit()
        self._drawn_thumb = self._view.thumb
        if len(self._drawn) > ROWS_KEPT:
            self._drawn.clear()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Draw the row of a line that is scrolled to `y`."""
        width, base, row = self.content_size.width, self._base, self._view.top + y
        if row >= self.lines.row_count:
            words = Segment(f" {self.empty}", base + self._component_style("empty"))
            return Strip([words] if row == 0 else []).adjust_cell_length(width, base)
        index, part = self.lines.at_row(row)
        item = self.lines.shown[index]
        has_thumb = y in self._view.thumb
        key = id(item), part, has_thumb, width, base, *self._painter.settings_for(item)
        if key not in self._drawn:
            segments = self._painter.draw(item, part, width - 1, base)
            thumb = Segment("┃" if has_thumb else " ", base + self._component_style("thumb"))
            self._drawn[key] = item, Strip([*Strip(segments).adjust_cell_length(width - 1, base), thumb])
        return self._drawn[key][1]

    def notify_style_update(self) -> None:
        """Draw all anew in the colours of another theme."""
        super().notify_style_update()
        self._drawn.clear()

    def _refresh_thumb(self) -> None:
        """Draw the scroll thumb again where its place has changed, and nothing else."""
        if self._view.thumb != self._drawn_thumb:
            width, height = self.content_size
            self.refresh(Region(self.gutter.left + width - 1, self.gutter.top, 1, height))

    def _component_style(self, part: str) -> Style:
        return self.get_component_rich_style(f"log-view--{part}", partial=True)
