"""A container's log file: CRI records, `TIME stream F text`, back to the lines a process wrote.

A line longer than 16 KiB is several records, all but the last tagged `P`. The text is
bytes: nothing here decodes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

BLOCK_BYTES = 256 * 1024
"""How much is read at once."""


class LogFile:
    """Reads a log from wherever it stands, as often as something may have been added."""

    def __init__(self, file: BinaryIO, *, timestamps: bool = False, since: str = "") -> None:
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
    def open(cls, path: Path, *, tail: int | None, timestamps: bool, since: str) -> Self:
        """Open a log, `tail` lines before its end if that is given.

        Raises:
            OSError: It is not there, or cannot be read.
        """
        file = path.open("rb")
        if tail is not None:
            file.seek(tail_offset(file, tail))
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


def tail_offset(file: BinaryIO, lines: int) -> int:
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
