"""Private files that are written to a temporary file and renamed: complete, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class PrivateFile:
    """New file of mode 0600. An existing file or link at its path stays until `replace`."""

    def __init__(self, path: Path) -> None:
        """Start a file to be stored at `path`, in an existing folder.

        Raises:
            OSError: The folder is not writable.
        """
        self._path = path
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        self._temporary = Path(temporary)
        self.file = os.fdopen(handle, "wb")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; remove it unless it was moved to its path."""
        try:
            self.file.close()
        finally:
            self._temporary.unlink(missing_ok=True)

    def replace(self, path: Path | None = None) -> Path:
        """Move the file to its path, or to `path` in the same folder if that was taken, and return it."""
        self.file.close()
        path = path or self._path
        os.replace(self._temporary, path)
        return path


def make_private_folder(folder: Path) -> None:
    """Make a folder of mode 0700; an existing one stays unchanged."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private_file(path: Path, text: str) -> None:
    """Write a text file, creating its folder if necessary.

    Raises:
        OSError: The file could not be written; an existing file is unchanged.
    """
    make_private_folder(path.parent)
    with PrivateFile(path) as private:
        private.file.write(text.encode(errors="replace"))
        private.replace()
