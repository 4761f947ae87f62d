"""Follow the log of one container over dropped connections and restarts, and mark every gap.

Each round reads the pod, then the log until the connection ends. A log that was opened after the
run had ended is complete; after any other one comes another round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.client.transport import translated
from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff, pause, pause_unauthorized
from k8s.logs.lines import (
    MAX_LINE_BYTES,
    STAMP_BYTES,
    Cursor,
    Delivered,
    Item,
    LogBlock,
    LogLine,
    Mark,
    Marker,
    Piece,
    Splitter,
    Target,
    read_stamp,
)
from k8s.logs.prefixes import NO_OWNER, RankReader
from k8s.logs.tail import END_BYTES, reaches_end
from k8s.models import ContainerStatus, Pod, Terminated
from k8s.models.resources import PODS
from k8s.status import Status
from k8s.status.pod import main_container, pod_status, restarts_in_place
from k8s.text.errors import (
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerFailed,
    Throttled,
    TooLarge,
    Unauthorized,
    Unreachable,
)

if TYPE_CHECKING:
    import aiohttp

# Decoded before other tasks get a turn: two or three milliseconds of work.
_BYTES_PER_TURN = 32 * 1024
# Attempts to read a log without follow before its error is raised.
_READ_TRIES = 4
# After the start of a line, a silence of this many seconds shows what there is of it.
_PARTIAL_S = 0.25


class LogRequest(msgspec.Struct, frozen=True):
    """Parameters of `pods/log`, and the limit on the length of a line."""

    tail: int | None = None
    """Begin this many lines before the end; None begins at the start."""
    since_s: int | None = None
    since_time: str = ""
    """RFC 3339; empty begins at the start."""
    follow: bool = True
    previous: bool = False
    """Read the run before the last restart; never followed."""
    max_line_bytes: int = MAX_LINE_BYTES
    piece_bytes: int = 0
    """Longer lines come in pieces of at most so many bytes, and the start of a followed line at once."""
    is_raw: bool = False
    """Read from the start, without follow, as `LogBlock`s."""
    is_named: bool = False
    """Read as `LogBlock`s of lines with the names of their writers, as far as their times are in order."""


WHOLE_LOG = LogRequest()


class ContainerView(NamedTuple):
    """State of one container, read from its pod."""

    pod_uid: str
    run: int
    has_log: bool
    is_over: bool
    restarts: bool
    reason: str
    """The reason why it waits, or its exit: `ContainerCreating`, `exit 137 OOMKilled`."""
    last_exit: str = ""


# The pod may not be read: assume that there is a log.
UNKNOWN = ContainerView("", 0, True, False, True, "")


def container_view(obj: Mapping[str, Any], container: str) -> ContainerView | None:
    """Return the state of a pod's container, by default its main one; None if it has no such container.

    Raises:
        KubeError: The object is not a well-formed pod.
    """
    try:
        pod = msgspec.convert(obj, Pod)
    except msgspec.ValidationError as error:
        raise KubeError("The server's answer is malformed.", f"It is not a pod: {error}") from error
    statuses = [*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())]
    init = [each.name for each in pod.spec.init_containers or ()]
    names = [each.name for each in pod.spec.containers]
    if container and container not in (*names, *init):
        return None
    name = container or main_container(pod.metadata, pod.spec)
    status = next((each for each in statuses if each.name == name), ContainerStatus(name))
    now, last = status.state, status.last_state.terminated
    uid, run = pod.metadata.uid, status.restart_count
    last_exit = _exit_text(last)
    if now.terminated is not None:
        again = restarts_in_place(pod, name, now.terminated.exit_code)
        return ContainerView(uid, run, True, True, again, _exit_text(now.terminated), last_exit)
    if pod.is_finished:
        reason = pod_status(pod)[1] or pod.status.phase
        return ContainerView(uid, run, last is not None, True, False, reason, last_exit)
    if now.running is not None:
        return ContainerView(uid, run, True, False, True, "", last_exit)
    reason = now.waiting.reason if now.waiting is not None else ""
    if not reason:
        pod_word, why = pod_status(pod)
        reason = why if pod_word in (Status.PENDING, Status.STARTING) else "not started"
    return ContainerView(uid, run, last is not None, last is not None, True, last_exit or reason, last_exit)


def _exit_text(ended: Terminated | None) -> str:
    if ended is None:
        return ""
    text = f"signal {ended.signal}" if ended.signal else f"exit {ended.exit_code}"
    return f"{text} {ended.reason}" if ended.reason not in ("", "Error", "Completed") else text


class Follower:
    """Reader of one container's log. It keeps its position: `batches` may be cancelled and called again."""

    def __init__(
        self,
        client: Client,
        target: Target,
        request: LogRequest = WHOLE_LOG,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        numbers: Iterator[int] | None = None,
        turn: asyncio.Lock | None = None,
    ) -> None:
        self.target = target
        self.is_streamed = True
        """Keep a connection open for new lines; else poll."""
        self.is_over = False
        self.is_behind = False
        """The lines last read were older than the request: the server has more for a slow reader."""
        self.refusal = ""
        """The server's reason for refusing the log; empty while it may be read."""
        self._client = client
        self._request = request
        self._backoff = backoff
        self._numbers = count() if numbers is None else numbers
        # Shared by all readers of a console: one of them decodes at a time, and only a little, so that
        # key presses are handled however much there is to read.
        self._turn = turn
        self._ranks = RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)
        self._cursor = Cursor()
        self._delivered = Delivered() if request.is_raw else None
        self._uid = target.pod_uid
        self._run: int | None = None
        self._is_first_run = True
        self._run_is_read = False
        self._partial: list[Piece] = []
        self._end = b""  # of an answer that may have been cut
        self._owner = NO_OWNER  # of the line read last
        self._stamp_ns = 0
        self._failures = self._quiet_reads = 0
        self._lost_at_s: float | None = None
        self._ended_at_s: float | None = None
        self._reconnected_last = False
        self._last_notice = ""
        self._woken = asyncio.Event()

    @property
    def has_restarted(self) -> bool:
        """Return True if an earlier run of the container was read, too."""
        return not self._is_first_run

    @property
    def reached_ns(self) -> int:
        """Return the time of the newest line read, in ns; 0 if none was."""
        return self._stamp_ns

    @property
    def is_read_to_end(self) -> bool:
        """Return True if the current run has ended and all its lines were read."""
        return self._run_is_read

    def begin_earlier(self, tail: int) -> None:
        """Begin so many lines before the end, if no line was read yet."""
        self._request = replace(self._request, tail=tail)

    def wake(self) -> None:
        """End a wait: the pod has changed, or the user asks for a retry."""
        self._woken.set()

    def forget_refusal(self) -> None:
        """Report a refusal again, if there is one: reading may have been granted meanwhile."""
        if self.refusal:
            self.refusal = self._last_notice = ""

    def retarget(self, target: Target) -> None:
        """Update the ranks and pod status of the same container."""
        if target.status != self.target.status:
            self.wake()
        self.target = target
        self._ranks = RankReader(target.ranks, prints_all_ranks=target.prints_all_ranks)

    async def batches(self) -> AsyncGenerator[list[Item], None]:
        """Yield batches of new lines, and markers where something happened to the stream; never empty ones.

        Waits until the container starts, resumes after a lost connection, continues with the next run
        after a restart, and ends with a marker that describes the exit. Close it (`contextlib.aclosing`)
        or cancel the task that reads it to close the connection at once.

        Raises:
            Invalid: The pod has no such container.
            KubeError: The log could not be read, and `request.follow` is not set.
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
                self.refusal = error.why or error.what if isinstance(error, Forbidden) else ""
                is_repeated = self._lost_at_s is not None and self._failures > 1
                self._lost_at_s = self._lost_at_s or time.monotonic()
                if self._request.follow and (is_repeated or self.refusal):  # without follow it is raised
                    notice = f"cannot be read now: {error.why or error.what}"
                    if notice != self._last_notice:
                        self._last_notice = notice
                        yield [self._marker(Mark.LOST, notice)]
                if isinstance(error, Unauthorized):
                    await pause_unauthorized(self._client, self._woken, self._backoff)
                else:
                    await self._back_off(
                        error.retry_after_s if isinstance(error, Throttled | TooLarge) else 0.0
                    )

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
        view = await self._read_container()
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
            # The stream ended but the run did not: something in between cut the connection.
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
                await pause(self._woken, self._backoff.poll_s)
            elif not had_news and time.monotonic() - started_s < self._backoff.first_s:
                self._failures += 1
                await self._back_off()
        elif not view.has_log and view.reason != self._last_notice:
            self._last_notice = view.reason
            if view.is_over:
                yield [self._marker(Mark.ENDED, _ending(view))]
            else:
                yield [self._marker(Mark.WAITING, f"waits: {view.reason}")]
        if self._run_is_read or not view.has_log:
            if self._request.follow and view.restarts:
                await pause(self._woken, self._backoff.waiting_s)
            else:
                self.is_over = True

    async def _read_container(self) -> ContainerView | None:
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
        if self._uid and view.pod_uid != self._uid:  # another pod has its name by now
            return None
        self._uid = view.pod_uid
        return view

    async def _next_run(self, view: ContainerView) -> AsyncGenerator[list[Item], None]:
        run = self._run if self._run is not None else view.run
        if view.run - run > 1:
            missed = view.run - run - 1
            runs = "1 short run was" if missed == 1 else f"{missed} short runs were"
            yield [self._marker(Mark.GAP, f"gap: {runs} not read")]
        elif not self._run_is_read:
            try:
                async with aclosing(self._read(previous=True, is_final=True)) as batches:
                    async for batch in batches:
                        yield batch
            except (Invalid, NotFound) as error:
                yield [
                    self._marker(Mark.GAP, f"gap: the end of the previous run cannot be read. {error.why}")
                ]
        self._cursor, self._delivered = Cursor(), None
        self._run = view.run
        self._is_first_run = self._run_is_read = False
        exit_text = f", {view.last_exit}" if view.last_exit else ""
        yield [self._marker(Mark.RESTART, f"restart #{view.run}{exit_text}")]

    async def _read(
        self, *, is_final: bool, is_stream: bool = False, is_over: bool = False, previous: bool = False
    ) -> AsyncGenerator[list[Item], None]:
        # With `is_final`, a last line without an end is complete: no more will come. With `is_over`, the run
        # has ended, so reading again must give the same.
        request = self._request
        since_time = self._cursor.since_time()
        is_first = self._is_first_run and not since_time
        # Without timestamps for as long as all goes well: they are half of a log of short lines.
        raw = self._delivered if self._delivered is not None and not self._delivered.remaining else None
        splitter, is_named = Splitter(request.max_line_bytes, request.piece_bytes), request.is_named
        partial_s = _PARTIAL_S if is_stream and request.piece_bytes else None
        opened_ns = (time.time() + self._client.server_clock_offset_s) * 1e9
        end = b""
        try:
            async with self._client.log(
                self.target.pod,
                self.target.namespace,
                container=self.target.container,
                follow=is_stream,
                tail=request.tail if is_first else None,
                since_time=request.since_time if is_first else since_time,
                since_s=request.since_s if is_first else None,
                timestamps=raw is None,
                previous=previous,
                idle_s=self._backoff.idle_limit_s(self._quiet_reads),
            ) as body:
                with translated(f"read the log of {self.target.pod}"):
                    chunks = _chunks(body, splitter, partial_s) if is_stream else body.iter_any()
                    async for chunk in chunks:
                        end = (end + chunk[-END_BYTES:])[-END_BYTES:]
                        if not chunk:
                            yield self._items(splitter.flush())
                        if raw is not None:
                            raw.add(chunk)
                            self._failures = 0
                            yield [*self._reconnected(), self._block(chunk)]
                            continue
                        if is_named and not self._cursor.is_resumed and (whole := splitter.whole(chunk)):
                            yield self._named(*whole)
                            continue
                        for start in range(0, len(chunk), _BYTES_PER_TURN):
                            if self._turn is not None:
                                async with self._turn:
                                    await asyncio.sleep(0)
                            items = self._items(splitter.feed(chunk[start : start + _BYTES_PER_TURN]))
                            self.is_behind = not is_stream or self._stamp_ns < opened_ns
                            yield items
        except Unreachable as error:
            # No byte for `idle_s`: the log is silent or the connection is dead. Open it again.
            import aiohttp  # slow to import, and there was a stream: it is there

            if not isinstance(error.__cause__, aiohttp.SocketTimeoutError):
                raise
            self._quiet_reads += 1
        else:
            if is_stream:
                self._ended_at_s = time.monotonic()
            elif end and request.tail != 1 and not (is_over and end[-1:] != b"\n"):
                target, has_times = self.target, raw is None
                is_whole = await reaches_end(
                    self._client, target, end, timestamps=has_times, previous=previous
                )
                # Until two answers agree.
                if (is_over or previous) and not is_whole and end != self._end:
                    self._end = end
                    raise ServerFailed(f"Could not read the log of {target.pod}.", "The answer was cut.")
            if raw is not None and not raw.ends_line:
                if is_over:  # it may have been cut: read it again
                    return
                yield [self._block(b"\n")]
            if is_final:
                partial = splitter.finish()
                # An answer that stops within a line may have been cut: read again until two agree.
                if is_over and partial and partial != self._partial:
                    self._partial = partial
                    return
                self._run_is_read = not previous
                yield self._items(partial)
                if raw is None and self._delivered is not None:
                    yield [self._cut_marker()]

    def _items(self, pieces: list[Piece]) -> list[Item]:
        cursor, known_gap_ns = self._cursor, self._cursor.missing_since_ns
        fresh = cursor.take(pieces)
        items: list[Item] = []
        if pieces:
            self._failures = 0
            self._last_notice = self.refusal = ""
        if cursor.missing_since_ns and not known_gap_ns:
            after = f"{datetime.fromtimestamp(cursor.missing_since_ns / 1e9):%Y-%m-%d %H:%M:%S}"
            items.append(self._marker(Mark.GAP, f"gap: lines after {after} may be missing; the log was cut"))
            self._lost_at_s = None
        elif pieces and cursor.knows and self._delivered is None:
            items += self._reconnected(", nothing lost" if cursor.is_resumed else "")
        if fresh:
            self._quiet_reads = 0
            items += self._blocks(fresh) if self._request.is_raw else self._lines(fresh)
            self._reconnected_last = False
        return items

    def _named(self, stamps: list[bytes], lines: list[bytes]) -> list[Item]:
        self._cursor.add(stamps)
        self._failures = self._quiet_reads = 0
        self._last_notice = self.refusal = ""
        items = self._reconnected()
        self._stamp_ns, self._owner, self._reconnected_last = read_stamp(stamps[-1])[0], NO_OWNER, False
        rows = self._ranks.named(lines, self.target.name, STAMP_BYTES)
        number = next(self._numbers)
        return [*items, LogBlock(self._stamp_ns, b"", self.target, number, lines=rows, stamps=stamps)]

    def _reconnected(self, proof: str = "") -> list[Item]:
        if self._lost_at_s is None:
            return []
        seconds = time.monotonic() - self._lost_at_s
        self._lost_at_s = None
        is_repeated, self._reconnected_last = self._reconnected_last, True
        if is_repeated:
            return []
        return [self._marker(Mark.RECONNECTED, f"reconnected, {seconds:.1f} s{proof}")]

    def _blocks(self, pieces: list[Piece]) -> list[Item]:
        text = b"".join([piece.raw + b"\n" for piece in pieces])
        if self._delivered is None:
            return [self._block(text)]
        text, is_same = self._delivered.skip(text)
        if is_same and self._delivered.remaining:
            return []
        self._delivered = None
        items: list[Item] = [self._cut_marker()] if not is_same else self._reconnected(", nothing lost")
        return [*items, self._block(text)] if text else items

    def _block(self, text: bytes) -> LogBlock:
        return LogBlock(self._stamp_ns, text, self.target, next(self._numbers))

    def _cut_marker(self) -> Marker:
        self._delivered = self._lost_at_s = None
        return self._marker(Mark.GAP, "gap: lines may be missing; the log was cut")

    def _lines(self, pieces: list[Piece]) -> list[LogLine]:
        owner_of, target, numbers, last_ns = self._ranks.owner, self.target, self._numbers, self._stamp_ns
        lines, owner = [], self._owner
        for piece in pieces:
            stamp_ns, raw = piece.stamp_ns, piece.raw
            last_ns = stamp_ns or last_ns
            missing, offset, ends = piece.missing_bytes, piece.offset, piece.has_end
            owner = owner._replace(prefix_bytes=0) if offset else owner_of(raw)
            rank, is_proven, prefix = owner
            seq, is_timed = next(numbers), stamp_ns > 0 and not offset
            lines.append(
                LogLine(last_ns, raw, target, seq, rank, is_proven, prefix, missing, is_timed, offset, ends)
            )
        self._stamp_ns, self._owner = last_ns, owner
        return lines

    def _marker(self, mark: Mark, text: str) -> Marker:
        return Marker(mark, text, self.target, self._stamp_ns, next(self._numbers))

    async def _back_off(self, at_least_s: float = 0.0) -> None:
        await pause(self._woken, max(at_least_s, self._backoff.delay_s(self._failures)))


class _NoSuchContainer(Invalid):
    """The pod has no container of that name."""


async def _chunks(
    body: aiohttp.StreamReader, splitter: Splitter, partial_s: float | None
) -> AsyncGenerator[bytes, None]:
    # Yields an empty chunk if nothing more came for `partial_s` within a line.
    while True:
        try:
            async with asyncio.timeout(partial_s if splitter.is_within_line else None) as limit:
                chunk = await body.readany()
        except TimeoutError:
            if not limit.expired():  # that of the connection
                raise
            yield b""
            continue
        if not chunk:
            return
        yield chunk


def _ending(view: ContainerView) -> str:
    text = f"ended, {view.reason}" if view.reason else "ended"
    return f"{text}; waits for a restart" if view.restarts else text
