"""Files that only their owner may read, written beside their place and renamed: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class PrivateFile:
    """A file of mode 0600 as it grows; what it replaces, a link too, stays until it takes its place."""

    def __init__(self, path: Path) -> None:
        """Begin a file that is to be at `path`, in a folder that is there.

        Raises:
            OSError: The folder cannot be written to.
        """
        self._path = path
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        self._temporary = Path(temporary)
        self.file = os.fdopen(handle, "wb")
        """Where to write."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what has not taken its place."""
        try:
            self.file.close()
        finally:
            self._temporary.unlink(missing_ok=True)

    def replace(self, path: Path | None = None, *, fsync: bool = False) -> Path:
        """Put the file at its path, or at another one of the same folder, and return that.

        Args:
            path: Where else, when its own name was taken meanwhile.
            fsync: Have it on the disk first, for what nobody could write again.
        """
        self.file.flush()
        if fsync:
            os.fsync(self.file.fileno())
        self.file.close()
        path = path or self._path
        os.replace(self._temporary, path)
        return path


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter; one that is there stays as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private_file(path: Path, text: str) -> None:
    """Write a text to a file, and make its folder where there is none.

    Raises:
        OSError: It could not be written; the file is as it was then.
    """
    make_private_folder(path.parent)
    with PrivateFile(path) as private:
        private.file.write(text.encode(errors="replace"))
        private.replace()
