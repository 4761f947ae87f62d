"""Output folders and files, checked before training starts."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from trainer.messages import TrainingError, first_line

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_folder(flag: str, folder: Path, may_be_full: bool) -> None:
    """Make the folder that `flag` names, and check that it can be written; a full disk may be accepted."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if may_be_full and error.errno in DISK_FULL:
            return
        raise TrainingError(
            f"Cannot write to {folder}.", f"{error.strerror}.", f"Choose another folder with {flag}."
        ) from error


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

    A reader finds the complete file or the old one, also after a crash.

    Args:
        path: The file.
        write: Writes into the open file that it is given; `torch.save` does.

    Raises:
        OSError: The file cannot be written.
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
