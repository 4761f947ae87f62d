"""End a command that waits, and writes nothing meanwhile, when the reader of its output goes away."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_closed_pipe() -> Iterator[None]:
    """End the block when the reader of stdout goes away, also while nothing is written.

    Raises:
        BrokenPipeError: The reader of stdout went away.
    """
    loop, task, poll = asyncio.get_running_loop(), asyncio.current_task(), select.poll()
    is_closed = False

    def check() -> None:
        nonlocal is_closed
        # Called for input, too, where stdout is a socket or a terminal.
        loop.remove_reader(number)
        is_closed = any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
        if is_closed and task is not None:
            task.cancel()

    try:
        number = sys.stdout.fileno()
        poll.register(number, 0)
        loop.add_reader(number, check)
    except OSError:  # a file, or no stream of the system
        yield
        return
    try:
        yield
    except asyncio.CancelledError:
        if not is_closed or task is None or task.uncancel() > 0:
            raise
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
    finally:
        loop.remove_reader(number)
