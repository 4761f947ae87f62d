"""Hands on what is typed one key at a time, each when all that the one before it caused is done.

Keys that come in one packet, over SSH, by key repeat or from a script, then reach what they would have
reached had each come alone: focus moves, and screens come and go, by messages behind the key.
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
"""What a person sends to whatever has the focus."""
QUIET_TURNS = 4
"""Turns of the loop in which nothing happens, until a key's work is done: a worker takes one to begin."""
_SOON_TURNS = 50
"""Looks without a rest in between: most keys are done by then."""
_REST_S = 0.002
"""Between two looks after that."""
MOST_LOOKS = 1_000
"""Until a key waits no more: about two seconds. Looks are counted, for the work itself must not be the reason
that a key overtakes it: a slow machine takes longer for each look too."""


class KeyQueue:
    """What was typed and is not handed on yet. Nothing waits in it while the console is at rest."""

    def __init__(
        self, app: App[Any], hand_on: Callable[[Typed], Awaitable[None]], takes_keys: Callable[[], bool]
    ) -> None:
        """Queue keys for `app`.

        Args:
            app: Where they are typed.
            hand_on: Gives one to what has the focus; called among the app's own messages.
            takes_keys: Whether the screen on top can take a key at all; that is waited for without end.
        """
        self._app = app
        self._hand_on = hand_on
        self._takes_keys = takes_keys
        self._waiting: deque[Typed] = deque()
        self._holds: list[int] = []
        self._is_looking = False
        self._quiet_turns = self._looks = self._all_looks = 0

    @property
    def is_empty(self) -> bool:
        """Whether all that was typed was handed on, and what it caused is done."""
        return not self._is_looking and not self._is_busy(self._app)

    @property
    def has_keys(self) -> bool:
        """Whether something was typed that is not handed on yet."""
        return bool(self._waiting)

    async def put(self, typed: Typed) -> None:
        """Hand on a key or a paste, at once where nothing is before it. Called among the app's messages."""
        if self._is_looking or self._is_busy() or not self._takes_keys():
            self._waiting.append(typed)
            self._look_on()
        else:
            await self._hand_on_and_look(typed)

    def put_first(self, typed: Typed) -> None:
        """Hand on a key before all that wait: another key stands for it. Called in the loop."""
        self._waiting.appendleft(typed)
        self._look_on()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let keys wait, but for no more than `MOST_LOOKS`: see `keys_held`."""
        last_look = self._all_looks + MOST_LOOKS
        self._holds.append(last_look)
        try:
            yield
        finally:
            self._holds.remove(last_look)

    async def _hand_on_and_look(self, typed: Typed) -> None:
        self._is_looking = True
        try:
            await self._hand_on(typed)
        finally:
            self._is_looking = False
            self._look_on()

    def _look_on(self) -> None:
        """Look, from now on, whether all is done."""
        if not self._is_looking:
            self._is_looking = True
            self._quiet_turns = self._looks = 0
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Hand on the next key if all before it is done; else look again a little later."""
        loop = asyncio.get_running_loop()
        self._looks += 1
        self._all_looks += 1
        self._quiet_turns = 0 if self._is_busy(self._app) else self._quiet_turns + 1
        is_time = self._quiet_turns >= QUIET_TURNS or self._looks > MOST_LOOKS
        if not self._app.is_running or (is_time and not self._waiting):
            self._is_looking = False
        elif is_time and self._takes_keys():
            self._app.call_later(self._hand_on_next)
        elif self._quiet_turns or self._looks < _SOON_TURNS:
            loop.call_soon(self._look)
        else:
            loop.call_later(_REST_S, self._look)

    async def _hand_on_next(self) -> None:
        await self._hand_on_and_look(self._waiting.popleft())

    def _is_busy(self, *more: MessagePump) -> bool:
        """Tell whether what the user sees, or one of `more`, handles a message or has one to handle."""
        screens = self._app.screen_stack
        if any(last_look > self._all_looks for last_look in self._holds) or not screens:
            return True
        if screens[-1]._callbacks or any(map(_is_working, (*more, *screens))):
            return True
        return any(map(_is_working, screens[-1].walk_children(with_self=False)))


def keys_held(app: App[Any]) -> AbstractContextManager[None]:
    """Let what is typed wait, but not for ever, while a worker fetches what it is meant for.

    A worker that begins with a key and ends with another screen, or with the focus on another field, does in
    this context what takes time; an app without a queue, as in tests of one view, has nothing to wait.
    """
    queue = getattr(app, "key_queue", None)
    return queue.held() if isinstance(queue, KeyQueue) else nullcontext()


def _is_working(pump: MessagePump) -> bool:
    """Tell whether a widget, a screen or the app is in the middle of a message, or has one to handle.

    One that has nothing to do waits for its queue to be ready, and asyncio lists it among those who wait;
    Textual's `message_queue_size` does not count the message that is being handled.
    """
    if not isinstance(pump, App) and (pump._task is None or pump._task.done()):
        return False
    ready: asyncio.Event = pump._message_queue.ready_event
    return ready.is_set() or not getattr(ready, "_waiters")  # noqa: B009
