"""Queue that hands on one key at a time, each after the effects of the previous one.

Keys that arrive in one packet (SSH, key repeat, scripts) thus reach the same targets as if typed
slowly: focus and screens change by messages behind the key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

Typed = events.Key | events.Paste
# Idle loop turns after which a key counts as handled: a worker takes one turn to start.
QUIET_TURNS = 4
# Polls without a pause in between: most keys are handled by then.
_SOON_TURNS = 50
_REST_S = 0.002
# About two seconds. Polls are counted instead of time, because on a slow machine each poll takes
# longer too, and the work itself must not be the reason that a key overtakes it.
MAX_POLLS = 1_000


class KeyQueue:
    """Keys and pastes that are not handed on yet. Empty while the console is idle."""

    def __init__(
        self, app: App[Any], hand_on: Callable[[Typed], Awaitable[None]], accepts_keys: Callable[[], bool]
    ) -> None:
        """Queue keys for `app`.

        Args:
            app: The app.
            hand_on: Sends a key to the focused widget; called among the app's own messages.
            accepts_keys: Returns False while the top screen cannot take keys; there is no timeout for it.
        """
        self._app = app
        self._hand_on = hand_on
        self._accepts_keys = accepts_keys
        self._waiting: deque[Typed] = deque()
        self._holds: list[int] = []
        self._is_polling = False
        self._idle_turns = self._polls = self._poll_count = 0

    @property
    def is_empty(self) -> bool:
        """Return True if all keys were handed on and their effects are done."""
        return not self._waiting and not self._is_polling and not self._is_busy(self._app)

    @property
    def has_keys(self) -> bool:
        """Return True if keys are waiting."""
        return bool(self._waiting)

    async def put(self, typed: Typed) -> None:
        """Hand on a key or paste, at once if nothing is before it. Called among the app's messages."""
        if self._is_polling or self._is_busy() or not self._accepts_keys():
            self._waiting.append(typed)
            self._poll_again()
        else:
            await self._forward_and_poll(typed)

    def push_first(self, typed: Typed) -> None:
        """Hand on a key before all waiting ones: it replaces another key. Called in the loop."""
        self._waiting.appendleft(typed)
        self._poll_again()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let keys wait, but for at most `MAX_POLLS` polls: see `keys_held`."""
        last_poll = self._poll_count + MAX_POLLS
        self._holds.append(last_poll)
        try:
            yield
        finally:
            self._holds.remove(last_poll)

    async def _forward_and_poll(self, typed: Typed) -> None:
        self._is_polling = True
        try:
            await self._hand_on(typed)
        finally:
            self._is_polling = False
            self._poll_again()

    def _poll_again(self) -> None:
        if not self._is_polling:
            self._is_polling = True
            self._idle_turns = self._polls = 0
            asyncio.get_running_loop().call_soon(self._poll)

    def _poll(self) -> None:
        # Hands on the next key if the effects of the previous one are done, else polls again later.
        loop = asyncio.get_running_loop()
        self._polls += 1
        self._poll_count += 1
        self._idle_turns = 0 if self._is_busy(self._app) else self._idle_turns + 1
        is_time = self._idle_turns >= QUIET_TURNS or self._polls > MAX_POLLS
        if not self._app.is_running or (is_time and not self._waiting):
            self._is_polling = False
        elif is_time and self._accepts_keys():
            self._app.call_later(self._hand_on_next)
        elif self._idle_turns or self._polls < _SOON_TURNS:
            loop.call_soon(self._poll)
        else:
            loop.call_later(_REST_S, self._poll)

    async def _hand_on_next(self) -> None:
        await self._forward_and_poll(self._waiting.popleft())

    def _is_busy(self, *more: MessagePump) -> bool:
        return any(last_poll > self._poll_count for last_poll in self._holds) or is_working(self._app, *more)


def keys_held(app: App[Any]) -> AbstractContextManager[None]:
    """Hold typed keys, for a limited time, while a worker fetches their target.

    Use it around the slow part of a worker that begins with a key and ends with another screen or
    focus. An app without a queue, as in tests of one view, has nothing to hold.
    """
    queue = getattr(app, "key_queue", None)
    return queue.held() if isinstance(queue, KeyQueue) else nullcontext()


def is_working(app: App[Any], *more: MessagePump) -> bool:
    """Return True if a screen, a widget of the top one or `more` handles a message, or there is no screen."""
    screens = app.screen_stack
    if not screens or screens[-1]._callbacks or any(map(_is_working, (*more, *screens))):
        return True
    return any(map(_is_working, screens[-1].walk_children(with_self=False)))


def _is_working(pump: MessagePump) -> bool:
    # An idle pump waits for its queue's event, so asyncio lists a waiter there. Textual's
    # `message_queue_size` does not count the message that is being handled.
    if not isinstance(pump, App) and (pump._task is None or pump._task.done()):
        return False
    ready: asyncio.Event = pump._message_queue.ready_event
    return ready.is_set() or not getattr(ready, "_waiters")  # noqa: B009
