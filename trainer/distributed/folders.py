"""Folders that a trainer writes to, tried before anything is computed for them."""

import errno
import tempfile
from pathlib import Path

from trainer.messages import TrainingError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a write ends with when the disk, or the user's quota on it, is full."""


def check_folder(flag: str, folder: Path, may_be_full: bool) -> None:
    """Make a folder, and find out now whether it can be written.

    Args:
        flag: The argument that names it.
        folder: The folder.
        may_be_full: Whether a full disk is no reason to end.

    Raises:
        TrainingError: It cannot be.
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
