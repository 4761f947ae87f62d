"""The lines held by a log view: filter, wrapping, limits and the visible rows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from k8s.logs import Item, LogLine, Mark, Marker, Target
from tui.settings.keys import LOG
from tui.text.filter_query import matcher
from tui.widgets.log.paint import plain_text, wrap_cuts
from tui.widgets.viewport import Viewport

# Older lines are dropped; they stay on the cluster.
MAX_ITEMS = 20_000


_SAVE = next(key.shown for key in LOG if key.id == "log.save")


class LogLines:
    """Bounded list of items, the filtered ones, and their screen rows."""

    def __init__(self, max_items: int = MAX_ITEMS, gone: Mapping[str, int] | None = None) -> None:
        """Hold at most `max_items`; `gone` counts earlier lines by writer."""
        self.items: list[Item] = []
        self.gone: Counter[str] = Counter(gone)
        self.shown: list[Item] = []
        """Visible items, after one marker per writer of dropped lines."""
        self.match_count = 0
        self._max_items = max_items
        self._matches: Callable[[str], bool] | None = None
        self._hides = True
        self._wrap_width = 0
        self._prefix_cells = 0
        self._ends: list[int] = []
        self._base = 0
        self._cleared: list[Item] = []
        self._heads = 0
        self._place_heads()

    @property
    def held(self) -> list[Item]:
        """Return all held items, including cleared ones."""
        return [*self._cleared, *self.items]

    @property
    def row_count(self) -> int:
        """Return the number of rows of all visible items."""
        return (self._ends[-1] if self._ends else 0) - self._base if self._wrap_width else len(self.shown)

    def add(self, items: Sequence[Item]) -> int:
        """Append items; return the number of rows dropped at the start."""
        self.items.extend(items)
        shown = self._passing(items)
        self.shown.extend(shown)
        if self._wrap_width:
            self._measure(shown)
        excess = len(self.items) - self._max_items
        return self._trim(excess + self._max_items // 16) if excess > 0 else 0

    def _is_match(self, item: Item) -> bool:
        return isinstance(item, LogLine) and self._matches is not None and self._matches(plain_text(item))

    def _passing(self, items: Sequence[Item]) -> list[Item]:
        if self._matches is None:
            return list(items)
        matching = [self._is_match(item) for item in items]
        self.match_count += sum(matching)
        if not self._hides:
            return list(items)
        return [
            item
            for item, is_match in zip(items, matching, strict=True)
            if is_match or not isinstance(item, LogLine)
        ]

    def _trim(self, amount: int) -> int:
        rows = self.row_count
        held, self.match_count = self.match_count, 0
        hidden = len(self._passing(self.items[:amount]))
        self.match_count = held - self.match_count
        self._count_gone([*self._cleared, *self.items[:amount]])
        self._cleared = []
        del self.items[:amount]
        self._cut(self._heads + hidden)
        self._place_heads()
        return rows - self.row_count

    def _count_gone(self, items: Sequence[Item]) -> None:
        self.gone.update([item.writer for item in items if isinstance(item, LogLine)])

    def _cut(self, amount: int) -> None:
        if amount and self._wrap_width:
            self._base = self._ends[amount - 1]
            del self._ends[:amount]
        del self.shown[:amount]

    def _place_heads(self) -> None:
        writers = [] if self._cleared else sorted(self.gone, key=lambda writer: (len(writer), writer))
        heads = [_head(writer, self.gone[writer]) for writer in writers]
        self._heads = len(heads)
        self.shown[:0] = heads
        if heads and self._wrap_width:
            ends, self._ends, base = self._ends, [], self._base
            self._measure(heads)
            rows = self._ends[-1] - base
            self._ends = [end - rows for end in self._ends] + ends
            self._base = base - rows

    def set_filter(self, typed: str, *, hides: bool) -> None:
        """Filter the lines; with `hides` false, only count and mark the matches."""
        self._matches = matcher(typed)
        self._hides = hides
        self._rebuild()

    def set_wrap(self, width: int, prefix_cells: int) -> None:
        """Wrap lines at `width` cells, `prefix_cells` of them before the text; 0 disables wrapping."""
        self._prefix_cells = prefix_cells
        self._wrap_width = width
        self._rebuild_rows()

    def clear(self) -> None:
        """Hide all items until `undo_clear`."""
        cleared = [*self._cleared, *self.items]
        self._count_gone(cleared[: -self._max_items])
        self._cleared = cleared[-self._max_items :]
        self.items = []
        self._rebuild()

    def undo_clear(self) -> bool:
        """Restore cleared items; return False if there are none."""
        if not self._cleared:
            return False
        items = [*self._cleared, *self.items]
        self._count_gone(items[: -self._max_items])
        self.items = items[-self._max_items :]
        self._cleared = []
        self._rebuild()
        return True

    def at_row(self, row: int) -> tuple[int, int]:
        """Return the index of the visible item at a row, and its row number in the item."""
        if not self._wrap_width:
            return row, 0
        index = bisect_right(self._ends, row + self._base)
        start = self._ends[index - 1] if index else self._base
        return index, row + self._base - start

    def row_of(self, index: int) -> int:
        """Return the first row of a visible item."""
        if not self._wrap_width:
            return index
        return (self._ends[index - 1] if index else self._base) - self._base

    def in_rows(self, rows: range) -> list[Item]:
        """Return the visible items in a range of rows."""
        if not rows:
            return []
        return self.shown[self.at_row(rows[0])[0] : self.at_row(rows[-1])[0] + 1]

    def index_of(self, item: Item | None) -> int | None:
        """Return the index of a visible item; None if hidden."""
        return next((index for index, each in enumerate(self.shown) if each is item), None)

    def index_near(self, item: Item) -> int:
        """Return the index of an item, or of the next visible one."""
        if (index := self.index_of(item)) is not None:
            return index
        key = (item.stamp_ns, item.seq)
        later = (at for at, each in enumerate(self.shown) if (each.stamp_ns, each.seq) >= key)
        return next(later, max(0, len(self.shown) - 1))

    def next_match(self, index: int, step: int) -> int | None:
        """Return the next matching item, wrapping around; None without matches."""
        if self._matches is None or not self.shown:
            return None
        amount = len(self.shown)
        for distance in range(1, amount + 1):
            place = (index + step * distance) % amount
            if self._is_match(self.shown[place]):
                return place
        return None

    def match_number(self, index: int) -> int:
        """Return the number of a match, counting from 1."""
        return sum(map(self._is_match, self.shown[: index + 1]))

    def _rebuild(self) -> None:
        self.match_count = 0
        self.shown = self._passing(self.items)
        self._rebuild_rows()
        self._place_heads()

    def _rebuild_rows(self) -> None:
        self._ends, self._base = [], 0
        if self._wrap_width:
            self._measure(self.shown)

    def _measure(self, items: Sequence[Item]) -> None:
        end = self._ends[-1] if self._ends else self._base
        for item in items:
            text = plain_text(item)
            prefix_cells = self._prefix_cells if isinstance(item, LogLine) else 0
            width = max(8, self._wrap_width - prefix_cells)
            if text.isascii():
                end += max(1, -(-len(text) // width))
            else:
                end += len(wrap_cuts(text, width))
            self._ends.append(end)


def _head(writer: str, amount: int) -> Marker:
    lines = "1 earlier line is" if amount == 1 else f"{amount:,} earlier lines are"
    words = f"{writer}: {lines} dropped here; {_SAVE} saves all of them"
    return Marker(Mark.DROPPED, words, Target("", ""))


class LogViewport:
    """Follows the end until the reader scrolls up; then the visible rows stay while lines come and go."""

    def __init__(self, max_items: int, gone: Mapping[str, int] | None = None) -> None:
        """Follow the end of at most `max_items` lines; `gone` counts earlier lines by writer."""
        self.lines = LogLines(max_items, gone)
        self.follows = True
        self.new_lines = 0
        self._rows = Viewport()

    @property
    def top(self) -> int:
        """First visible row."""
        return self._rows.top

    @property
    def items(self) -> list[Item]:
        """Visible items, also partly visible ones."""
        return self.lines.in_rows(self._rows.rows)

    @property
    def thumb(self) -> range:
        """Lines next to the scroll thumb; empty while following."""
        return range(0) if self.follows else self._rows.thumb

    def resize(self, height: int) -> None:
        """Set the height, and scroll back if there are too few rows."""
        self._rows.resize(height, self.lines.row_count)

    def add(self, items: Sequence[Item]) -> bool:
        """Append items; return True if the visible rows have changed."""
        rows, top, rows_before = self._rows, self._rows.top, self.lines.row_count
        gone = self.lines.add(items)
        rows.top = max(0, top - gone)
        rows.row_count = self.lines.row_count
        if self.follows:
            rows.scroll_to(math.inf)
            return True
        self.new_lines += sum(isinstance(item, LogLine) for item in items)
        return rows_before < top + rows.height or gone > top

    def scroll_to(self, row: float, *, is_up: bool) -> None:
        """Scroll to a row; up stops following, down at the end resumes it."""
        self._rows.scroll_to(row)
        self.follows = not is_up and self._rows.is_at_end
        if self.follows:
            self.new_lines = 0

    def scroll_to_item(self, index: int) -> None:
        """Center a visible item and stop following."""
        self.follows = False
        self._rows.scroll_to(self.lines.row_of(index) - self._rows.height // 2)

    @contextmanager
    def keep_position(self) -> Iterator[None]:
        """Filter or wrap lines while the first visible item, or the next one, stays at the top."""
        shown = self.lines.shown
        anchor = None
        if shown and not self.follows:
            anchor = shown[min(self.lines.at_row(self.top)[0], len(shown) - 1)]
        yield
        self.resize(self._rows.height)
        index = None if anchor is None else self.lines.index_near(anchor)
        self._rows.scroll_to(math.inf if index is None else self.lines.row_of(index))
