"""What one view shows of a job's logs: the lines of a selection, in the order of their times."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from k8s.logs.lines import Item, LogLine, Mark, Marker, Target, in_time_order

FEED_ITEMS = 50_000
"""What waits at most for a view that does not take; then the oldest goes, and a marker says so."""
WINDOW_S = 0.3
"""How long lines of several sources wait for each other, to be put in order."""


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Which lines: all of them, an instance's, or a rank's."""

    instance: str = ""
    """An instance's short name; empty for all."""
    rank: int | None = None
    """A global rank: its lines, and those of its pod that no rank claims."""

    @property
    def is_merged(self) -> bool:
        """Tell whether lines of several instances may come."""
        return not self.instance and self.rank is None

    def takes(self, item: Item, instance: str) -> bool:
        """Tell whether an item belongs to it, when its rank runs in `instance`."""
        rank = self.rank
        if rank is None:
            return not self.instance or self.instance == item.source.name
        if isinstance(item, LogLine) and item.rank is not None:
            return item.rank == rank
        return item.source.name == instance

    def __str__(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.instance or "all"


EVERYTHING = LogSelection()
"""All lines of a job."""


class Feed:
    """Collects the items of a selection until its view takes them."""

    def __init__(
        self,
        selection: LogSelection,
        instance_of_rank: Callable[[int], str],
        *,
        window_s: float = WINDOW_S,
        max_items: int = FEED_ITEMS,
    ) -> None:
        """Make an empty feed; `JobLogs.open` makes one that is filled.

        Args:
            selection: Which items.
            instance_of_rank: Tells the instance in which a rank runs.
            window_s: How long items of several sources wait for each other.
            max_items: How many wait for the view at most.
        """
        self.selection = selection
        """Which items come."""
        self.on_news: Callable[[], None] | None = None
        """Called when there is something to take, so that nobody needs to look all the time."""
        self._instance_of_rank = instance_of_rank
        self._window_s = window_s if selection.is_merged else 0.0
        self._max_items = max_items
        self._batches: deque[tuple[float, Sequence[Item]]] = deque()
        self._waiting = 0
        self._dropped: Marker | None = None
        self._dropped_items = 0

    def matching(self, source: Target, items: Sequence[Item]) -> Sequence[Item]:
        """Return those of one source's items that match the feed's selection."""
        selection = self.selection
        if selection.is_merged:
            return items
        if selection.rank is None:
            return items if selection.instance == source.name else ()
        instance = self._instance_of_rank(selection.rank)
        return [each for each in items if selection.takes(each, instance)]

    def put(self, source: Target, items: Sequence[Item]) -> None:
        """Add what is new of one source."""
        if matching := self.matching(source, items):
            self.fill(matching)

    def fill(self, items: Sequence[Item]) -> None:
        """Add items that match already."""
        self._batches.append((time.monotonic(), items))
        self._waiting += len(items)
        while self._waiting > self._max_items and len(self._batches) > 1:
            _, lost = self._batches.popleft()
            self._waiting -= len(lost)
            self._dropped_items += len(lost)
            self._dropped = Marker(Mark.DROPPED, "", lost[-1].source, lost[-1].stamp_ns, lost[-1].seq)
        if self.on_news is not None:
            self.on_news()

    @property
    def waiting(self) -> int:
        """Return how many items there are to take, now or when late sources have had their time."""
        return self._waiting

    def take(self, *, everything: bool = False) -> list[Item]:
        """Return what is ready to be shown, oldest first; `everything` does not wait for late sources."""
        due_s = time.monotonic() - (0.0 if everything else self._window_s)
        items: list[Item] = []
        if self._dropped is not None:
            words = f"{self._dropped_items:,} lines came faster than they were shown and were dropped"
            marker = self._dropped
            items.append(Marker(marker.mark, words, marker.source, marker.stamp_ns, marker.seq))
            self._dropped, self._dropped_items = None, 0
        ready = [batch for arrived, batch in self._batches if arrived <= due_s]
        if not ready:
            return items
        if not self.selection.is_merged:
            for batch in ready:
                items.extend(batch)
            self._batches.clear()
            self._waiting = 0
            return items
        newest_ns = max(item.stamp_ns for batch in ready for item in batch)
        waiting = in_time_order([item for _, batch in self._batches for item in batch])
        ready_items = [item for item in waiting if item.stamp_ns <= newest_ns]
        now = self._batches[-1][0]
        self._batches.clear()
        if later := waiting[len(ready_items) :]:
            self._batches.append((now, later))
        self._waiting = len(later)
        return items + ready_items
