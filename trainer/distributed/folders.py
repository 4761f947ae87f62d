"""Output folders and files, checked before training starts."""

import contextlib
import errno
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainer.messages import TrainingError, first_line

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_folder(flag: str, folder: Path, may_be_full: bool) -> None:
    """Make a folder, and check that it can be written.

    Args:
        flag: The argument that names it, for the message.
        folder: The folder.
        may_be_full: Accept a full disk.

    Raises:
        TrainingError: The folder cannot be written.
    """
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
    """Make the folder of a file, and check that the file can be written there.

    Raises:
        TrainingError: The file cannot be written.
    """
    if path.is_dir():
        raise TrainingError(f"{flag}: {path} is a folder.", now="Name a file.")
    check_folder(flag, path.parent, may_be_full=True)


def write_atomically(flag: str, path: Path, write: Callable[[Path], None]) -> None:
    """Write a temporary file and rename it, so that readers find the old or the complete new one.

    Args:
        flag: The argument that names it, for the message.
        path: The file; its folder is made.
        write: Writes the file that it is given; may raise OSError, or RuntimeError as torch does.

    Raises:
        TrainingError: The file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        why = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise TrainingError(
            f"Cannot write {path}.", f"{why}.", f"Choose another file with {flag}."
        ) from error
