"""Knows when each container of a job last printed and what, and asks no more than that takes.

A few logs are streamed, of which only the newest line is ever looked at. Of many, one after the
other is asked for its last line, so that a job of a thousand pods costs no more than one of twenty.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from k8s.client.client import REQUEST_S, Client
from k8s.client.transport import query_of, translated
from k8s.errors import Forbidden, Invalid, KubeError, NotFound
from k8s.logs.lines import Target, read_stamp
from k8s.models.resources import PODS
from k8s.status import Status
from k8s.watch.backoff import ServerProbe, pause

MAX_STREAMS = 16
"""Logs that are streamed; where there are more, none is."""
TURN_S = 0.5
"""Between two requests where logs are asked in turns."""
WAITING_S = 10.0
"""Before a container is asked again that has not started, unless its status changes."""
KEPT_BYTES = 4096
"""Bytes that are kept of a line."""
_UNBEGUN = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)
"""What an instance is before its container has run: there is no log to ask for."""
_LOOKED_BACK = 8
"""Lines of one piece of a stream that are looked through for one that is not empty."""


@dataclass(frozen=True, slots=True)
class LastLine:
    """The newest line of one log."""

    stamp_ns: int = 0
    """When it was written, in ns since 1970 by its node's clock; 0 when it has printed nothing."""
    raw: bytes = b""
    """The newest line that is not empty, as its process wrote it. Make it harmless before it is shown."""
    looked_s: float | None = None
    """Until when it is known to be the newest, in s since 1970 by the server's clock; None: until now."""

    def silent_s(self, now_s: float) -> float | None:
        """Return for how long nothing was printed, as far as is known; None when nothing ever was.

        Args:
            now_s: This moment by the server's clock, in s since 1970.
        """
        if not self.stamp_ns:
            return None
        return max(0.0, (now_s if self.looked_s is None else self.looked_s) - self.stamp_ns / 1e9)


class LastLines:
    """The newest line of each of a job's logs, for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        probe: ServerProbe | None = None,
        *,
        max_streams: int = MAX_STREAMS,
        turn_s: float = TURN_S,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing is asked until `run`.

        Args:
            client: The cluster.
            probe: Where to wait while the cluster is away.
            max_streams: How many logs are streamed; if there are more, they are asked in turns.
            turn_s: Between two such questions.
            on_change: Called when a log has its first line, and when `problem` changes; must return at once.
        """
        self._found: dict[str, LastLine] = {}
        self.newest: Mapping[str, LastLine] = self._found
        """By the name of its pod. Changed in place."""
        self.problem = ""
        """Why no log may be read, in the server's words; empty while they may."""
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
        """Tell whether the logs are too many to be streamed."""
        return len(self._targets) > self._max_streams

    @property
    def round_s(self) -> float:
        """Return how long it takes to ask each log once; 0 where they are streamed."""
        return len(self._targets) * self._turn_s if self.is_polled else 0.0

    def set_targets(self, targets: Iterable[Target]) -> None:
        """Take over which containers the job has now, and how they are; those that never ran are left out."""
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
        """Look until cancelled; then every connection is closed."""
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
        """Have one task for each log, or where there are too many one for all."""
        to_run = {} if self.problem else {None: None} if self.is_polled else dict(self._targets)
        for key in [key for key in self._tasks if key not in to_run]:
            self._tasks.pop(key).cancel()
        for key in to_run:
            if key in self._over or (key in self._tasks and not self._tasks[key].done()):
                continue
            self._tasks[key] = group.create_task(self._stream(key) if key else self._ask_in_turns())

    async def _stream(self, key: tuple[str, str, str]) -> None:
        """Read one log for as long as it grows."""
        woken = self._woken
        backoff = self._probe.backoff
        delays = backoff.delays()
        while (target := self._targets.get(key)) is not None:
            began_s = time.monotonic()
            try:
                await self._read(target, is_stream=not _is_final(target))
            except KubeError as error:
                if self._is_settled(target, error):
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

    async def _ask_in_turns(self) -> None:
        """Ask every log for its last line, one after the other and for ever."""
        delays = self._probe.backoff.delays()
        while True:
            for target in [each for key, each in self._targets.items() if key not in self._over]:
                try:
                    await self._read(target, is_stream=False)
                except KubeError as error:
                    if not self._is_settled(target, error) and not isinstance(error, Invalid):
                        await self._probe.wait(error, delays, self._woken)
                else:
                    delays = self._probe.backoff.delays()
                    if _is_final(target):
                        self._over.add(target.key)
                await asyncio.sleep(self._turn_s)
            if self._over >= self._targets.keys():
                return

    def _is_settled(self, target: Target, error: KubeError) -> bool:
        """Tell whether an error is the answer: there is no such log, or none may be read."""
        if isinstance(error, Forbidden):
            self.problem = error.why or error.what
            self._changed.set()
            self._on_change()
        elif isinstance(error, NotFound) or (isinstance(error, Invalid) and _is_final(target)):
            self._over.add(target.key)
        else:
            return False
        return True

    async def _read(self, target: Target, *, is_stream: bool) -> None:
        """Read the last line, and with `is_stream` those that come after it.

        Raises:
            KubeError: It cannot be read, or the connection broke.
        """
        doing = f"read the log of {target.pod}"
        query = query_of(
            container=target.container,
            follow="true" if is_stream else "",
            tailLines="1",
            timestamps="true",
        )
        path = PODS.path(target.namespace, target.pod, "log")
        rest = b""
        try:
            async with self._client.stream(
                "GET",
                path,
                doing,
                query=query,
                idle_s=self._probe.backoff.idle_s if is_stream else REQUEST_S,
                open_s=REQUEST_S,
                is_urgent=False,
            ) as body:
                with translated(doing):
                    async for chunk in body.iter_any():
                        rest = self._take(target, rest + chunk)
            if rest and not is_stream:
                self._take(target, rest + b"\n")
        finally:
            if (line := self._found.get(target.pod)) is not None:
                self._found[target.pod] = LastLine(line.stamp_ns, line.raw, self._now_s())

    def _take(self, target: Target, read: bytes) -> bytes:
        """Keep the newest line of what was read; return the start of the line that has no end yet."""
        end = read.rfind(b"\n")
        if end < 0:
            return read[:KEPT_BYTES]
        before = self._found.get(target.pod)
        stamp_ns, text = 0, b""
        for line in reversed(read[:end].rsplit(b"\n", _LOOKED_BACK)[-_LOOKED_BACK:]):
            found_ns, start = read_stamp(line)
            stamp_ns = stamp_ns or found_ns
            text = line[start : start + KEPT_BYTES]
            if text.strip():
                break
        if before is not None:
            stamp_ns, text = stamp_ns or before.stamp_ns, text if text.strip() else before.raw
        self._found[target.pod] = LastLine(stamp_ns, text)
        if before is None:
            self._on_change()
        return read[end + 1 :][:KEPT_BYTES]

    def _now_s(self) -> float:
        return time.time() + self._client.server_clock_offset_s


def _is_final(target: Target) -> bool:
    return target.status in (Status.SUCCEEDED, Status.FAILED)
