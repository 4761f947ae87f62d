"""One reader per container, shared by all who want the lines of its log.

A `LogSource` follows the log of one container and holds its newest lines. Each `Subscription` reads
from there at its own pace: a late one is given the held lines first, a slow one loses lines, with a
marker, rather than delaying the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import count, islice
from typing import NamedTuple

from msgspec.structs import replace

from k8s.client.client import REQUEST_S, Client
from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff
from k8s.logs.follow import Follower, LogRequest
from k8s.logs.lines import Item, LogLine, Mark, Marker, Target, rfc3339
from k8s.logs.tail import read_tail
from k8s.text.errors import KubeError

# A stream without subscriptions stays open for so long, so that the next view continues with it.
GRACE_S = 1.0
# As many as one view of a job reads.
MAX_IDLE_STREAMS = 16
# A closed stream is resumed where it ended within this time; later the log is read again, near its end.
RESUME_S = 60.0
# Sources without subscriptions whose lines are held.
MAX_IDLE_SOURCES = 16
# Held lines of one log; and of all logs, overhead included.
SOURCE_LINES = 100_000
TOTAL_BYTES = 32 * 1024 * 1024
# After this time without a batch, all lines of a request have arrived.
_SETTLED_S = 0.2
# Replayed lines that are passed on before other tasks get a turn.
_REPLAYED_ITEMS = 500
_LINE_OVERHEAD_BYTES = 200

_Key = tuple[tuple[str, str, str], LogRequest]


class LogHub:
    """The followed logs of one cluster. `close` it before its client."""

    def __init__(
        self,
        client: Client,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        grace: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(GRACE_S),
    ) -> None:
        """Prepare; no request is sent before a subscription is read.

        A stream without subscriptions is closed once `grace()` returns.
        """
        self.client = client
        self.backoff = backoff
        self.grace = grace
        self.numbers = count()
        # One reader decodes at a time, and only a little, so that keys are handled meanwhile.
        self.turn = asyncio.Lock()
        self.size_bytes = 0
        """Approximate memory of the held lines."""
        self._sources: dict[_Key, LogSource] = {}

    def open(self, target: Target, request: LogRequest) -> Subscription:
        """Return a subscription to the log of a container; it sends no request before it is read.

        Requests that begin near the end share one source, whatever their `tail`; others share it with
        equal ones only.
        """
        return Subscription(self, target, request)

    def source_of(self, target: Target, request: LogRequest, before: LogSource | None = None) -> LogSource:
        """Return the source of a log: the one followed now, that of `before`, or a new one."""
        key = _key(target, request)
        held = self._sources.pop(key, None)
        source = held or before
        if source is None or source.is_outdated:
            source = LogSource(self, target, request)
        if source is not held:
            self.size_bytes += source.size_bytes - (held.size_bytes if held is not None else 0)
        self._sources[key] = source  # the last used is the last to be dropped
        return source

    def held_lines(
        self, target: Target, lines: int, *, newer_than_ns: int | None = None
    ) -> tuple[LogLine, ...] | None:
        """Return the last lines of the current run of a container, as far as they are held.

        None means that they must be read: too few are held, none is newer than `newer_than_ns`, or, with
        None for it, the run was not read to its end.
        """
        source = self._sources.get(_key(target, LogRequest(tail=lines)))
        return source.last_lines(lines, newer_than_ns) if source is not None else None

    def streamed_lines(self, target: Target, lines: int) -> tuple[LogLine, ...]:
        """Return the last lines that are held of the current run of a container, though more may exist."""
        source = self._sources.get(_key(target, LogRequest(tail=lines)))
        return source.newest_lines(lines) if source is not None else ()

    async def read_tail(
        self,
        target: Target,
        lines: int,
        *,
        newer_than_ns: int | None = None,
        previous: bool = False,
        idle_s: float = REQUEST_S,
        is_urgent: bool = True,
        is_whole: bool = False,
    ) -> tuple[LogLine, ...]:
        """Return the last lines of a log: those of `held_lines`, else what the server answers.

        The server is asked for lines from the second of `newer_than_ns` on, so that a gap shows.

        Raises:
            KubeError: There is no such log, or it could not be read.
        """
        held = None if previous else self.held_lines(target, lines, newer_than_ns=newer_than_ns)
        if held is not None:
            return held
        since_time = rfc3339(newer_than_ns // 10**9) if newer_than_ns and newer_than_ns > 10**9 else ""
        return await read_tail(
            self.client,
            target,
            lines,
            previous=previous,
            since_time=since_time,
            idle_s=idle_s,
            is_urgent=is_urgent,
            is_whole=is_whole,
        )

    def drop_excess(self) -> None:
        """Close the idle streams, and drop the idle sources, that exceed the limits."""
        idle = [each for each in self._sources.values() if not each.subscriptions]
        idle.sort(key=lambda each: each.follower.target.is_chief)
        for each in idle[:-MAX_IDLE_STREAMS]:
            each.stop()
        for each in idle[:-MAX_IDLE_SOURCES]:
            self.forget(each)

    def grow(self, size_bytes: int) -> None:
        """Count the memory of new lines, and drop the oldest ones of the largest logs beyond the limit."""
        self.size_bytes += size_bytes
        while self.size_bytes > TOTAL_BYTES:
            self.size_bytes -= max(self._sources.values(), key=lambda each: each.size_bytes).drop_oldest()

    def forget(self, source: LogSource) -> None:
        """Drop a source; the next subscription reads the log again."""
        key = _key(source.follower.target, source.request)
        if self._sources.get(key) is source:
            del self._sources[key]
            self.size_bytes -= source.size_bytes

    async def close(self) -> None:
        """Close every stream; subscriptions end."""
        sources, self._sources = [*self._sources.values()], {}
        tasks = [task for each in sources for task in each.close()]
        if tasks:
            await asyncio.wait(tasks)


class _HeldBatch(NamedTuple):
    items: Sequence[Item]
    is_behind: bool
    lines: int
    size_bytes: int


class LogSource:
    """The follower of one container's log, and its newest lines."""

    def __init__(self, hub: LogHub, target: Target, request: LogRequest) -> None:
        self.follower = Follower(
            hub.client, target, request, backoff=hub.backoff, numbers=hub.numbers, turn=hub.turn
        )
        self.request = request
        self.subscriptions: set[Subscription] = set()
        self.size_bytes = 0
        self.has_failed = False
        self.is_over = False
        """No more lines will come."""
        self.grown = asyncio.Event()
        """Set, and replaced, when there is news."""
        self._hub = hub
        self._tail = request.tail or 0
        self._batches: deque[_HeldBatch] = deque()
        self._first = 0  # number of the first held batch
        self._first_line = 0  # number of the first held line; that of the first one followed is 0
        self._lines = 0
        self._has_dropped = False
        self._read_at_s = 0.0  # monotonic time of the newest batch
        self._taken = asyncio.Event()
        self._reading_older = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped_at_s: float | None = None

    @property
    def end(self) -> int:
        """Return the number of the next batch."""
        return self._first + len(self._batches)

    @property
    def is_outdated(self) -> bool:
        """Return True if the log must be read again."""
        is_worthless = not (self._lines and self.follower.target.pod_uid)  # a 404 may have been too early
        if self.has_failed or (self.is_over and is_worthless):
            return True
        return self._stopped_at_s is not None and time.monotonic() - self._stopped_at_s > RESUME_S

    def add(self, subscription: Subscription) -> None:
        """Follow the log, if it is not followed yet."""
        self.subscriptions.add(subscription)
        if self._stopping is not None:
            self._stopping.cancel()
        self._stopping = self._stopped_at_s = None
        self.update()

    def remove(self, subscription: Subscription) -> None:
        """Stop following after a while if this was the last subscription."""
        self.subscriptions.discard(subscription)
        if self.subscriptions:
            self.update()
            return
        if self._stopping is None and self._task is not None:
            self._stopping = asyncio.create_task(self._stop_later())
        self._hub.drop_excess()

    def update(self) -> None:
        """Stream the log if a subscription wants that, else poll it."""
        self._taken.set()
        is_streamed = any(each.is_streamed for each in self.subscriptions)
        is_running = self._task is not None and not self._task.done()
        if not self.is_over and not (is_running and self.follower.is_streamed == is_streamed):
            self.follower.is_streamed = is_streamed
            self._restart()

    def _restart(self) -> None:
        before = self._task
        if before is not None:
            before.cancel()
        self.follower.forget_refusal()
        self._task = asyncio.create_task(self._run(before))

    async def _stop_later(self) -> None:
        await self._hub.grace()
        if self._stopping is asyncio.current_task():
            self.stop()

    def stop(self) -> None:
        """Close the stream."""
        self._stopping = None
        if self._stopped_at_s is None and self._task is not None:
            self._stopped_at_s = time.monotonic()
            self._task.cancel()
            if self.request.tail is None:  # such requests do not mean the same later on
                self._hub.forget(self)

    def close(self) -> list[asyncio.Task[None]]:
        """End all subscriptions; return the tasks that end."""
        tasks = [each for each in (self._task, self._stopping) if each is not None]
        for task in tasks:
            task.cancel()
        self._finish()
        return tasks

    def _finish(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        self.grown.set()
        self.grown = asyncio.Event()

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            async with aclosing(self.follower.batches()) as batches:
                async for batch in batches:
                    self._append(batch, is_behind=self.follower.is_behind)
                    # As fast as the fastest subscription.
                    while not any(each.place >= self.end for each in self.subscriptions):
                        self._taken.clear()
                        await self._taken.wait()
        except KubeError as error:
            text = f"cannot be read. {error.details or error.what}"
            if "previous terminated container" in error.why:  # the kubelet's message, sent with a 400
                text = "there was no run before this one, or its log is gone"
            self.has_failed = True
            note = Marker(Mark.NOTE, text, self.follower.target, 0, next(self._hub.numbers))
            self._append([note], is_behind=False)
            self._hub.forget(self)
        except Exception:
            self._finish()
            raise
        self._finish()

    def raise_error(self) -> None:
        """Raise the unexpected error that ended the log, if one did."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    def _append(self, items: Sequence[Item], *, is_behind: bool) -> None:
        self._read_at_s = time.monotonic()
        self._hold(batch := _batch_of(items, is_behind=is_behind))
        self._batches.append(batch)
        while self._lines > SOURCE_LINES and len(self._batches) > 1:
            self._hub.size_bytes -= self.drop_oldest()
        self._hub.grow(batch.size_bytes)
        self._wake()

    def _hold(self, batch: _HeldBatch) -> None:
        self._lines += batch.lines
        self.size_bytes += batch.size_bytes

    def drop_oldest(self) -> int:
        """Drop the oldest batch; return its size in bytes."""
        batch = self._batches.popleft()
        self._first += 1
        self._first_line += batch.lines
        self._has_dropped = True
        self._lines -= batch.lines
        self.size_bytes -= batch.size_bytes
        return batch.size_bytes

    def last_lines(self, lines: int, newer_than_ns: int | None) -> tuple[LogLine, ...] | None:
        """Return the last lines of the current run; see `LogHub.held_lines`."""
        follower = self.follower
        if newer_than_ns is None:
            is_known = follower.is_read_to_end
        else:
            is_known = self._stopped_at_s is None and follower.reached_ns > newer_than_ns
        if not is_known or self.has_failed:
            return None
        found, is_enough = self._newest(lines)
        return found if is_enough or self._has_start(lines) else None

    def newest_lines(self, lines: int) -> tuple[LogLine, ...]:
        """Return the last lines of the current run that are held."""
        return self._newest(lines)[0]

    def _newest(self, lines: int) -> tuple[tuple[LogLine, ...], bool]:
        # And True if these are as many as were asked for, or go back to the start of the run.
        found: list[LogLine] = []
        for batch in reversed(self._batches):
            for item in reversed(batch.items):
                if isinstance(item, LogLine) and len(found) < lines:
                    found.append(item)
                elif isinstance(item, Marker) and item.mark is Mark.RESTART:
                    return tuple(reversed(found)), True
            if len(found) >= lines:
                break
        return tuple(reversed(found)), len(found) >= lines

    def _has_start(self, tail: int) -> bool:
        # Whether a request for so many lines would find none before the held ones.
        if self._has_dropped:
            return False
        is_settled = self.is_over or time.monotonic() - self._read_at_s > _SETTLED_S
        return tail <= max(self._tail, self._lines) or (is_settled and self._lines < self._tail)

    async def reach_back(self, tail: int) -> None:
        """Read older lines unless as many are held, or all there are."""
        async with self._reading_older:
            if not self._lines and tail > self._tail and not self.is_over:
                self._tail = tail
                self.follower.begin_earlier(tail)
                self._restart()
            elif not self._has_dropped and not self._has_start(tail):
                await self._read_older(tail)

    async def _read_older(self, tail: int) -> None:
        # The API has no end for a request, so it is closed at the first line that is held.
        first_ns = next(each.stamp_ns for each in self._held_lines())
        ties = sum(each.stamp_ns == first_ns for each in self._held_lines())
        request = replace(self.request, tail=tail, follow=False)
        hub, target = self._hub, self.follower.target
        reader = Follower(
            hub.client, target, request, backoff=hub.backoff, numbers=hub.numbers, turn=hub.turn
        )
        older: list[Item] = []
        try:
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    older += [
                        each for each in batch if each.stamp_ns <= first_ns and isinstance(each, LogLine)
                    ]
                    if batch[-1].stamp_ns > first_ns:
                        break
        except KubeError as error:
            text = f"gap: earlier lines cannot be read. {error.why or error.what}"
            older.append(Marker(Mark.GAP, text, target, first_ns))
        else:
            while ties and older and older[-1].stamp_ns == first_ns:
                older.pop()
                ties -= 1
        self._tail = tail
        if older and not self._has_dropped:
            self._hold(batch_ := _batch_of(older, is_behind=True))
            self._batches.appendleft(batch_)
            self._first -= 1
            self._first_line -= batch_.lines
            hub.grow(batch_.size_bytes)

    def _held_lines(self) -> Iterator[LogLine]:
        return (each for batch in self._batches for each in batch.items if isinstance(each, LogLine))

    def move(self, subscription: Subscription, tail: int | None) -> None:
        """Move a subscription to the last `tail` of the held lines, or to the first."""
        place, line = self.end, self._first_line + self._lines
        end = line
        for batch in reversed(self._batches):
            if tail is not None and end - line >= tail:
                break
            place -= 1
            line -= batch.lines
        subscription.begin = subscription.place = place
        subscription.line = line

    def items_between(self, begin: int, end: int) -> list[Item]:
        """Return the held items of these batches."""
        batches = islice(self._batches, max(0, begin - self._first), max(0, end - self._first))
        return [item for batch in batches for item in batch.items]

    def take(self, subscription: Subscription) -> Sequence[Item] | None:
        """Return the next items for a subscription; None if there are none yet."""
        place = subscription.place - self._first
        if place >= len(self._batches):
            return None
        batch = self._batches[max(place, 0)]
        is_old = subscription.place < subscription.old_until
        subscription.is_behind = batch.is_behind or is_old
        items: list[Item] = []
        if place < 0:
            place, lost = 0, self._first_line - subscription.line
            subscription.place, subscription.line = self._first, self._first_line
            text = f"{lost:,} lines of {self.follower.target.name} came faster than they were read"
            items.append(Marker(Mark.DROPPED, text, self.follower.target, self._batches[0].items[0].stamp_ns))
        while True:
            items += batch.items
            place += 1
            subscription.place += 1
            subscription.line += batch.lines
            if not is_old or place >= len(self._batches) or len(items) >= _REPLAYED_ITEMS:
                break
            batch = self._batches[place]
        if subscription.place >= self.end:
            self._taken.set()
        return items


def _batch_of(items: Sequence[Item], *, is_behind: bool) -> _HeldBatch:
    sizes = [len(each.raw) for each in items if isinstance(each, LogLine)]
    return _HeldBatch(items, is_behind, len(sizes), sum(sizes) + len(items) * _LINE_OVERHEAD_BYTES)


class Subscription:
    """The log of one container, for one reader."""

    def __init__(self, hub: LogHub, target: Target, request: LogRequest) -> None:
        self.target = target
        self.is_over = False
        self.is_behind = False
        """The lines last yielded are older than the subscription, or the server has more of them."""
        self.reached_ns = 0
        """Time of the newest line yielded, in ns; 0 if there was none."""
        self.begin = self.place = self.line = 0
        """Numbers in the source: of the first batch, the next batch, and the next line."""
        self.old_until = 0
        """Number of the batch before which all are older than the subscription."""
        self._hub = hub
        self._request = request
        self._is_streamed = True
        self._source: LogSource | None = None
        # Of a source that came in the place of another: lines up to this time are known.
        self._moved_ns = 0
        self._is_joined = False

    @property
    def is_streamed(self) -> bool:
        """Keep a connection open for new lines; else poll, unless others stream the log."""
        return self._is_streamed

    @is_streamed.setter
    def is_streamed(self, is_streamed: bool) -> None:
        is_new, self._is_streamed = is_streamed != self._is_streamed, is_streamed
        if is_new and self._source is not None and self in self._source.subscriptions:
            self._source.update()

    @property
    def has_restarted(self) -> bool:
        """Return True if an earlier run of the container was read, too."""
        return self._source is not None and self._source.follower.has_restarted

    @property
    def refusal(self) -> str:
        """Return the server's reason for refusing the log; empty while it may be read."""
        return self._source.follower.refusal if self._source is not None else ""

    def held_items(self) -> list[Item]:
        """Return those of the items yielded so far that are still held."""
        return self._source.items_between(self.begin, self.place) if self._source is not None else []

    def wake(self) -> None:
        """End a wait: the pod has changed, or the user asks for a retry."""
        if self._source is not None:
            self._source.follower.wake()

    def retarget(self, target: Target) -> None:
        """Update the ranks and pod status of the same container."""
        self.target = target
        if self._source is not None and self in self._source.subscriptions:
            self._source.follower.retarget(target)

    async def batches(self) -> AsyncGenerator[Sequence[Item], None]:
        """Yield batches of lines and markers, as `Follower.batches` does, the held ones first.

        It keeps its position: it may be closed, which ends the subscription, and called again. A log that
        cannot be read ends with a marker.
        """
        if self.is_over:
            return
        source = self._hub.source_of(self.target, self._request, self._source)
        is_new, self._source = source is not self._source, source
        if is_new:
            self.place = source.end
        source.add(self)
        if source.follower.target != self.target:
            source.follower.retarget(self.target)
        try:
            if is_new:
                self.old_until = source.end
                tail = self._request.tail
                if tail is not None:
                    await source.reach_back(tail)
                source.move(self, tail)
                self._moved_ns = self.reached_ns
            while True:
                grown = source.grown
                if (items := source.take(self)) is not None:
                    if self._moved_ns:
                        items = self._unseen(items)
                    if items:
                        self.reached_ns = max(self.reached_ns, items[-1].stamp_ns)
                        yield items
                elif source.is_over:
                    self.is_over = True
                    source.raise_error()
                    return
                else:
                    await grown.wait()
        finally:
            source.remove(self)

    def _unseen(self, items: Sequence[Item]) -> Sequence[Item]:
        # The source is another one than before, so some lines of it may be known, and some missing.
        lines = [each for each in items if isinstance(each, LogLine)]
        unseen = [each for each in items if isinstance(each, Marker) or each.stamp_ns > self._moved_ns]
        if lines and lines[0].stamp_ns > self._moved_ns and not self._is_joined:
            after = f"{datetime.fromtimestamp(self._moved_ns / 1e9):%Y-%m-%d %H:%M:%S}"
            text = f"gap: lines after {after} may be missing; the log was read again"
            unseen.insert(0, Marker(Mark.GAP, text, self.target, self._moved_ns))
        if lines:
            self._is_joined = True
            if lines[-1].stamp_ns > self._moved_ns:
                self._moved_ns, self._is_joined = 0, False
        return unseen


def _key(target: Target, request: LogRequest) -> _Key:
    return target.key, replace(request, tail=0) if request.tail is not None else request
