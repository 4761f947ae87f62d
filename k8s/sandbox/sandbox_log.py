"""The sandbox's own log: bounded, whatever others do to the sandbox."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

LOG_BYTES = 1024 * 1024
"""When a log is set aside as `.1`, in the place of the one before."""
RECORDS_PER_MINUTE = 20
"""From one line of the program; the others are counted."""
_WINDOW_S = 60.0
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RateLimit(logging.Filter):
    """Lets so many records a minute pass from each line of the program, and says how many it kept."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to write a record."""
        key = (record.pathname, record.lineno)
        now = self._clock()
        began, count = self._windows.get(key, (now, 0))
        if now - began >= _WINDOW_S:
            if count > RECORDS_PER_MINUTE:
                record.msg = (
                    f"{record.getMessage()} (and {count - RECORDS_PER_MINUTE} more that are not written)"
                )
                record.args = ()
            began, count = now, 0
        self._windows[key] = (began, count + 1)
        return count < RECORDS_PER_MINUTE


class SandboxLogHandler(RotatingFileHandler):
    """Writes to a file that is also the process's output, and takes that along when it begins a new one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")
        self._outputs = [each for each in (1, 2) if self._is_this_file(each)]
        self.setFormatter(logging.Formatter(_FORMAT))
        self.addFilter(RateLimit())

    def doRollover(self) -> None:
        """Begin a new file."""
        super().doRollover()
        with open(self.baseFilename, "ab") as fresh:
            for descriptor in self._outputs:
                os.dup2(fresh.fileno(), descriptor)

    def _is_this_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.baseFilename))
        except OSError:
            return False


def begin_log(path: Path) -> None:
    """Write all that this process logs into a file, a bounded amount of it."""
    sys.stdout.flush()
    logging.basicConfig(level=logging.INFO, handlers=[SandboxLogHandler(path)])
