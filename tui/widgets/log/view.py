"""A growing log that follows its end, or holds the reader's position.

Rows are scrolled here, see `tui.widgets.viewport`: a log grows twenty times a second.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App
from textual.binding import BindingsMap, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.worker import Worker

from k8s.logs import Item, JobLogs, LineQueue, LogLine, LogSelection, Mark, Marker, Target
from k8s.text.sanitize import file_name
from tui.settings.keys import LOG, SCROLL, Key
from tui.settings.log_file import save_log
from tui.text.cells import wrapped
from tui.text.format import count, plural
from tui.widgets.bindings import bindings
from tui.widgets.log.lines import MAX_ITEMS, LogLines, LogViewport
from tui.widgets.log.paint import ItemPainter, pattern_of, plain_text
from tui.widgets.painted import PaintedWidget
from tui.widgets.viewport import WHEEL_LINES

# Lines are taken so often, and while more wait as soon as other tasks, above all keys, had a turn.
DRAINS_PER_S, BACKLOG_S = 20, 0.002
LINES_PER_DRAIN = 5_000
# Rows in the cache; it outlives scrolling.
MAX_CACHED_ROWS = 500
# Cells per step of `h` and `l`.
SIDE_STEP = 8


class LogView(PaintedWidget, can_focus=True):
    """One log, or several merged. Follows the end until the reader scrolls up."""

    DEFAULT_CSS = """
    LogView { height: 1fr; width: 1fr; }
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings((*SCROLL, *LOG))

    wraps: reactive[bool] = reactive(False)
    shows_times: reactive[bool] = reactive(True)
    hides: reactive[bool] = reactive(True)
    filter_text: reactive[str] = reactive("")
    is_paged: reactive[bool] = reactive(False)
    """Hold the oldest lines, and read on only as the user scrolls down; the rest waits on the server."""

    class Copy(Message):
        """The user wants a text copied."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class _OfView(Message):
        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> LogView:
            return self.view

    class Save(_OfView):
        """The user wants the whole log saved, including lines that the view has dropped."""

    class NewestWanted(_OfView):
        """The user wants the newest lines of a paged log."""

    class Changed(_OfView):
        """The follow state or the current match has changed."""

        def can_replace(self, message: Message) -> bool:
            """Keep only the newest per view."""
            return isinstance(message, LogView.Changed) and message.view is self.view

    def __init__(
        self,
        queue: LineQueue | None = None,
        *,
        name_of: Callable[[LogLine], str] | None = None,
        max_items: int = MAX_ITEMS,
        keys: Sequence[Key] = (*SCROLL, *LOG),
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Create a view.

        Args:
            queue: Source of lines; see `show`.
            name_of: Returns the name prefix of a line, for several sources.
            max_items: Maximum number of held lines.
            keys: Keys to bind.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self._bindings = BindingsMap(bindings(keys))
        self._max_items = max_items
        self._view = LogViewport(max_items, queue.dropped_lines if queue is not None else None)
        self.empty = "No lines yet."
        self._queue = queue
        self._pending: deque[Item] = deque()
        self._granted = 0
        self._painter = ItemPainter(self._component_style)
        self._painter.name_lines(name_of)
        self._marks = 0
        self._is_cleared = False
        self._is_drain_pending = False
        self._base = Style.null()
        self._drawn_thumb = range(0)
        self._drawn: dict[tuple[object, ...], tuple[Item, Strip]] = {}

    @property
    def queue(self) -> LineQueue | None:
        """Source of lines."""
        return self._queue

    @property
    def lines(self) -> LogLines:
        """Held and visible lines."""
        return self._view.lines

    @property
    def follows(self) -> bool:
        """True while new lines scroll into view."""
        return self._view.follows

    @property
    def has_more(self) -> bool:
        """True if lines wait that are not held yet."""
        return bool(self._pending) or (self._queue is not None and self._queue.waiting > 0)

    @property
    def part_text(self) -> str:
        """Return the part of the log that is held: `lines 1 to 20,000, more below`."""
        first = self.lines.gone.total() + 1
        last = first - 1 + sum(isinstance(item, LogLine) for item in self.lines.held)
        lines = f"lines {count(first)} to {count(last)}" if last >= first else "no lines"
        return lines + ", more below" * self.has_more

    @property
    def match_text(self) -> str:
        """Return the position of the current match: `3 of 41`."""
        if not self.filter_text:
            return ""
        total, index = count(self.lines.match_count), self.lines.index_of(self._painter.current)
        return total if index is None else f"{count(self.lines.match_number(index))} of {total}"

    @property
    def names_lines(self) -> bool:
        """True if lines have a name prefix."""
        return self._painter.names_lines

    def show(self, queue: LineQueue | None, *, name_of: Callable[[LogLine], str] | None = None) -> None:
        """Replace the log; arguments as in the constructor."""
        if self._queue is not None:
            self._queue.on_news = None
        self._queue = queue
        self._pending.clear()
        self._granted = 0
        self._view = LogViewport(self._max_items, queue.dropped_lines if queue is not None else None)
        self.lines.set_filter(self.filter_text, hides=self.hides)
        self._painter.name_lines(name_of)
        self._painter.current = None
        self._is_cleared = False
        self._measure()
        if self.is_mounted:
            self._listen()

    def show_placeholder(self, words: str) -> None:
        """Set the text of an empty log."""
        if words != self.empty and not self._is_cleared:
            self.empty = words
            self.refresh()

    def on_mount(self) -> None:
        """Start draining the queue."""
        self._listen()

    def _listen(self) -> None:
        if self._queue is not None:
            self._queue.on_news = self._drain_soon
            self.drain()

    def _drain_soon(self, delay_s: float = 1 / DRAINS_PER_S) -> None:
        if not self._is_drain_pending:
            self._is_drain_pending = True
            self.set_timer(delay_s, self.drain)

    def drain(self) -> None:
        """Append the pending lines."""
        self._is_drain_pending = False
        if (room := self._room) and self._queue is not None and not self._pending:
            self._pending.extend(self._queue.take())
        if room and self._pending and self.size.height:
            amount = min(LINES_PER_DRAIN, room, len(self._pending))
            self._granted = max(0, self._granted - amount)
            self.append([self._pending.popleft() for _ in range(amount)])
        if self.has_more and self._room:
            self._drain_soon(BACKLOG_S if self._pending else 1 / DRAINS_PER_S)

    @property
    def _room(self) -> int:
        """Number of lines that may be appended."""
        if not self.is_paged or self.follows:
            return MAX_ITEMS
        return max(self._granted, self._max_items - len(self.lines.held), 0)

    def watch_is_paged(self) -> None:
        """Read on if more lines may be held now."""
        self._drain_soon()

    def append(self, items: Sequence[Item]) -> None:
        """Append items; the reader's position is kept."""
        if self._painter.widen_names(items):
            self._measure()
        self._fit()
        if self._view.add(items):
            self.refresh()
        else:
            self._refresh_thumb()
        self._update_position()

    def _update_position(self) -> None:
        if self.follows:
            words = ""
        elif self.is_paged:
            words = f" {self.part_text}; G: newest "
        elif self._view.new_lines:
            words = f" {plural(self._view.new_lines, 'new line')} below, G "
        else:
            words = " follow is off, G "
        if words != self.border_subtitle:
            self.border_subtitle = words
        self.set_class(not self.follows, "-paused")
        self.post_message(self.Changed(self))

    def on_resize(self) -> None:
        """Wrap lines at the new width."""
        self._measure()

    def watch_wraps(self) -> None:
        """Wrap or unwrap lines."""
        self._painter.wraps, self._painter.left = self.wraps, 0
        self._measure()

    def watch_shows_times(self) -> None:
        """Adapt the width of the prefix."""
        self._painter.shows_times = self.shows_times
        self._measure()

    def watch_hides(self) -> None:
        """Filter again."""
        self._filter()

    def watch_filter_text(self) -> None:
        """Filter again."""
        self._painter.pattern = pattern_of(self.filter_text)
        self._filter()

    def _fit(self) -> None:
        self._view.resize(self.content_size.height)

    def _measure(self) -> None:
        width = self.content_size.width - 1 if self.wraps else 0
        with self._view.keep_position():
            self.lines.set_wrap(max(0, width), self._painter.prefix_cells)
            self._fit()
        self.refresh()

    def _filter(self) -> None:
        with self._view.keep_position():
            self.lines.set_filter(self.filter_text, hides=self.hides)
        self.refresh()
        self._update_position()

    def action_scroll(self, rows: int) -> None:
        """Scroll by rows; up stops following, down at the end resumes it."""
        self._go(self._view.top + rows, is_up=rows < 0)

    def action_page(self, pages: float) -> None:
        """Scroll by screens."""
        rows = max(1, int((self.content_size.height - 1) * abs(pages)))
        self._go(self._view.top + (rows if pages > 0 else -rows), is_up=pages < 0)

    def action_end(self, way: int) -> None:
        """Scroll to the oldest line, or to the newest one and follow."""
        if way < 0:
            self._go(0, is_up=True)
        elif self.is_paged and self.has_more:
            self.post_message(self.NewestWanted(self))
        else:
            self._go(math.inf, is_up=False)

    def _go(self, row: float, *, is_up: bool) -> None:
        self._fit()
        self._view.scroll_to(row, is_up=is_up)
        if self.is_paged and self.has_more and not is_up:
            self._view.follows = False
            if self.lines.row_count - self._view.top < 3 * self.content_size.height:
                self._granted = self._max_items // 4
                self._drain_soon()
        self.refresh()
        self._update_position()

    def action_side(self, steps: int) -> None:
        """Scroll sideways."""
        if not self.wraps:
            left = self._painter.left
            longest = max((len(plain_text(item)) for item in self._view.items), default=0)
            room = self.content_size.width - 1 - self._painter.prefix_cells
            most = max(left if steps < 0 else 0, longest - room // 2)
            self._painter.left = max(0, min(left + steps * SIDE_STEP, most))
            self.refresh()

    def action_switch(self, name: str) -> None:
        """Toggle an option."""
        setattr(self, name, not getattr(self, name))

    def action_match(self, step: int) -> None:
        """Scroll to the next or previous match."""
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
        self._update_position()

    def action_clear(self) -> None:
        """Clear the view; again restores it."""
        if self._is_cleared:
            self.lines.undo_clear()
        else:
            self.lines.clear()
        self._is_cleared = not self._is_cleared
        self.empty = "Cleared; C brings it back." if self._is_cleared else "No lines yet."
        self.action_end(1)

    def action_mark(self) -> None:
        """Append a mark after the newest line."""
        self._marks += 1
        last = self.lines.items[-1] if self.lines.items else None
        source = last.source if last is not None else Target("", "")
        words = f"mark {self._marks}, {datetime.now():%H:%M:%S}"
        stamp_ns, seq = (last.stamp_ns, last.seq) if last is not None else (0, 0)
        self.append([Marker(Mark.NOTE, words, source, stamp_ns, seq)])

    def action_copy(self) -> None:
        """Copy the visible lines as plain text."""
        self.post_message(self.Copy("\n".join(plain_text(item) for item in self._view.items)))

    def action_save(self) -> None:
        """Save the whole log to a file."""
        self.post_message(self.Save(self))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        event.stop()
        self.action_scroll(-WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        event.stop()
        self.action_scroll(WHEEL_LINES)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render rows, with a single lookup of the base style."""
        self._base = self.rich_style
        self._fit()
        self._drawn_thumb = self._view.thumb
        if len(self._drawn) > MAX_CACHED_ROWS:
            self._drawn.clear()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Render one row; drawn rows are cached."""
        width, base, row = self.content_size.width, self._base, self._view.top + y
        if row >= self.lines.row_count:
            hidden = len(self.lines.items) if self.filter_text else 0
            empty = f"Nothing matches; {plural(hidden, 'line')} hidden" if hidden else self.empty
            lines = wrapped(empty, max(1, width - 1))[row:] if not self.lines.row_count else []
            words = [Segment(f" {text}", base + self._component_style("empty")) for text in lines[:1]]
            return Strip(words).adjust_cell_length(width, base)
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
        """Redraw in the new theme."""
        super().notify_style_update()
        self._drawn.clear()

    def _refresh_thumb(self) -> None:
        if self._view.thumb != self._drawn_thumb:
            width, height = self.content_size
            self.refresh(Region(self.gutter.left + width - 1, self.gutter.top, 1, height))

    def _component_style(self, part: str) -> Style:
        return self.look(f"log-view--{part}")


class LogSaves:
    """Running saves of one view; a log that is being saved is not started again."""

    def __init__(self) -> None:
        self._begun: dict[Path, Worker[None]] = {}

    def begin(
        self, app: App[object], folder: Path, name: str, logs: JobLogs, choice: LogSelection, view: LogView
    ) -> None:
        """Save a whole log, including lines that the view has dropped."""
        path = folder / f"{file_name(f'{name}-{choice}', 200)}.log"
        begun = self._begun.get(path)
        if begun is None or begun.is_finished:
            items = logs.read_full(choice, view.lines.held, view.lines.gone)
            saving = partial(self._save, app, path, items, with_names=view.names_lines)
            self._begun[path] = app.run_worker(saving, group="save")

    async def _save(
        self, app: App[object], path: Path, items: AsyncIterator[Item], *, with_names: bool
    ) -> None:
        tell = partial(app.notify, markup=False)
        tell("Saving the log…")  # always fits on the view's line, where an error replaces it
        try:
            saved = await save_log(path, items, with_names=with_names)
        except OSError as error:
            words = f"{error.strerror or error}: {path.parent}"
            tell(words, title="Could not save the log.", severity="error")
        else:
            notes = "; lines that begin with -- mark what is missing" if saved.markers else ""
            tell(f"Saved {saved.lines:,} line{'s' * (saved.lines != 1)} to {saved.path}{notes}")
