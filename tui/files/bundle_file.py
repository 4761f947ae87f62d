"""The file of a bundle: a `.tar.gz` written beside its place and renamed, readable by its owner only."""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from k8s.text.redact import Redactor
from tui.files.private_file import PrivateFile


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was written."""

    path: Path
    size_bytes: int
    parts: tuple[str, ...]
    """Names of its files."""
    problems: tuple[str, ...]
    """What could not be read, and why."""
    removed: Mapping[str, int] = field(hash=False)
    """What was redacted, and how often."""


class BundleFile:
    """The file as it grows, beside where it is to be; one thread redacts and packs, in order."""

    def __init__(self, path: Path) -> None:
        """Begin a file that is to be at `path`.

        Raises:
            OSError: Its folder cannot be written to.
        """
        self.redactor = Redactor()
        """What takes secrets out of the parts; it learns from each for the next."""
        self.parts: list[tuple[str, int]] = []
        """Names of the parts, and their bytes."""
        self.problems: list[str] = []
        """What could not be read, and why."""
        self._root = path.name.removesuffix(".gz").removesuffix(".tar") or "bundle"
        self._private = PrivateFile(path)
        self._gzip = gzip.GzipFile(filename="", fileobj=self._private.file, mode="wb", compresslevel=6)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)
        self._thread = ThreadPoolExecutor(1, "bundle")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the thread, and remove what was not finished."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        with self._private:
            for file in (self._tar, self._gzip):
                file.close()

    async def add(self, name: str, make: Callable[[], str]) -> None:
        """Add a part; `make` is called in the thread."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._add, name, make)

    def _add(self, name: str, make: Callable[[], str]) -> None:
        body = make().encode(errors="replace")
        entry = tarfile.TarInfo(f"{self._root}/{name}")
        entry.size, entry.mode, entry.mtime = len(body), 0o600, int(time.time())
        self._tar.addfile(entry, io.BytesIO(body))
        self.parts.append((name, len(body)))

    def finish(self) -> Bundle:
        """Put the file in its place."""
        self._thread.shutdown(wait=True)
        for file in (self._tar, self._gzip):
            file.close()
        size_bytes = self._private.file.tell()
        path = self._private.replace(fsync=True)
        names = tuple(name for name, _ in self.parts)
        return Bundle(path, size_bytes, names, tuple(self.problems), dict(self.redactor.removed))
