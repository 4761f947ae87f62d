"""Waiting until an app has handled all messages, however slow the machine is.

Textual's pilot measures the CPU time of the process: one that gets none on a loaded machine looks idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from textual._context import active_app
from textual.app import App
from textual.pilot import Pilot

from tests.scripted.server import WAIT_S
from tui.terminal.driver import PacedApp
from tui.terminal.key_queue import is_working

# Turns of the loop in which nothing happens, until an app counts as idle: a key takes some to arrive
QUIET_TURNS = 10
MAX_POLLS = 1_000  # polls until waiting ends: the handler of a message may wait for what the test does next
LEAST_S = 0.02  # shortest duration of a pause, as of Textual's: timers end meanwhile


async def until_handled(*_: float) -> None:
    """Wait until no message waits or is being handled, and typed keys were handed on."""
    app = active_app.get(None)
    callbacks: Collection[object] = getattr(asyncio.get_running_loop(), "_ready")  # noqa: B009
    quiet_turns = polls = 0
    was_alone = False
    while app is not None and app.is_running and quiet_turns < QUIET_TURNS and polls < MAX_POLLS:
        polls += 1
        # Polling every widget is slow. If nothing else ran since the last quiet turn, nothing has changed.
        is_alone = not callbacks
        is_unchanged = quiet_turns > 0 and was_alone and is_alone
        quiet_turns = quiet_turns + 1 if is_unchanged or not _is_busy(app) else 0
        was_alone = is_alone
        await asyncio.sleep(0 if quiet_turns else 0.001)


async def pause(*_: float) -> None:
    """Wait for a moment, and until everything that has come by then is handled and drawn."""
    await asyncio.sleep(LEAST_S)
    await until_drawn()


async def until_drawn() -> None:
    """Wait until everything that has come by now is handled and drawn."""
    await until_handled()
    app = active_app.get(None)
    for _ in range(MAX_POLLS):
        if app is None or not app.is_running or not _has_to_draw(app):
            return
        await asyncio.sleep(0.001)
        await until_handled()


def _has_to_draw(app: App[Any]) -> bool:
    # Layout only: a spinner is drawn all the time.
    top = app._screen_stack[-1] if app._screen_stack else None
    return top is not None and (top._layout_required or bool(top._callbacks))


def _is_busy(app: App[Any]) -> bool:
    return is_working(app, app) or (isinstance(app, PacedApp) and not app.key_queue.is_empty)


async def until(pilot: Pilot[Any], is_so: Callable[[], object]) -> None:
    """Let the app go on until a condition holds.

    Raises:
        TimeoutError: It did not hold within `WAIT_S`.
    """
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await pilot.pause(0.01)
