"""What one view shows of a job's logs: the lines of a selection, in the order of their times."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from k8s.logs.lines import Item, LogLine, Mark, Marker, Target, in_time_order

FEED_ITEMS = 50_000
"""New lines that wait at most for a view that does not take; then the oldest go, and markers say so."""
HISTORY_ITEMS = 20_000
"""Once so many wait, what was written before it was asked for is read no further."""
WINDOW_S = 0.3
"""How long lines of several sources wait for each other, to be put in order."""


_Key = tuple[str, str, str]


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


class _Batch(NamedTuple):
    arrived_s: float
    items: Sequence[Item]
    is_history: bool


class _Progress(NamedTuple):
    """How far the history of one source has been read."""

    reached_ns: int
    at_s: float


class Feed:
    """Collects the items of a selection until its view takes them.

    History, which waits on the server as well as here, is never dropped: its readers wait in
    `until_room`, and where several are merged, each waits for those that are further behind.
    """

    def __init__(
        self,
        selection: LogSelection,
        instance_of_rank: Callable[[int], str],
        *,
        window_s: float = WINDOW_S,
        max_items: int = FEED_ITEMS,
        max_history: int = HISTORY_ITEMS,
        not_kept: Mapping[str, int] | None = None,
    ) -> None:
        """Make an empty feed; `JobLogs.open` makes one that is filled.

        Args:
            selection: Which items.
            instance_of_rank: Tells the instance in which a rank runs.
            window_s: How long items of several sources wait for each other.
            max_items: How many that were just written wait for the view at most.
            max_history: How many wait when the readers of history wait too.
            not_kept: How many lines before the first one here are kept no longer, by who wrote them.
        """
        self.selection = selection
        """Which items come."""
        self.on_news: Callable[[], None] | None = None
        """Called when there is something to take, so that nobody needs to look all the time."""
        self.not_kept: Mapping[str, int] = {} if not_kept is None else not_kept
        """How many lines before the first one here are kept no longer, by who wrote them."""
        self._instance_of_rank = instance_of_rank
        self._window_s = window_s if selection.is_merged else 0.0
        self._max_items = max_items
        self._max_history = max_history
        self._batches: deque[_Batch] = deque()
        self._waiting = 0
        self._untaken = 0
        self._live = 0
        self._dropped: Counter[str] = Counter()
        self._dropped_ns = 0
        self._progress: dict[_Key, _Progress] = {}
        self._held: set[_Key] = set()
        self._taken = asyncio.Event()

    def matching(self, source: Target, items: Sequence[Item]) -> Sequence[Item]:
        """Return those of one source's items that match the feed's selection."""
        selection = self.selection
        if selection.is_merged:
            return items
        if selection.rank is None:
            return items if selection.instance == source.name else ()
        instance = self._instance_of_rank(selection.rank)
        return [each for each in items if selection.takes(each, instance)]

    def put(self, source: Target, items: Sequence[Item], *, is_history: bool = False) -> None:
        """Add what is new of one source; history is what was written before it was asked for."""
        matching = self.matching(source, items)
        if not is_history:
            self._progress.pop(source.key, None)
        elif matching:
            self.expect(source, items[-1].stamp_ns)
        if matching:
            self.fill(matching, is_history=is_history)

    def expect(self, source: Target, reached_ns: int) -> None:
        """Let others wait for a source whose history has been read up to that time."""
        self._progress[source.key] = _Progress(reached_ns, time.monotonic())

    def fill(self, items: Sequence[Item], *, is_history: bool = False) -> None:
        """Add items that match already."""
        self._batches.append(_Batch(time.monotonic(), items, is_history))
        self._waiting += len(items)
        self._untaken += len(items)
        if not is_history:
            self._live += len(items)
            if self._live > self._max_items:
                self._drop_oldest(keep=self._batches[-1])
        if self.on_news is not None:
            self.on_news()

    def _drop_oldest(self, keep: _Batch) -> None:
        """Let lines go that were just written, the oldest first; what happened to the stream stays."""
        kept: deque[_Batch] = deque()
        for batch in self._batches:
            if batch.is_history or batch is keep or self._live <= self._max_items:
                kept.append(batch)
                continue
            lost = [item for item in batch.items if isinstance(item, LogLine)]
            self._dropped.update(line.writer for line in lost)
            self._dropped_ns = batch.items[-1].stamp_ns
            self._live -= len(batch.items)
            self._waiting -= len(lost)
            if markers := [item for item in batch.items if isinstance(item, Marker)]:
                kept.append(_Batch(batch.arrived_s, markers, True))
        self._batches = kept

    @property
    def waiting(self) -> int:
        """Return how many items there are to take, now or when late sources have had their time."""
        return self._waiting

    async def until_room(self, source: Target) -> None:
        """Wait while the view has enough to take: history of `source` is read no faster than it is shown."""
        key = source.key
        try:
            while self._must_wait(key):
                self._held.add(key)
                self._taken.clear()
                await self._taken.wait()
        finally:
            if key in self._held:
                self._held.discard(key)
                if (reached := self._progress.get(key)) is not None:
                    self._progress[key] = _Progress(reached.reached_ns, time.monotonic())

    def _must_wait(self, key: _Key) -> bool:
        if self._waiting < self._max_history or (mine := self._progress.get(key)) is None:
            return False
        if not self.selection.is_merged or mine.reached_ns > self._furthest_behind_ns():
            return True
        # The others wait for this one, so it goes on, as long as the view takes what comes.
        return self._untaken >= self._max_history

    def _furthest_behind_ns(self) -> float:
        """Return up to when all histories have been read; a source that has become silent does not count."""
        since_s = time.monotonic() - self._window_s
        return min(
            (at.reached_ns for key, at in self._progress.items() if key in self._held or at.at_s >= since_s),
            default=math.inf,
        )

    def close(self) -> None:
        """Take no more, and let go of those who wait for room."""
        self._batches.clear()
        self._waiting = self._live = 0
        self._progress.clear()
        self._taken.set()

    def take(self, *, everything: bool = False) -> list[Item]:
        """Return what is ready to be shown, oldest first; `everything` does not wait for late sources."""
        items: list[Item] = [
            Marker(
                Mark.DROPPED,
                f"{amount:,} lines of {writer} came faster than they were shown and were dropped",
                Target("", ""),
                self._dropped_ns,
            )
            for writer, amount in self._dropped.items()
        ]
        self._dropped.clear()
        items.extend(self._take_ready(everything=everything))
        self._taken.set()
        return items

    def _take_ready(self, *, everything: bool) -> list[Item]:
        due_s = time.monotonic() - (0.0 if everything else self._window_s)
        ready = [batch for batch in self._batches if batch.arrived_s <= due_s]
        if not ready:
            return []
        self._untaken = 0
        until_ns = math.inf
        if self.selection.is_merged and not everything:
            until_ns = max(item.stamp_ns for batch in ready for item in batch.items)
            until_ns = min(until_ns, self._furthest_behind_ns())
        items = [item for batch in self._batches for item in batch.items]
        if self.selection.is_merged:
            items = in_time_order(items)
        later = [item for item in items if item.stamp_ns > until_ns]
        arrived_s = self._batches[-1].arrived_s
        self._batches.clear()
        self._waiting, self._live = len(later), 0
        if later:
            self._batches.append(_Batch(arrived_s, later, True))
            del items[-len(later) :]
        return items
