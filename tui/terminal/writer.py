"""Terminal output in a thread, so that a terminal that does not read blocks nothing.

The buffer is bounded: a stuck terminal gets nothing more, and once it reads again, `emptied`
reports that the screen must be repainted.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

# A terminal that has read nothing for this long is stuck.
STUCK_S = 1.0
# Limit in addition to one frame; a frame of 200 x 60 needs a tenth of it.
LARGEST_CHARACTERS = 256 * 1024
# Bytes per write, so that a slow terminal is not mistaken for a stuck one.
_PIECE_BYTES = 4096

Emptied = Callable[[float, bool], None]
"""Called in the writer's thread when all is written: with the seconds it took, and whether data was dropped.
"""


class TerminalWriter:
    """Output of one terminal. No method waits for the terminal, except `close`, which has a timeout."""

    def __init__(self, fd: int, encoding: str, emptied: Emptied, hung_up: Callable[[], None]) -> None:
        """Start writing to `fd`; `hung_up` is called in the writer's thread when the terminal is gone."""
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
        """Return True if all is written."""
        return self._busy_since_s is None

    @property
    def stuck_at_s(self) -> float:
        """The monotonic time at which the terminal counts as stuck unless it reads before."""
        return self._progress_s + STUCK_S

    @property
    def is_stuck(self) -> bool:
        """Return True if the terminal does not read."""
        return not self.is_empty and time.monotonic() >= self.stuck_at_s

    def write(self, text: str) -> None:
        """Queue a text; it is dropped if the terminal is stuck."""
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
        """Drop everything that is not being written yet, so that the next write comes first."""
        with self._changed:
            self._is_missing_some = self._is_missing_some or bool(self._waiting)
            self._waiting.clear()
            self._waiting_characters = 0
            self._progress_s = time.monotonic()

    def close(self, timeout_s: float) -> bool:
        """Write what is queued and stop, or give up after a timeout. Return True if all was written."""
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
                self._record_written()
        except OSError:
            with self._changed:
                self._is_closing = True
                self._waiting.clear()
            self._hung_up()

    def _next(self) -> str:
        # Empty at the end.
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

    def _record_written(self) -> None:
        with self._changed:
            if self._waiting or self._busy_since_s is None:
                return
            took_s = time.monotonic() - self._busy_since_s
            is_missing_some, self._is_missing_some = self._is_missing_some, False
            self._busy_since_s = None
        if not self._is_closing:
            self._emptied(took_s, is_missing_some)
