"""Scalars of a run as event files; a full disk or a lost volume never ends training."""

import contextlib
import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from trainer.messages import log, log_error
from trainer.tfevents import EventWriter, Hparams

# Points kept in memory while they cannot be written; beyond it the oldest are lost.
LARGEST_BACKLOG = 20_000


class CurveWriter:
    """Writes scalars to an event file in `folder`; failed points are retried with the next ones."""

    def __init__(self, folder: Path, hparams: Hparams | None = None) -> None:
        """Open the file, and write the arguments of the run to it first."""
        self._folder = folder
        self._hparams = hparams
        self._events: EventWriter | None = None
        self._backlog: deque[tuple[str, int, float, float]] = deque(maxlen=LARGEST_BACKLOG)
        self._is_failing = False
        self._write_backlog()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of a step, by tag, and hand them to the operating system."""
        now = time.time()
        self._backlog.extend((tag, step, value, now) for tag, value in values.items())
        self._write_backlog()

    def close(self) -> None:
        """Close the file, and log if points are lost."""
        self._write_backlog()
        if self._is_failing:
            log_error(f"warning: The last points of the curves were not written to {self._folder}.")
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()

    def _write_backlog(self) -> None:
        try:
            if self._events is None:
                self._events = EventWriter(self._folder, flush_s=math.inf)
                if self._hparams:
                    self._events.write_hparams(self._hparams)
            while self._backlog:
                self._events.write_scalar(*self._backlog[0])
                self._backlog.popleft()
            self._events.flush()
        except OSError as error:
            if not self._is_failing:
                log_error(
                    f"warning: Curves cannot be written to {self._folder}. {error.strerror}."
                    " Training goes on; they are tried again with each line of progress."
                )
            self._is_failing = True
        else:
            if self._is_failing:
                log(f"curves are written to {self._folder} again")
            self._is_failing = False
