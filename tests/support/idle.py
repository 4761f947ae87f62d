"""Waiting until an app has dealt with what it was sent, however slow the machine is.

Textual's pilot looks at the CPU time of the process: one that gets no turn on a loaded machine looks idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from textual._context import active_app
from textual.app import App
from textual.pilot import Pilot

from tests.scripted.server import WAIT_S
from tui.terminal.key_queue import KeyQueue, _is_working

QUIET_TURNS = 10
"""Turns of the loop in which nothing happens, until all is dealt with: a key takes some to arrive."""
MAX_POLLS = 1_000
"""Until no more is waited for: what handles a message may wait for what the test does next."""
LEAST_S = 0.02
"""What a pause takes at least, as Textual's does: timers end meanwhile."""


async def until_handled(*_: float) -> None:
    """Wait until no message waits or is being handled, and a key that was typed was handed on."""
    app = active_app.get(None)
    callbacks: Collection[object] = getattr(asyncio.get_running_loop(), "_ready")  # noqa: B009
    quiet_turns = polls = 0
    was_alone = False
    while app is not None and app.is_running and quiet_turns < QUIET_TURNS and polls < MAX_POLLS:
        polls += 1
        # Asking every widget is slow. If nothing else ran since the last quiet turn, nothing has changed.
        is_alone = not callbacks
        is_unchanged = quiet_turns > 0 and was_alone and is_alone
        quiet_turns = quiet_turns + 1 if is_unchanged or not _is_busy(app) else 0
        was_alone = is_alone
        await asyncio.sleep(0 if quiet_turns else 0.001)


async def pause(*_: float) -> None:
    """Wait a moment, and until all is dealt with that has come by then, and drawn."""
    await asyncio.sleep(LEAST_S)
    await until_drawn()


async def until_drawn() -> None:
    """Wait until all is dealt with that has come by now, and drawn."""
    await until_handled()
    app = active_app.get(None)
    for _look in range(MAX_POLLS):
        if app is None or not app.is_running or not _has_to_draw(app):
            return
        await asyncio.sleep(0.001)
        await until_handled()


def _has_to_draw(app: App[Any]) -> bool:
    """Tell whether the next frame will show something new; what is drawn all the time does not count."""
    top = app._screen_stack[-1] if app._screen_stack else None
    return top is not None and (top._layout_required or bool(top._callbacks))


def _is_busy(app: App[Any]) -> bool:
    queue, screens = getattr(app, "key_queue", None), app._screen_stack
    if not screens or (isinstance(queue, KeyQueue) and not queue.is_empty):
        return True
    top = screens[-1]
    return bool(top._callbacks) or any(map(_is_working, (app, *screens, *top.walk_children())))


async def until(pilot: Pilot[Any], is_so: Callable[[], object]) -> None:
    """Let the app go on until something is so.

    Raises:
        TimeoutError: It never came to be so.
    """
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await pilot.pause(0.01)
