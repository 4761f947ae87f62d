"""A container's log file: CRI records, `TIME stream F text`, back to the lines a process wrote.

A line longer than 16 KiB is several records, all but the last tagged `P`. The text is
bytes: nothing here decodes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

from k8s.sandbox.api.streams.rotated_log import RotatedLog

BLOCK_BYTES = 256 * 1024
"""How much is read at once."""


class LogBytes(Protocol):
    """A file, or several one after the other."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a byte, counted from the beginning, or from the end where `whence` is 2."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end."""

    def close(self) -> None:
        """Close it."""


class LogFile:
    """Reads a log from wherever it stands, as often as something may have been added."""

    def __init__(self, file: LogBytes, *, timestamps: bool = False, since: str = "") -> None:
        """Begin at the file's position.

        Args:
            file: The log.
            timestamps: Put the time of writing before each line.
            since: Leave out what was written before this time, as `time_words` writes it.
        """
        self._file = file
        self._timestamps = timestamps
        self._since = since.encode()
        self._torn = b""
        self._in_line = False
        self._skipping = False

    @classmethod
    def open(cls, folder: Path, run: int, *, tail: int | None, timestamps: bool, since: str) -> Self:
        """Open the log of a container's run, `tail` lines before its end if that is given.

        Raises:
            FileNotFoundError: It is not there yet.
        """
        file = RotatedLog(folder, run)
        if tail is not None:
            is_from_start = file.seek(tail_offset(file, tail)) == 0
        else:
            is_from_start = not (since and file.seek_time(since.encode()))
        if is_from_start:
            file.begin()
        return cls(file, timestamps=timestamps, since=since)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self) -> bytes | None:
        """Return the text of what is there and not yet read, a block at most; None at the end of the file."""
        block = self._file.read(BLOCK_BYTES)
        if not block:
            return None
        *records, self._torn = (self._torn + block).split(b"\n")
        return b"".join(self._text(record) for record in records)

    def _text(self, record: bytes) -> bytes:
        moment, _, rest = record.partition(b" ")
        _stream, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        if not self._in_line:
            self._skipping = moment < self._since
        prefix = moment + b" " if self._timestamps and not self._in_line else b""
        self._in_line = tag.startswith(b"P")
        if self._skipping:
            return b""
        return prefix + text if self._in_line else prefix + text + b"\n"


def tail_offset(file: LogBytes, lines: int) -> int:
    """Return where the last `lines` lines of a log begin; a line still being written counts as one."""
    end = file.seek(0, 2)
    size = BLOCK_BYTES
    while True:
        at = max(0, end - size)
        file.seek(at)
        starts = [*_line_starts(file.read(end - at), at), end]
        if at == 0 or len(starts) > lines:
            return starts[max(0, len(starts) - 1 - lines)]
        size *= 4


def time_words(moment: datetime) -> str:
    """Write a time so that it compares with a record's as text."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def _line_starts(block: bytes, at: int) -> Iterator[int]:
    """Yield where lines begin in a part of a log that begins at `at`, from the first that certainly does."""
    is_start = at == 0
    for index, record in enumerate(block.removesuffix(b"\n").split(b"\n") if block else ()):
        if is_start:
            yield at
        is_whole = index > 0 or is_start
        is_start = is_whole and record.split(b" ", 3)[2:3] != [b"P"]
        at += len(record) + 1
