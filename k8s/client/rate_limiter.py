"""Client-side rate limit: one token bucket for all requests of the program.

A cluster is shared, and answers 429 when it gets too many requests. Requests that the user waits
for go before those that the console makes by itself.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

# Requests a second, in the long run.
PER_S = 10.0
# Requests at once, after a while of silence.
BURST = 20.0
# Further requests at once that urgent work may borrow: the logs of a job of 64 ranks.
RESERVE = 64.0
# Background requests queue as if they had come this much later; from then on they may borrow, too.
BACKGROUND_DELAY_S = 3.0
# Longest pause granted to a server at once; if it is still busy, it asks again.
LONGEST_PAUSE_S = 30.0

_is_background = ContextVar("is_background", default=False)


@contextmanager
def background_requests() -> Iterator[None]:
    """Make every request in the block, and in tasks started there, queue as background work."""
    token = _is_background.set(True)
    try:
        yield
    finally:
        _is_background.reset(token)


class RateLimiter:
    """Token bucket with one queue in order of arrival; background work counts as a little later."""

    def __init__(
        self,
        per_s: float = PER_S,
        burst: float = BURST,
        *,
        reserve: float = RESERVE,
        background_delay_s: float = BACKGROUND_DELAY_S,
    ) -> None:
        self._per_s, self._burst, self._reserve, self._background_delay_s = (
            per_s,
            burst,
            reserve,
            background_delay_s,
        )
        self._tokens = burst
        self._filled_at_s = 0.0
        self._paused_until_s = 0.0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def paused_until_s(self) -> float:
        """Return the end of a pause that the server asked for, by the event loop's clock; 0 without one."""
        is_over = self._paused_until_s <= asyncio.get_running_loop().time()
        return 0.0 if is_over else self._paused_until_s

    async def acquire(self, *, is_urgent: bool) -> None:
        """Wait for a token for one request. If cancelled, the token goes to the next in the queue."""
        loop = asyncio.get_running_loop()
        is_background = not is_urgent or _is_background.get()
        due_s = loop.time() + (self._background_delay_s if is_background else 0.0)
        granted = loop.create_future()
        heapq.heappush(self._waiting, (due_s, next(self._numbers), granted))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # granted and cancelled at the same moment: give the token back
                self._tokens += 1
            self._grant()
            raise

    def pause(self, for_s: float) -> None:
        """Grant nothing for `for_s`; after that, start with an empty bucket."""
        now = asyncio.get_running_loop().time()
        self._refill(now)
        self._tokens = min(self._tokens, 0.0)
        self._paused_until_s = max(self._paused_until_s, now + min(for_s, LONGEST_PAUSE_S))
        self._filled_at_s = self._paused_until_s
        self._grant()

    def _grant(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._refill(now)
        while self._waiting:
            due_s, _, granted = self._waiting[0]
            if not granted.done():
                ready_s = self._ready_s(now, due_s)
                if ready_s > now:
                    self._timer = loop.call_at(ready_s, self._grant)
                    return
                self._tokens -= 1
                granted.set_result(None)
            heapq.heappop(self._waiting)

    def _ready_s(self, now: float, due_s: float) -> float:
        # The first in the queue needs a token; from `due_s` on, a borrowed one will do.
        from_s = max(now, self._filled_at_s)
        with_own_s = from_s + max(0.0, 1 - self._tokens) / self._per_s
        with_borrowed_s = from_s + max(0.0, 1 - self._reserve - self._tokens) / self._per_s
        return min(with_own_s, max(due_s, with_borrowed_s))

    def _refill(self, now: float) -> None:
        if now > self._filled_at_s:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at_s) * self._per_s)
            self._filled_at_s = now
