"""Immediate exit on ctrl+c, whatever a command is waiting for.

asyncio only cancels a task, which has no effect while no task is waiting: during a write to a
sleeping reader, or a file or name lookup in a thread.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, Self

from tui.terminal.tty_state import EXIT_CODES, end

# If the loop does not turn within this time after ctrl+c, the process is ended.
STUCK_S = 1.0
_STATUS = EXIT_CODES[signal.SIGINT]


def run_until_ctrl_c(work: Coroutine[Any, Any, int]) -> int:
    """Run a command, or cancel it at ctrl+c; end the process at a second ctrl+c, or if the loop is stuck.

    Raises:
        KeyboardInterrupt: Ctrl+c was pressed, and the command has cleaned up.
    """
    with asyncio.Runner() as runner, _Interrupts(runner.get_loop()) as interrupts:
        try:
            status = runner.run(interrupts.cancelling(work))
            if interrupts.is_pressed:
                raise KeyboardInterrupt
            return status
        except (asyncio.CancelledError, KeyboardInterrupt):
            # What a thread still does is nobody's any more: the loop would wait for it.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
            raise KeyboardInterrupt from None


def leave() -> None:
    """End the process after ctrl+c if it would not end by itself: busy threads, a sleeping reader."""
    if threading.current_thread() is not threading.main_thread():
        return
    watchdog = threading.Timer(STUCK_S, end, [_STATUS])
    watchdog.daemon = True
    watchdog.start()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
        end(_STATUS)
    watchdog.cancel()


class _Interrupts:
    """# Inactive if SIGINT is ignored, or if the loop does not run in the main thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_pressed = False
        self._loop = loop
        self._task: asyncio.Task[int] | None = None
        self._turned = threading.Event()
        self._ended = ExitStack()

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # No handler runs where the main thread enters a call that blocks just then: a thread hears of it.
            reader, writer = map(self._ended.enter_context, socket.socketpair())
            watching = threading.Thread(target=self._watch, args=[reader], daemon=True)
            watching.start()
            self._ended.callback(watching.join)
            self._ended.callback(writer.shutdown, socket.SHUT_WR)
            self._ended.callback(self._turned.set)
            writer.setblocking(False)
            self._ended.callback(signal.set_wakeup_fd, -1)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._ended.close()

    @property
    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGINT) == self._caught

    async def cancelling(self, work: Coroutine[Any, Any, int]) -> int:
        # Ctrl+c may have been pressed before the task existed.
        self._task = asyncio.current_task()
        if self.is_pressed:
            work.close()
            raise asyncio.CancelledError
        return await work

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_pressed:
            end(_STATUS)
        self.is_pressed = True
        if self._task is not None:
            self._task.cancel()
        self._loop.call_soon_threadsafe(_nothing)  # wakes the loop

    def _watch(self, reader: socket.socket) -> None:
        # Ends the process if the loop does not turn after ctrl+c.
        while numbers := reader.recv(64):
            if signal.SIGINT in numbers and self._is_ours:
                self._loop.call_soon_threadsafe(self._turned.set)
                if not self._turned.wait(STUCK_S):
                    end(_STATUS)


def _nothing() -> None:
    pass
