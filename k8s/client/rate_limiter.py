"""How fast a cluster is asked: one bucket of tokens that every request of the program takes one from.

A cluster is shared with others, and it says so with 429 when it is asked too fast. What the
user waits for goes before what the console does by itself.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

PER_S = 10.0
"""Requests a second, in the long run."""
BURST = 20.0
"""Requests at once, after a while of silence."""
RESERVE = 64.0
"""Further requests at once that the user's own work may borrow: the logs of a job of 64 ranks."""
BACKGROUND_DELAY_S = 3.0
"""How much later than it came background work queues; from then on it may borrow too."""
LONGEST_PAUSE_S = 30.0
"""Longest pause that a server is granted at once. If it still is busy, it will ask for another."""

_is_background = ContextVar("is_background", default=False)


@contextmanager
def background_requests() -> Iterator[None]:
    """Let every request of the block, and of the tasks that it starts, queue as background work."""
    token = _is_background.set(True)
    try:
        yield
    finally:
        _is_background.reset(token)


class RateLimiter:
    """A token bucket with one queue: first come, first served, background work a little later."""

    def __init__(
        self,
        per_s: float = PER_S,
        burst: float = BURST,
        *,
        reserve: float = RESERVE,
        background_delay_s: float = BACKGROUND_DELAY_S,
    ) -> None:
        """Make a full bucket.

        Args:
            per_s: Tokens that come back a second.
            burst: Tokens in a full bucket.
            reserve: Tokens that may be borrowed; they come back before anything else goes.
            background_delay_s: How much later than it came background work queues.
        """
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
        """Return when a pause that the server asked for ends, by the event loop's clock; 0 without one."""
        is_over = self._paused_until_s <= asyncio.get_running_loop().time()
        return 0.0 if is_over else self._paused_until_s

    async def acquire(self, *, is_urgent: bool) -> None:
        """Take a token for one request; waits until there is one. If cancelled, it goes to another."""
        loop = asyncio.get_running_loop()
        waits = not is_urgent or _is_background.get()
        due_s = loop.time() + (self._background_delay_s if waits else 0.0)
        granted = loop.create_future()
        heapq.heappush(self._waiting, (due_s, next(self._numbers), granted))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it came to both at once: nothing will be sent
                self._tokens += 1
            self._grant()
            raise

    def pause(self, for_s: float) -> None:
        """Let nobody go for so long; after that begin slowly."""
        now = asyncio.get_running_loop().time()
        self._refill(now)
        self._tokens = min(self._tokens, 0.0)
        self._paused_until_s = max(self._paused_until_s, now + min(for_s, LONGEST_PAUSE_S))
        self._filled_at_s = self._paused_until_s
        self._grant()

    def _grant(self) -> None:
        """Grant turns to the first in the queue until the tokens are spent; come back when there are more."""
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
        """Return when the first in the queue may go: with a token, or when it is due with a borrowed one."""
        from_s = max(now, self._filled_at_s)
        with_own_s = from_s + max(0.0, 1 - self._tokens) / self._per_s
        with_borrowed_s = from_s + max(0.0, 1 - self._reserve - self._tokens) / self._per_s
        return min(with_own_s, max(due_s, with_borrowed_s))

    def _refill(self, now: float) -> None:
        if now > self._filled_at_s:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at_s) * self._per_s)
            self._filled_at_s = now
