"""A log as it grows: it follows the end, or keeps what the reader looks at where it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.binding import BindingType
from textual.message import Message
from textual.reactive import reactive

from k8s.logs import Feed, Item, LogLine, Mark, Marker, Target
from tui.keys import LOG
from tui.text.format import cell_len, count, plural
from tui.widgets.bindings import bindings
from tui.widgets.log.canvas import WIDEST_NAME, LogCanvas
from tui.widgets.log.file import save
from tui.widgets.log.lines import MAX_ITEMS, LogLines
from tui.widgets.log.text import pattern_of, plain_text

DRAINS_PER_S = 20
"""How often new lines are shown at most."""
SLOW_LINES_PER_DRAIN = 5_000
"""Lines taken in at once where each must be looked into, so that a key is answered meanwhile."""
SIDE_STEP = 8
"""Cells that `h` and `l` move."""


class LogView(LogCanvas, can_focus=True):
    """One log, or several merged. It follows the end until the reader goes up."""

    DEFAULT_CSS = """
    LogView { height: 1fr; width: 1fr; }
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings(LOG)

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

    class Changed(Message):
        """Whether it follows, or which match is current, is not what it was."""

        def __init__(self, view: LogView) -> None:
            super().__init__()
            self.view = view
            """The view it happened in."""

        @property
        def control(self) -> LogView:
            """The view it happened in."""
            return self.view

        def can_replace(self, message: Message) -> bool:
            """Let the newest state stand for those before it."""
            return isinstance(message, LogView.Changed) and message.view is self.view

    def __init__(
        self,
        feed: Feed | None = None,
        *,
        name_of: Callable[[LogLine], str] | None = None,
        save_as: Path | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make a view.

        Args:
            feed: Where lines come from; see `show`.
            name_of: What to write before each line, for several sources at once.
            save_as: Where to save to: the time is added to the name.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self._feed = feed
        self._pending: deque[Item] = deque()
        self._name_of = name_of
        self._save_as = save_as
        self._new = 0
        self._marks = 0
        self._is_cleared = False
        self._is_due = False

    @property
    def feed(self) -> Feed | None:
        """Where lines come from."""
        return self._feed

    @property
    def match_words(self) -> str:
        """Say how many lines match, and which of them is current: `3 of 41`."""
        if not self.filter_text:
            return ""
        total = count(self.lines.match_count)
        if self._current is None or self._current not in self.lines.shown:
            return total
        return f"{count(self.lines.match_number(self._index_of(self._current)))} of {total}"

    def show(
        self,
        feed: Feed | None,
        *,
        name_of: Callable[[LogLine], str] | None = None,
        save_as: Path | None = None,
    ) -> None:
        """Show another log from now on; arguments as for the view."""
        if self._feed is not None:
            self._feed.on_news = None
        self._feed, self._name_of, self._name_width = feed, name_of, 0
        self._save_as = save_as or self._save_as
        self._pending.clear()
        self.lines = LogLines()
        self.lines.set_filter(self.filter_text, hides=self.hides)
        self._top = self._new = 0
        self._current = None
        self._is_cleared = False
        self.follows = True
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

    def append(self, items: list[Item]) -> None:
        """Add items at the end; the reader's place stays where it is."""
        if self._name_of is not None:
            widest = max(
                (cell_len(self._name_of(i)) for i in items[-200:] if isinstance(i, LogLine)), default=0
            )
            if widest > self._name_width:
                self._name_width = min(widest, WIDEST_NAME)
                self._measure()
        rows_before = self.lines.row_count
        gone = self.lines.add(items)
        if self.follows:
            self._go(self._last_top)
            self.refresh()
        else:
            self._new += sum(isinstance(item, LogLine) for item in items)
            top = self._top
            self._top = max(0, top - gone)
            if rows_before < top + self.content_size.height or gone > top:
                self.refresh()
            else:
                self._refresh_thumb()
        self._say()

    def _say(self) -> None:
        """Say below how far from the end the reader is."""
        if self.follows:
            words = ""
        elif self._new:
            words = f" {plural(self._new, 'new line')} below, G "
        else:
            words = " follow is off, G "
        if words != self.border_subtitle:
            self.border_subtitle = words
        self.set_class(not self.follows, "-paused")
        self.post_message(self.Changed(self))

    def watch_hides(self) -> None:
        """Filter anew."""
        self._filter()

    def watch_filter_text(self) -> None:
        """Filter anew."""
        self._pattern = pattern_of(self.filter_text)
        self._filter()

    def _filter(self) -> None:
        anchor = None
        if not self.follows and self.lines.shown:
            anchor = self.lines.shown[min(self.lines.at_row(self._top)[0], len(self.lines.shown) - 1)]
        self.lines.set_filter(self.filter_text, hides=self.hides)
        self._top = self._last_top if anchor is None else self.lines.row_of(self._index_near(anchor))
        self._top = min(self._top, self._last_top)
        self.refresh()
        self._say()

    def _index_of(self, item: Item) -> int:
        return next(index for index, each in enumerate(self.lines.shown) if each is item)

    def _index_near(self, item: Item) -> int:
        """Return the place of an item, or where it would be among those shown."""
        shown = self.lines.shown
        key = (item.stamp_ns, item.seq)
        return next(
            (place for place, each in enumerate(shown) if each is item or (each.stamp_ns, each.seq) >= key),
            max(0, len(shown) - 1),
        )

    def action_move(self, rows: int) -> None:
        """Go up or down; up ends following, down at the end begins it."""
        self._scroll_rows(self._top + rows, is_up=rows < 0)

    def action_page(self, pages: float) -> None:
        """Go up or down by what is on screen."""
        rows = max(1, int((self.content_size.height - 1) * abs(pages)))
        self._scroll_rows(self._top + (rows if pages > 0 else -rows), is_up=pages < 0)

    def action_start(self) -> None:
        """Go to the oldest line."""
        self._scroll_rows(0, is_up=True)

    def action_end(self) -> None:
        """Go to the newest line, and follow."""
        self._scroll_rows(self._last_top, is_up=False)

    def _scroll_rows(self, row: int, *, is_up: bool) -> None:
        self._go(row)
        self.follows = not is_up and self._top >= self._last_top
        if self.follows:
            self._new = 0
        self._say()

    def action_side(self, steps: int) -> None:
        """Go right or left in long lines; the place is kept while lines come."""
        if not self.wraps:
            longest = max((len(plain_text(item)) for item in self._in_view()), default=0)
            room = self.content_size.width - 1 - self._prefix_width_of_lines
            most = max(self._left if steps < 0 else 0, longest - room // 2)
            self._left = max(0, min(self._left + steps * SIDE_STEP, most))
            self.refresh()

    def action_switch(self, name: str) -> None:
        """Turn a way of showing on or off."""
        setattr(self, name, not getattr(self, name))

    def action_match(self, step: int) -> None:
        """Go to the next line that matches the filter, or to the one before."""
        shown = self.lines.shown
        if self._current is not None and any(item is self._current for item in shown):
            start = self._index_of(self._current)
        else:
            start = self.lines.at_row(self._top)[0] - 1 if step > 0 else len(shown)
        found = self.lines.next_match(start, step) if shown else None
        if found is None:
            return
        self._current = shown[found]
        self.follows = False
        self._go(self.lines.row_of(found) - self.content_size.height // 2)
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
        self._top = self._last_top
        self.follows = True
        self._new = 0
        self.refresh()
        self._say()

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
        self.post_message(self.Copy("\n".join(plain_text(item) for item in self._in_view())))

    def action_save(self) -> None:
        """Save everything that is held, as it was written, to a file."""
        if self._save_as is not None:
            self._save(self._save_as, list(self.lines.items), with_names=self._name_of is not None)

    @work(thread=True, group="save")
    def _save(self, path: Path, items: list[Item], *, with_names: bool) -> None:
        tell = self.app.call_from_thread
        try:
            saved, amount = save(path, items, with_names=with_names)
        except OSError as error:
            words = f"{error.strerror or error}: {path}"
            tell(self.notify, words, title="Could not save the log.", severity="error", markup=False)
        else:
            words = f"{plural(amount, 'line')}, bytes as they came: {saved}"
            tell(self.notify, words, title="Saved.", markup=False)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go up."""
        event.stop()
        self.action_move(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go down."""
        event.stop()
        self.action_move(3)
