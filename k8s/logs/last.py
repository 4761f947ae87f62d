"""The time and text of the newest line of each container of a job.

Up to `MAX_STREAMS` logs are streamed. With more, one log at a time is read for its last line, so that
a job of a thousand pods costs the cluster no more than one of twenty.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from k8s.client.client import REQUEST_S, Client
from k8s.client.transport import translated
from k8s.cluster.backoff import ServerProbe, pause
from k8s.logs.lines import Target, read_stamp
from k8s.status import Status
from k8s.text.errors import Forbidden, Invalid, KubeError, NotFound

# With more logs than this, none is streamed.
MAX_STREAMS = 16
# Seconds between requests when logs are polled in turn.
TURN_S = 0.5
# Seconds before a container that has not started is read again, unless its status changes.
WAITING_S = 10.0
MAX_LINE_BYTES = 4096
# Before its container has run, an instance has no log.
_UNBEGUN = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)
# Lines of a chunk that are searched for one that is not empty.
_LINES_SEARCHED = 8


@dataclass(frozen=True, slots=True)
class LastLine:
    """The newest line of one log."""

    stamp_ns: int = 0
    """In ns since 1970 by its node's clock; 0 if it has printed nothing."""
    raw: bytes = b""
    """The newest line that is not empty, raw: sanitize it before showing it."""
    newest_until_s: float | None = None
    """Server time, in s since 1970, until which it is known to be the newest; None means until now."""

    def silent_s(self, now_s: float) -> float | None:
        """Return the seconds without output until `now_s`, a server time; None without any output."""
        if not self.stamp_ns:
            return None
        return max(0.0, (now_s if self.newest_until_s is None else self.newest_until_s) - self.stamp_ns / 1e9)


