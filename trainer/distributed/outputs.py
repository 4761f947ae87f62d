"""Output of rank 0: folders and files, checked before training starts, and the curves of a run."""

import contextlib
import errno
import math
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, cast

from trainer.messages import TrainingError, first_line, log, log_error
from trainer.tfevents import EventWriter, Hparams

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Points kept in memory while they cannot be written; beyond it the oldest are lost.
LARGEST_BACKLOG = 20_000


def check_folder(flag: str, folder: Path, may_be_full: bool) -> None:
    """Make the folder that `flag` names, and check that it can be written; a full disk may be accepted."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if may_be_full and error.errno in DISK_FULL:
            return
        now = f"Choose another folder with {flag}."
        raise TrainingError(f"Cannot write to {folder}.", f"{error.strerror}.", now) from error


def check_file(flag: str, path: Path) -> None:
    """Make the folder of a file, and check that the file can be written there."""
    if path.is_dir():
        raise TrainingError(f"{flag}: {path} is a folder.", now="Name a file.")
    check_folder(flag, path.parent, may_be_full=True)


def write_atomically(flag: str, path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write the file that `flag` names: see `replace_file`."""
    try:
        replace_file(path, write)
    except OSError as error:
        why = error.strerror or first_line(error)
        raise TrainingError(
            f"Cannot write {path}.", f"{why}.", f"Choose another file with {flag}."
        ) from error


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a temporary file, flush it to the disk, and rename it; makes the folder.

    A reader finds the complete file or the old one, also after a crash. `write` gets the open file.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            recorder = _ErrorRecorder(file)
            try:
                write(cast(IO[bytes], recorder))
            except RuntimeError as error:
                # torch reports only that its own count of bytes is wrong.
                raise recorder.error or OSError(first_line(error)) from error
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


class _ErrorRecorder:
    """A writable file that remembers its first error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None
        self.flush = file.flush

    def write(self, content: bytes) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = self.error or error
            raise


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk; without it, a new one may not survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class CurveWriter:
    """Writes scalars to an event file in `folder`; failed points are retried with the next ones."""

    def __init__(self, folder: Path, hparams: Hparams | None = None) -> None:
        """Open the file, and write the arguments of the run to it first."""
        self._folder, self._hparams = folder, hparams
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
