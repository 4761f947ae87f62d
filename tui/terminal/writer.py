"""Writes to the terminal in a thread of its own, so that a terminal which does not read holds nobody up.

What lies here is bounded: a terminal that is stuck is given nothing more, and once
it reads again `emptied` says that the screen must be painted anew.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

STUCK_S = 1.0
"""A terminal that has taken nothing for so long is stuck."""
LARGEST_CHARACTERS = 256 * 1024
"""What may lie here besides one frame: a terminal of 200 x 60 needs a tenth of it for a frame."""
_PIECE_BYTES = 4096
"""Written at a time, so that a slow terminal is seen to be no stuck one."""

Emptied = Callable[[float, bool], None]
"""Called in the writer's thread when all is written: after how many seconds, and if anything is missing."""


class TerminalWriter:
    """One terminal's output. No method waits for the terminal, but `close`, and that not for long."""

    def __init__(self, fd: int, encoding: str, emptied: Emptied, hung_up: Callable[[], None]) -> None:
        """Begin to write to `fd`; `hung_up` is called in the writer's thread when the terminal is gone."""
        self._fd = fd
        self._encoding = encoding
        self._emptied = emptied
        self._hung_up = hung_up
        # A signal may be handled in the middle of `write`, and write too: Condition's lock lets it.
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._waiting_characters = 0
        self._busy_since_s: float | None = None
        self._progress_s = 0.0
        self._is_missing_some = self._is_closing = self._is_cut = False
        self._thread = threading.Thread(target=self._run, name="gpuconsole-output", daemon=True)
        self._thread.start()

    @property
    def is_empty(self) -> bool:
        """Whether all is written."""
        return self._busy_since_s is None

    @property
    def stuck_at_s(self) -> float:
        """When the terminal will count as stuck if it takes nothing until then, by the monotonic clock."""
        return self._progress_s + STUCK_S

    @property
    def is_stuck(self) -> bool:
        """Whether the terminal does not read."""
        return not self.is_empty and time.monotonic() >= self.stuck_at_s

    def write(self, text: str) -> None:
        """Have a text written; one that would have to wait for a stuck terminal is dropped."""
        if not text:
            return
        with self._changed:
            is_full = self._waiting_characters + len(text) > LARGEST_CHARACTERS
            if self._is_closing or (not self.is_empty and (is_full or self.is_stuck)):
                self._is_missing_some = True
                return
            if self._busy_since_s is None:
                self._busy_since_s = self._progress_s = time.monotonic()
            self._waiting.append(text)
            self._waiting_characters += len(text)
            self._changed.notify()

    def drop(self) -> None:
        """Forget what is not being written yet, so that what comes now is next."""
        with self._changed:
            self._is_missing_some = self._is_missing_some or bool(self._waiting)
            self._waiting.clear()
            self._waiting_characters = 0
            self._progress_s = time.monotonic()

    def close(self, timeout_s: float) -> bool:
        """Write what is here and end; after a time give up. Return whether all was written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self._is_cut = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while text := self._next():
                self._put(memoryview(text.encode(self._encoding, "replace")))
                self._note_written()
        except OSError:
            with self._changed:
                self._is_closing = True
                self._waiting.clear()
            self._hung_up()

    def _next(self) -> str:
        """Wait for what to write; nothing at the end."""
        with self._changed:
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            text = "" if self._is_cut else "".join(self._waiting)
            self._waiting.clear()
            self._waiting_characters = 0
            return text

    def _put(self, left: memoryview) -> None:
        while left and not self._is_cut:
            try:
                left = left[os.write(self._fd, left[:_PIECE_BYTES]) :]
            except BlockingIOError:  # another program has left the terminal in this mode
                select.select([], [self._fd], [])
            self._progress_s = time.monotonic()

    def _note_written(self) -> None:
        with self._changed:
            if self._waiting or self._busy_since_s is None:
                return
            took_s = time.monotonic() - self._busy_since_s
            is_missing_some, self._is_missing_some = self._is_missing_some, False
            self._busy_since_s = None
        if not self._is_closing:
            self._emptied(took_s, is_missing_some)
