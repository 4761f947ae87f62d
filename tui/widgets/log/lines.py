"""The lines that a log view holds: which of them are shown, and where each begins when wrapped."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from k8s.logs import Item, LogLine, Mark, Marker, Target
from tui.keys import LOG
from tui.text.filter_query import matcher
from tui.widgets.log.text import plain_text, wrap_cuts

MAX_ITEMS = 20_000
"""Lines that one view holds; older ones go, and are still on the cluster."""


_SAVE = next(key.shown for key in LOG if key.id == "log.save")


class LogLines:
    """A bounded list of items, those shown of it, and their rows on screen."""

    def __init__(self, max_items: int = MAX_ITEMS, gone: Mapping[str, int] | None = None) -> None:
        """Hold at most `max_items`; `gone` are lines before the first, by who wrote them."""
        self.items: list[Item] = []
        """Everything held, hidden or not."""
        self.gone: Counter[str] = Counter(gone)
        """Lines before those held that are held no longer, by who wrote them."""
        self.shown: list[Item] = []
        """Who lacks how many earlier lines, then what the filter lets through; markers always are."""
        self.match_count = 0
        """How many lines match the filter."""
        self._max_items = max_items
        self._matches: Callable[[str], bool] | None = None
        self._hides = True
        self._wrap_width = 0
        self._prefix_cells = 0
        self._ends: list[int] = []
        self._base = 0
        self._cleared: list[Item] = []
        self._heads = 0
        self._put_heads()

    @property
    def held(self) -> list[Item]:
        """Return everything held, what was cleared too."""
        return [*self._cleared, *self.items]

    @property
    def row_count(self) -> int:
        """Return the rows that all shown items take."""
        return (self._ends[-1] if self._ends else 0) - self._base if self._wrap_width else len(self.shown)

    def add(self, items: Sequence[Item]) -> int:
        """Add items at the end; return the rows that went at the start."""
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
        """Return those of new items that pass the filter, and count the matches."""
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
        """Let the oldest items go; return by how many rows there are fewer above those that stay."""
        rows = self.row_count
        held, self.match_count = self.match_count, 0
        hidden = len(self._passing(self.items[:amount]))
        self.match_count = held - self.match_count
        self._count_gone([*self._cleared, *self.items[:amount]])
        self._cleared = []
        del self.items[:amount]
        self._cut(self._heads + hidden)
        self._put_heads()
        return rows - self.row_count

    def _count_gone(self, items: Sequence[Item]) -> None:
        self.gone.update([item.writer for item in items if isinstance(item, LogLine)])

    def _cut(self, amount: int) -> None:
        """Take the first shown items away."""
        if amount and self._wrap_width:
            self._base = self._ends[amount - 1]
            del self._ends[:amount]
        del self.shown[:amount]

    def _put_heads(self) -> None:
        """Say before all else how many lines of whom are not held any more."""
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
        """Show what matches; with `hides` false the rest too."""
        self._matches = matcher(typed)
        self._hides = hides
        self._rebuild()

    def set_wrap(self, width: int, prefix_cells: int) -> None:
        """Break lines to `width` cells, `prefix_cells` of them before the text; 0 leaves them long."""
        self._prefix_cells = prefix_cells
        self._wrap_width = width
        self._rebuild_rows()

    def clear(self) -> None:
        """Hide all that is held, for `undo_clear` to bring back."""
        cleared = [*self._cleared, *self.items]
        self._count_gone(cleared[: -self._max_items])
        self._cleared = cleared[-self._max_items :]
        self.items = []
        self._rebuild()

    def undo_clear(self) -> bool:
        """Bring back what was cleared, before what came since; return whether there was anything."""
        if not self._cleared:
            return False
        items = [*self._cleared, *self.items]
        self._count_gone(items[: -self._max_items])
        self.items = items[-self._max_items :]
        self._cleared = []
        self._rebuild()
        return True

    def at_row(self, row: int) -> tuple[int, int]:
        """Return the index of the shown item at a row, and which of its rows that is."""
        if not self._wrap_width:
            return row, 0
        index = bisect_right(self._ends, row + self._base)
        start = self._ends[index - 1] if index else self._base
        return index, row + self._base - start

    def row_of(self, index: int) -> int:
        """Return the first row of a shown item."""
        if not self._wrap_width:
            return index
        return (self._ends[index - 1] if index else self._base) - self._base

    def in_rows(self, rows: range) -> list[Item]:
        """Return the shown items of which any row is among these."""
        if not rows:
            return []
        return self.shown[self.at_row(rows[0])[0] : self.at_row(rows[-1])[0] + 1]

    def index_of(self, item: Item | None) -> int | None:
        """Return the index of an item among those shown."""
        return next((index for index, each in enumerate(self.shown) if each is item), None)

    def index_near(self, item: Item) -> int:
        """Return the index of an item, or where it would be, among those shown."""
        if (index := self.index_of(item)) is not None:
            return index
        key = (item.stamp_ns, item.seq)
        later = (at for at, each in enumerate(self.shown) if (each.stamp_ns, each.seq) >= key)
        return next(later, max(0, len(self.shown) - 1))

    def next_match(self, index: int, step: int) -> int | None:
        """Return the shown item that matches next, going round at the ends."""
        if self._matches is None or not self.shown:
            return None
        amount = len(self.shown)
        for distance in range(1, amount + 1):
            place = (index + step * distance) % amount
            if self._is_match(self.shown[place]):
                return place
        return None

    def match_number(self, index: int) -> int:
        """Return which of the matches a shown item is, counted from 1."""
        return sum(map(self._is_match, self.shown[: index + 1]))

    def _rebuild(self) -> None:
        self.match_count = 0
        self.shown = self._passing(self.items)
        self._rebuild_rows()
        self._put_heads()

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
    words = f"{writer}: {lines} not kept here; {_SAVE} saves all of them"
    return Marker(Mark.DROPPED, words, Target("", ""))
