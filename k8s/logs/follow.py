"""Follow one container's log over dropped connections and restarts, losing no line unsaid.

Each round looks at the pod, then reads its log until the connection ends. A reading that
began after the run had ended has all of it; after any other one comes another round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count

import aiohttp

from k8s.client.client import Client
from k8s.client.transport import translated
from k8s.errors import Forbidden, Invalid, KubeError, NotFound, Throttled, Unauthorized, Unreachable
from k8s.logs.cursor import Cursor
from k8s.logs.lines import KEPT_BYTES, Item, LogLine, Mark, Marker, Piece, Splitter, Target, write_stamp
from k8s.logs.prefixes import RankReader
from k8s.logs.state import UNKNOWN, ContainerView, container_view
from k8s.models.resources import PODS
from k8s.watch.backoff import DEFAULT_BACKOFF, Backoff

_BYTES_PER_TURN = 32 * 1024
"""Read at once before others have their turn: two or three milliseconds of work."""
_READ_TRIES = 4
"""How often one reading without follow is tried before its error is the answer."""


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Which part of a log to read: the parameters of `pods/log`, and how much of a line is kept."""

    tail: int | None = None
    """Begin this many lines before the end; None begins at the start."""
    since_s: int | None = None
    """Begin this many seconds ago."""
    since_time: str = ""
    """Begin at this time, RFC 3339."""
    follow: bool = True
    """Go on for as long as the container may write; else stop at what there is."""
    previous: bool = False
    """The run before the last restart; never followed."""
    kept_bytes: int = KEPT_BYTES
    """How much of one line is kept."""