class LastLines:
    """The newest line of each of a job's logs, current while `run` runs."""

    def __init__(
        self,
        client: Client,
        probe: ServerProbe | None = None,
        *,
        max_streams: int = MAX_STREAMS,
        turn_s: float = TURN_S,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._found: dict[str, LastLine] = {}
        self.newest: Mapping[str, LastLine] = self._found
        """By pod name; changed in place."""
        self.problem = ""
        """The server's reason for refusing logs; empty while they may be read."""
        self._client = client
        self._probe = probe or ServerProbe(client)
        self._max_streams = max_streams
        self._turn_s = turn_s
        self._on_change = on_change
        self._targets: dict[tuple[str, str, str], Target] = {}
        self._over: set[tuple[str, str, str]] = set()
        self._tasks: dict[tuple[str, str, str] | None, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()

    @property
    def is_polled(self) -> bool:
        """Return True if there are too many logs to stream."""
        return len(self._targets) > self._max_streams

    @property
    def round_s(self) -> float:
        """Return the seconds to poll each log once; 0 if they are streamed."""
        return len(self._targets) * self._turn_s if self.is_polled else 0.0

    def set_targets(self, targets: Iterable[Target]) -> None:
        """Update the job's containers and their status; leave out those that have never run."""
        now = {target.key: target for target in targets if target.status not in _UNBEGUN}
        if now == self._targets:
            return
        for key, was in self._targets.items():
            if key not in now:
                self._found.pop(was.pod, None)
            elif was.status != now[key].status:
                self._over.discard(key)
        self._over &= now.keys()
        self._targets = now
        self._changed.set()
        self._woken.set()

    async def run(self) -> None:
        """Read logs until cancelled; then close every connection."""
        self.problem = ""
        self._over.clear()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    self._assign(group)
                    await self._changed.wait()
        finally:
            self._tasks.clear()

    def _assign(self, group: asyncio.TaskGroup) -> None:
        to_run = {} if self.problem else {None: None} if self.is_polled else dict(self._targets)
        for key in [key for key in self._tasks if key not in to_run]:
            self._tasks.pop(key).cancel()
        for key in to_run:
            if key in self._over or (key in self._tasks and not self._tasks[key].done()):
                continue
            self._tasks[key] = group.create_task(self._stream(key) if key else self._poll_in_turns())

    async def _stream(self, key: tuple[str, str, str]) -> None:
        woken = self._woken
        backoff = self._probe.backoff
        delays = backoff.delays()
        quiet_reads, newest = 0, None
        while (target := self._targets.get(key)) is not None:
            began_s = time.monotonic()
            try:
                idle_s = 0.0 if _is_final(target) else backoff.idle_limit_s(quiet_reads)
                await self._read(target, idle_s=idle_s)
            except KubeError as error:
                before, newest = newest, self._found.get(target.pod)
                is_quiet = before is not None and newest is not None and before.stamp_ns == newest.stamp_ns
                quiet_reads = quiet_reads + 1 if is_quiet else 0
                if self._is_permanent(target, error):
                    return
                if isinstance(error, Invalid):
                    await pause(woken, WAITING_S)
                else:
                    await self._probe.wait(error, delays, woken)
                continue
            if _is_final(target):
                self._over.add(key)
                return
            if time.monotonic() - began_s > backoff.healthy_s:
                delays = backoff.delays()
            await pause(woken, next(delays))

    async def _poll_in_turns(self) -> None:
        delays = self._probe.backoff.delays()
        while True:
            for target in [each for key, each in self._targets.items() if key not in self._over]:
                try:
                    await self._read(target)
                except KubeError as error:
                    if not self._is_permanent(target, error) and not isinstance(error, Invalid):
                        await self._probe.wait(error, delays, self._woken)
                else:
                    delays = self._probe.backoff.delays()
                    if _is_final(target):
                        self._over.add(target.key)
                await asyncio.sleep(self._turn_s)
            if self._over >= self._targets.keys():
                return

    def _is_permanent(self, target: Target, error: KubeError) -> bool:
        if isinstance(error, Forbidden):
            self.problem = error.why or error.what
            self._changed.set()
            self._on_change()
        elif isinstance(error, NotFound) or (isinstance(error, Invalid) and _is_final(target)):
            self._over.add(target.key)
        else:
            return False
        return True

    async def _read(self, target: Target, *, idle_s: float = 0.0) -> None:
        # With `idle_s` as a stream, until it is silent for so long.
        partial, is_stream = b"", idle_s > 0
        try:
            async with self._client.log(
                target.pod,
                target.namespace,
                container=target.container,
                follow=is_stream,
                tail=1,
                timestamps=True,
                idle_s=idle_s or REQUEST_S,
                open_s=REQUEST_S,
                is_urgent=False,
            ) as body:
                with translated(f"read the log of {target.pod}"):
                    async for chunk in body.iter_any():
                        partial = self._store_newest(target, partial + chunk)
                        # Its end may never come: this log would be read for ever, and the others never.
                        if not is_stream and len(partial) == MAX_LINE_BYTES:
                            break
            if partial and not is_stream:
                self._store_newest(target, partial + b"\n")
        finally:
            if (line := self._found.get(target.pod)) is not None:
                self._found[target.pod] = LastLine(line.stamp_ns, line.raw, self._now_s())

    def _store_newest(self, target: Target, read: bytes) -> bytes:
        # Returns the start of the line that has no end yet.
        end = read.rfind(b"\n")
        if end < 0:
            return read[:MAX_LINE_BYTES]
        before = self._found.get(target.pod)
        stamp_ns, text = 0, b""
        for line in reversed(read[:end].rsplit(b"\n", _LINES_SEARCHED)[-_LINES_SEARCHED:]):
            found_ns, start = read_stamp(line)
            stamp_ns = stamp_ns or found_ns
            text = line[start : start + MAX_LINE_BYTES]
            if text.strip():
                break
        if before is not None:
            stamp_ns, text = stamp_ns or before.stamp_ns, text if text.strip() else before.raw
        self._found[target.pod] = LastLine(stamp_ns, text)
        if before is None:
            self._on_change()
        return read[end + 1 :][:MAX_LINE_BYTES]

    def _now_s(self) -> float:
        return time.time() + self._client.server_clock_offset_s


def _is_final(target: Target) -> bool:
    return target.status in (Status.SUCCEEDED, Status.FAILED)
