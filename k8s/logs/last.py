"""The time and text of the newest line of each container of a job.

Up to `MAX_STREAMS` logs are streamed, by the hub's readers. With more, one log at a time is read for
its last line, so that a job of a thousand pods costs the cluster no more than one of twenty.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from k8s.cluster.backoff import ServerProbe
from k8s.logs.follow import LogRequest
from k8s.logs.hub import LogHub, Subscription
from k8s.logs.lines import Item, LogLine, Mark, Marker, Target
from k8s.status import Status
from k8s.text.errors import Forbidden, Invalid, KubeError, NotFound

# With more logs than this, none is streamed.
MAX_STREAMS = 16
# Seconds between requests when logs are polled in turn.
TURN_S = 0.5
MAX_LINE_BYTES = 4096
# Before its container has run, an instance has no log.
_UNBEGUN = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)
_FINAL = (Status.SUCCEEDED, Status.FAILED)
# After these, no line comes until the log is read again.
_PAUSES = (Mark.LOST, Mark.ENDED, Mark.WAITING, Mark.NOTE)

_Key = tuple[str, str, str]


class LastLine(msgspec.Struct, frozen=True):
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
        hub: LogHub,
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
        self._hub = hub
        self._probe = probe or ServerProbe(hub.client)
        self._max_streams = max_streams
        self._turn_s = turn_s
        self._on_change = on_change
        self._targets: dict[_Key, Target] = {}
        # Logs that are read to their end, each with the status for which it was.
        self._over: set[tuple[_Key, str]] = set()
        self._streams: dict[_Key, Subscription] = {}
        self._tasks: dict[_Key | None, asyncio.Task[None]] = {}
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
            elif key in self._streams:
                self._streams[key].retarget(now[key])
        self._targets = now
        self._changed.set()
        self._woken.set()

    async def run(self) -> None:
        """Read logs until cancelled; then leave every stream."""
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
        for key, target in to_run.items():
            is_running = key in self._tasks and not self._tasks[key].done()
            if not is_running and (target is None or not self._is_over(target)):
                self._tasks[key] = group.create_task(
                    self._poll_in_turns() if target is None else self._stream(target)
                )

    def _is_over(self, target: Target) -> bool:
        return (target.key, target.status) in self._over

    def _end(self, target: Target, *, is_over: bool) -> None:
        # The line is not known to be the newest from now on.
        if (line := self._found.get(target.pod)) is not None:
            now_s = time.time() + self._hub.client.server_clock_offset_s
            self._found[target.pod] = replace(line, newest_until_s=line.newest_until_s or now_s)
        if is_over:
            self._over.add((target.key, target.status))

    async def _stream(self, target: Target) -> None:
        log = self._streams[target.key] = self._hub.open(target, LogRequest(tail=1))
        try:
            async with aclosing(log.batches()) as batches:
                async for batch in batches:
                    self._store(log.target, batch)
                    if log.refusal:
                        self._refuse(log.refusal)
                        return
        finally:
            self._end(log.target, is_over=log.is_over)
            self._streams.pop(target.key, None)

    async def _poll_in_turns(self) -> None:
        delays = self._probe.backoff.delays()
        while True:
            for target in [each for each in self._targets.values() if not self._is_over(each)]:
                stamp_ns = self._found.get(target.pod, LastLine()).stamp_ns
                try:
                    lines = await self._hub.read_tail(target, 1, newer_than_ns=stamp_ns, is_urgent=False)
                except Forbidden as error:
                    self._refuse(error.why or error.what)
                    return
                except (Invalid, NotFound) as error:
                    self._end(target, is_over=isinstance(error, NotFound) or target.status in _FINAL)
                except KubeError as error:
                    await self._probe.wait(error, delays, self._woken)
                else:
                    delays = self._probe.backoff.delays()
                    self._store(target, lines)
                    self._end(target, is_over=target.status in _FINAL)
                await asyncio.sleep(self._turn_s)
            if all(map(self._is_over, self._targets.values())):
                return

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        self._changed.set()
        self._on_change()

    def _store(self, target: Target, items: Sequence[Item]) -> None:
        before = self._found.get(target.pod)
        lines = [each for each in items if isinstance(each, LogLine)]
        if lines:
            was = before or LastLine()
            raw = next((each.raw for each in reversed(lines) if each.raw.strip()), was.raw)
            self._found[target.pod] = LastLine(lines[-1].stamp_ns or was.stamp_ns, raw[:MAX_LINE_BYTES])
            if before is None:
                self._on_change()
        # Nothing new was read, so it is still the newest.
        elif before is not None and all(_mark_of(each) is Mark.RECONNECTED for each in items):
            self._found[target.pod] = replace(before, newest_until_s=None)
        if items and _mark_of(items[-1]) in _PAUSES:
            self._end(target, is_over=False)


def _mark_of(item: Item) -> Mark | None:
    return item.mark if isinstance(item, Marker) else None