class Follower:
    """Reads one container's log; it knows where it stands, so `batches` may be cancelled and begun again."""

    def __init__(
        self,
        client: Client,
        target: Target,
        request: LogRequest = LogRequest(),
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        numbers: Iterator[int] | None = None,
        turn: asyncio.Lock | None = None,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            client: The cluster.
            target: The container.
            request: Which part of its log.
            backoff: How long to wait for what.
            numbers: Where the items' `seq` come from, when several logs are merged.
            turn: Shared by those who read in one console: one of them works at a time, and a
                little only, so that a key is answered however much they have to read.
        """
        self.target = target
        """The container."""
        self.is_streamed = True
        """Keep a connection open for new lines; else ask for them every few seconds."""
        self.is_over = False
        """There will be nothing more to read."""
        self.is_behind = False
        """What was read last was there before it was asked for: it waits on the server for a slow reader."""
        self._client = client
        self._request = request
        self._backoff = backoff
        self._numbers = count() if numbers is None else numbers
        self._turn = turn
        self._ranks = RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)
        self._cursor = Cursor()
        self._uid = target.pod_uid
        self._run: int | None = None
        self._is_first_run = True
        self._run_is_read = False
        self._rest: list[Piece] = []
        self._stamp_ns = 0
        self._failures = 0
        self._lost_at_s: float | None = None
        self._ended_at_s: float | None = None
        self._reconnected_last = False
        self._last_notice = ""
        self._woken = asyncio.Event()

    @property
    def has_restarted(self) -> bool:
        """Tell whether the container ran before the run that is read, and that was read too."""
        return not self._is_first_run

    @property
    def reached_ns(self) -> int:
        """Return the time of the newest line that was read; 0 for none."""
        return self._stamp_ns

    def wake(self) -> None:
        """End a wait: the pod has changed, or the user is impatient."""
        self._woken.set()

    def retarget(self, target: Target) -> None:
        """Take over what is newly known of the same container: its ranks, its pod's status."""
        if target.status != self.target.status:
            self.wake()
        self.target = target
        self._ranks = RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)

    async def batches(self) -> AsyncGenerator[list[Item], None]:
        """Yield what is new, never empty: lines, and markers where something happened to the stream.

        It waits while the container has not started, takes up the log again after a lost
        connection, goes on with the next run after a restart, and ends with a marker that
        says how the container ended. Close it (`contextlib.aclosing`) or cancel the task
        that reads it, and the connection is closed at once.

        Raises:
            Invalid: The pod has no such container.
            KubeError: Only without `request.follow`: the log could not be read.
        """
        while not self.is_over:
            try:
                async with aclosing(self._round()) as batches:
                    async for batch in batches:
                        if batch:
                            yield batch
            except KubeError as error:
                self._failures += 1
                if self._is_final(error):
                    raise
                if self._lost_at_s is None:
                    self._lost_at_s = time.monotonic()
                elif self._request.follow and self._failures > 1:  # else the error itself is the answer
                    words = f"cannot be read now: {error.why or error.what}"
                    if words != self._last_notice:
                        self._last_notice = words
                        yield [self._marker(Mark.LOST, words)]
                await self._back_off(error.retry_after_s if isinstance(error, Throttled) else 0.0)

    def _is_final(self, error: KubeError) -> bool:
        if isinstance(error, _NoSuchContainer):
            return True
        if self._request.follow:
            return False
        return isinstance(error, Forbidden | Unauthorized | Invalid | NotFound) or (
            self._failures >= _READ_TRIES
        )

    async def _round(self) -> AsyncGenerator[list[Item], None]:
        if self._request.previous:
            async with aclosing(self._read(previous=True, is_final=True)) as batches:
                async for batch in batches:
                    yield batch
            self.is_over = True
            return
        view = await self._look()
        if view is None:
            self.is_over = True
            yield [self._marker(Mark.ENDED, "the pod is gone")]
            return
        if self._run is not None and view.run > self._run:
            async with aclosing(self._next_run(view)) as batches:
                async for batch in batches:
                    yield batch
        self._run = view.run
        if self._ended_at_s is not None and not view.is_over and self._lost_at_s is None:
            # The answer ended, the run did not: something in between cut it.
            self._lost_at_s = self._ended_at_s
        self._ended_at_s = None
        if view.has_log and not self._run_is_read:
            is_final = view.is_over or not self._request.follow
            is_stream = self.is_streamed and not is_final
            started_s, had_news = time.monotonic(), False
            reading = self._read(is_stream=is_stream, is_final=is_final, is_over=view.is_over)
            async with aclosing(reading) as batches:
                async for batch in batches:
                    had_news = had_news or bool(batch)
                    yield batch
            if self._run_is_read and self._request.follow:
                yield [self._marker(Mark.ENDED, _ending(view))]
            elif not is_final and not is_stream:
                await self._pause(self._backoff.poll_s)
            elif not had_news and time.monotonic() - started_s < self._backoff.first_s:
                self._failures += 1
                await self._back_off()
        elif not view.has_log and view.words != self._last_notice:
            self._last_notice = view.words
            if view.is_over:
                yield [self._marker(Mark.ENDED, _ending(view))]
            else:
                yield [self._marker(Mark.WAITING, f"waits: {view.words}")]
        if self._run_is_read or not view.has_log:
            if self._request.follow and view.restarts:
                await self._pause(self._backoff.waiting_s)
            else:
                self.is_over = True

    async def _look(self) -> ContainerView | None:
        """Return how the container is; None when its pod is gone, or another one has its name."""
        try:
            obj = await self._client.get(PODS, self.target.pod, self.target.namespace)
        except NotFound:
            if not self._request.follow:
                raise
            return None
        except Forbidden:
            return UNKNOWN
        view = container_view(obj, self.target.container)
        if view is None:
            raise _NoSuchContainer(
                f"Could not read the log of {self.target.pod}.",
                f'It has no container "{self.target.container}".',
            )
        if self._uid and view.pod_uid != self._uid:
            return None
        self._uid = view.pod_uid
        return view

    async def _next_run(self, view: ContainerView) -> AsyncGenerator[list[Item], None]:
        """Read what is left of the run before, and say that another one begins."""
        run = self._run if self._run is not None else view.run
        if view.run - run > 1:
            yield [self._marker(Mark.GAP, f"gap: {view.run - run - 1} short runs were not read")]
        elif not self._run_is_read:
            try:
                async with aclosing(self._read(previous=True, is_final=True)) as batches:
                    async for batch in batches:
                        yield batch
            except (Invalid, NotFound) as error:
                yield [self._marker(Mark.GAP, f"gap: the end of the run before cannot be read. {error.why}")]
        self._cursor = Cursor()
        self._run = view.run
        self._is_first_run = self._run_is_read = False
        words = f", {view.last_words}" if view.last_words else ""
        yield [self._marker(Mark.RESTART, f"restart #{view.run}{words}")]

    async def _read(
        self,
        *,
        is_final: bool,
        is_stream: bool = False,
        is_over: bool = False,
        previous: bool = False,
    ) -> AsyncGenerator[list[Item], None]:
        """Open the log where reading stopped and yield what is new, until the connection ends.

        Args:
            is_final: What has no line end now is a line, for it will not get one.
            is_stream: Stay for new lines.
            is_over: The run has ended, so another reading must find the same.
            previous: Read the run before.

        Raises:
            KubeError: It could not be opened, or the connection broke.
        """
        request = self._request
        since_time = self._cursor.since_time()
        is_first = self._is_first_run and not since_time
        splitter = Splitter(request.kept_bytes)
        opened_ns = (time.time() + self._client.server_clock_offset_s) * 1e9
        try:
            async with self._client.log(
                self.target.pod,
                self.target.namespace,
                container=self.target.container,
                follow=is_stream,
                tail=request.tail if is_first else None,
                since_time=request.since_time if is_first else since_time,
                since_s=request.since_s if is_first else None,
                timestamps=True,
                previous=previous,
                idle_s=self._backoff.idle_s,
            ) as body:
                with translated(f"read the log of {self.target.pod}"):
                    async for chunk in body.iter_any():
                        for start in range(0, len(chunk), _BYTES_PER_TURN):
                            if self._turn is not None:
                                async with self._turn:
                                    await asyncio.sleep(0)
                            items = self._items(splitter.feed(chunk[start : start + _BYTES_PER_TURN]))
                            self.is_behind = not is_stream or self._stamp_ns < opened_ns
                            yield items
        except Unreachable as error:
            # No byte for long, and nobody said why: the log is silent or the connection is dead.
            if not isinstance(error.__cause__, aiohttp.SocketTimeoutError):
                raise
        else:
            if is_stream:
                self._ended_at_s = time.monotonic()
            if is_final:
                rest = splitter.finish()
                # An answer that stops within a line may have been cut: believe it when it comes twice.
                if is_over and rest and rest != self._rest:
                    self._rest = rest
                    return
                self._run_is_read = not previous
                yield self._items(rest)

    def _items(self, pieces: list[Piece]) -> list[Item]:
        """Make items of the lines that were not read before, behind what there is to say first."""
        cursor, hole_ns = self._cursor, self._cursor.missing_since_ns
        fresh = cursor.take(pieces)
        items: list[Item] = []
        if pieces:
            self._failures = 0
            self._last_notice = ""
        if cursor.missing_since_ns and not hole_ns:
            after = write_stamp(cursor.missing_since_ns)
            items.append(self._marker(Mark.GAP, f"gap: lines after {after} may be missing; the log was cut"))
            self._lost_at_s = None
        elif self._lost_at_s is not None and pieces and cursor.knows:
            seconds = time.monotonic() - self._lost_at_s
            self._lost_at_s = None
            proof = ", nothing lost" if cursor.is_resumed else ""
            if not self._reconnected_last:
                items.append(self._marker(Mark.RECONNECTED, f"reconnected, {seconds:.1f} s{proof}"))
            self._reconnected_last = True
        if fresh:
            self._reconnected_last = False
            items.extend([self._line(piece) for piece in fresh])
        return items

    def _line(self, piece: Piece) -> LogLine:
        stamp_ns = piece.stamp_ns
        if stamp_ns:
            self._stamp_ns = stamp_ns
        owner = self._ranks.owner(piece.raw)
        return LogLine(
            stamp_ns or self._stamp_ns,
            piece.raw,
            self.target,
            next(self._numbers),
            owner.rank,
            owner.is_proven,
            owner.prefix_bytes,
            piece.missing_bytes,
            stamp_ns > 0,
        )

    def _marker(self, mark: Mark, text: str) -> Marker:
        return Marker(mark, text, self.target, self._stamp_ns, next(self._numbers))

    async def _back_off(self, at_least_s: float = 0.0) -> None:
        """Wait longer after each failure, and never in step with others."""
        await self._pause(max(at_least_s, self._backoff.delay_s(self._failures)))

    async def _pause(self, seconds: float) -> None:
        self._woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass


class _NoSuchContainer(Invalid):
    """The pod has no container of that name."""


def _ending(view: ContainerView) -> str:
    words = f"ended, {view.words}" if view.words else "ended"
    return f"{words}; waits to be started again" if view.restarts else words
