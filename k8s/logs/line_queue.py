"""The lines of one view of a job's logs, in the order of their times."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import msgspec

from k8s.logs.lines import Item, LogLine, Mark, Marker, Target, in_time_order
from k8s.snapshot import Job

# New lines that may wait for a view; beyond that the oldest are dropped, and a marker reports it.
QUEUE_ITEMS = 50_000
# When this many wait, readers of history pause.
HISTORY_ITEMS = 20_000
# Time that lines of several sources wait for each other so that they can be sorted.
WINDOW_S = 0.3
# Logs streamed at once; the others are polled every few seconds, and lose nothing either.
MAX_STREAMS = 32

_Timed: TypeAlias = tuple[list[Any], list[Any]]


async def by_time(
    sources: Sequence[AsyncGenerator[list[Item], None]], timed: Callable[[list[Item]], _Timed] | None = None
) -> AsyncGenerator[list[Any], None]:
    """Merge finite logs, holding one batch of each in memory; more than `MAX_STREAMS` are concatenated.

    `timed` returns times in order, and what of a batch to merge by them; by default its items.
    """
    if len(sources) > MAX_STREAMS:
        text = f"{len(sources)} logs are too many to be merged by time; they follow one after the other"
        yield [Marker(Mark.NOTE, text, Target("", ""))]
        for source in sources:
            async with aclosing(source) as batches:
                async for batch in batches:
                    yield timed(batch)[1] if timed else batch
        return
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(each)) for each in sources]
        held: list[_Timed] = [([], []) for _ in streams]
        while True:
            empty = [place for place, (_, rows) in enumerate(held) if not rows]
            firsts = await asyncio.gather(*(anext(streams[place], None) for place in empty))
            for place, read in reversed(list(zip(empty, firsts, strict=True))):
                if read is None:
                    del streams[place], held[place]
                else:
                    held[place] = (
                        timed(read) if timed else (ordered([item.stamp_ns for item in read]), [*read])
                    )
            if not streams:
                return
            reached = min(keys[-1] for keys, _ in held)
            times, ready = [], []
            for place, (keys, rows) in enumerate(held):
                end = bisect_right(keys, reached)
                times += keys[:end]
                ready += rows[:end]
                held[place] = keys[end:], rows[end:]
            ready.sort(key=partial(next, iter(times)))  # the next time for each row
            yield ready


def ordered(times: list[Any]) -> list[Any]:
    """Return times by which a source keeps its own order, also where one is older than that before."""
    return times if times == sorted(times) else [*accumulate(times, max)]


_Key = tuple[str, str, str]


class LogSelection(msgspec.Struct, frozen=True):
    """Selects all lines, those of an instance, or those of a rank."""

    instance: str = ""
    """Short name; empty for all instances."""
    rank: int | None = None
    """Global rank: its lines, and those of its pod that belong to no rank."""

    @property
    def is_merged(self) -> bool:
        """Return True if lines of several instances may match."""
        return not self.instance and self.rank is None

    def matches(self, item: Item, instance: str) -> bool:
        """Return True if an item matches, given the instance that runs the selected rank."""
        rank = self.rank
        if rank is None:
            return not self.instance or self.instance == item.source.name
        if isinstance(item, LogLine) and item.rank is not None:
            return item.rank == rank
        return item.source.name == instance

    def __str__(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.instance or "all"


EVERYTHING = LogSelection()


def failed_selection(job: Job, targets: Sequence[Target]) -> LogSelection | None:
    """Return the selection of the rank that failed first; None unless the job has failed or restarts."""
    name, rank = job.culprit or ("", None)
    target = next((each for each in targets if each.name == name), None)
    if target is None or not job.status.has_failed:
        return None
    is_told_apart = rank is not None and (rank in target.ranks or target.prints_all_ranks)
    return LogSelection(rank=rank) if is_told_apart else LogSelection(instance=name)


class _Batch(NamedTuple):
    arrived_s: float
    items: Sequence[Item]
    is_history: bool


class _Progress(NamedTuple):
    reached_ns: int
    at_s: float


class LineQueue:
    """Buffer of the items of a selection until its view takes them.

    History (lines older than the request) also waits on the server, and is never dropped: its readers
    wait in `until_writable`. In a merged queue each waits for those further behind.
    """

    def __init__(
        self,
        selection: LogSelection,
        instance_of_rank: Callable[[int], str],
        *,
        window_s: float = WINDOW_S,
        max_items: int = QUEUE_ITEMS,
        max_history: int = HISTORY_ITEMS,
        dropped_lines: Mapping[str, int] | None = None,
    ) -> None:
        self.selection = selection
        self.on_news: Callable[[], None] | None = None
        self.dropped_lines: Mapping[str, int] = {} if dropped_lines is None else dropped_lines
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
        """Return the items of one source that match the selection."""
        selection = self.selection
        if selection.is_merged:
            return items
        if selection.rank is None:
            return items if selection.instance == source.name else ()
        instance = self._instance_of_rank(selection.rank)
        return [each for each in items if selection.matches(each, instance)]

    def put(self, source: Target, items: Sequence[Item], *, is_history: bool = False) -> None:
        """Add the new items of a source. History was written before it was requested."""
        matching = self.matching(source, items)
        if not is_history:
            self._progress.pop(source.key, None)
        elif matching:
            self.expect(source, items[-1].stamp_ns)
        if matching:
            self.fill(matching, is_history=is_history)

    def expect(self, source: Target, reached_ns: int) -> None:
        """Let other sources wait for one whose history has been read up to `reached_ns`."""
        self._progress[source.key] = _Progress(reached_ns, time.monotonic())

    def fill(self, items: Sequence[Item], *, is_history: bool = False) -> None:
        """Add items that are known to match."""
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
        # Markers stay; only lines are dropped.
        remaining: deque[_Batch] = deque()
        for batch in self._batches:
            if batch.is_history or batch is keep or self._live <= self._max_items:
                remaining.append(batch)
                continue
            lost = [item for item in batch.items if isinstance(item, LogLine)]
            self._dropped.update(line.writer for line in lost)
            self._dropped_ns = batch.items[-1].stamp_ns
            self._live -= len(batch.items)
            self._waiting -= len(lost)
            if markers := [item for item in batch.items if isinstance(item, Marker)]:
                remaining.append(_Batch(batch.arrived_s, markers, True))
        self._batches = remaining

    @property
    def waiting(self) -> int:
        """Return the number of items to take, now or after the window for late sources."""
        return self._waiting

    async def until_writable(self, source: Target) -> None:
        """Wait until the view needs more, so that history is read only as fast as it is shown."""
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
        # The others wait for the source furthest behind, so it goes on unless the view takes nothing.
        return self._untaken >= self._max_history

    def _furthest_behind_ns(self) -> float:
        # A source that has become silent does not count.
        since_s = time.monotonic() - self._window_s
        return min(
            (at.reached_ns for key, at in self._progress.items() if key in self._held or at.at_s >= since_s),
            default=math.inf,
        )

    def close(self) -> None:
        """Drop all items and release the waiting readers."""
        self._batches.clear()
        self._waiting = self._live = 0
        self._progress.clear()
        self._taken.set()

    def take(self, *, everything: bool = False) -> list[Item]:
        """Return the items that are ready, oldest first; with `everything`, do not wait for late sources."""
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
        items.extend(self._pop_ready(everything=everything))
        self._taken.set()
        return items

    def _pop_ready(self, *, everything: bool) -> list[Item]:
        arrived_before_s = time.monotonic() - (0.0 if everything else self._window_s)
        ready = [batch for batch in self._batches if batch.arrived_s <= arrived_before_s]
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
