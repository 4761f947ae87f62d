"""Log files of a container: CRI records, `TIME stream F text`, turned back into the lines a process wrote.

A line longer than 16 KiB is several records, all but the last tagged `P`. Text stays bytes.
The shim rotates files while they are read; a record tells of parts that were removed unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

from k8s.sandbox.pod_folder import log_of, log_parts

BLOCK_BYTES = 256 * 1024
ROTATED_AWAY = b"gpuconsole: older lines of this log were rotated away."
# Length of a record's time, as in 2026-11-22T10:00:00.123456789Z.
_MOMENT_BYTES = 30


class RotatedLog:
    """All parts of a container's log as one file, from the oldest part or from a sought place."""

    def __init__(self, folder: Path, run: int) -> None:
        """Open the oldest part.

        Raises:
            FileNotFoundError: The log does not exist yet.
        """
        self._folder = folder
        self._run = run
        self._sizes = self._part_sizes()
        self._file: BinaryIO | None = None
        self._part = -1
        self._notice = b""
        self._open(next(iter(self._sizes)))

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to an offset in the parts that existed at the last seek to the end; `whence` 2 means the end."""
        if whence == 2:
            self._sizes = self._part_sizes()
            offset += sum(self._sizes.values())
        at = offset
        *earlier, target = self._sizes
        for part in earlier:
            if at < self._sizes[part]:
                target = part
                break
            at -= self._sizes[part]
        self._open(target, at)
        return offset

    def seek_time(self, moment: bytes) -> bool:
        """Go to the newest part that began before a time and return True, or go to the oldest part."""
        for part in reversed(self._sizes):
            self._open(part)
            if b"" < self._first_moment() < moment:
                return True
        return False

    def begin(self) -> None:
        """Start the next read with a notice if parts before the oldest one were removed."""
        self._notice = self._record() if min(self._sizes) > 0 else b""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end of the log."""
        read, self._notice = self._notice, b""
        while len(read) < size and (chunk := self._chunk(size - len(read))):
            read += chunk
        return read

    def _chunk(self, size: int) -> bytes:
        assert self._file is not None
        if chunk := self._file.read(size):
            return chunk
        later = next((part for part in log_parts(self._folder, self._run) if part > self._part), None)
        # Once there is a later part this one grows no more, so that now it can be read to its end.
        if (chunk := self._file.read(size)) or later is None:
            return chunk
        expected = self._part + 1
        try:
            self._open(later)
        except FileNotFoundError:
            return b""
        notice = self._record() if self._part > expected else b""
        return notice + self._file.read(size) or self._chunk(size)

    def _part_sizes(self) -> dict[int, int]:
        sizes = {}
        for part in log_parts(self._folder, self._run):
            with suppress(FileNotFoundError):
                sizes[part] = log_of(self._folder, self._run, part).stat().st_size
        if not sizes:
            raise FileNotFoundError(log_of(self._folder, self._run))
        return sizes

    def _open(self, part: int, at: int = 0) -> None:
        if part == self._part and self._file is not None:
            self._file.seek(at)
            return
        try:
            opened = log_of(self._folder, self._run, part).open("rb")
        except FileNotFoundError:
            # Removed meanwhile: go on at the beginning of the next part.
            later = [each for each in log_parts(self._folder, self._run) if each > part]
            if not later:
                raise
            self._open(later[0])
            return
        opened.seek(at)
        self.close()
        self._file, self._part = opened, part

    def _first_moment(self) -> bytes:
        """Return the time of the first record of the open part and go to it; empty before there is one."""
        assert self._file is not None
        self._file.seek(0)
        moment = self._file.read(_MOMENT_BYTES)
        self._file.seek(0)
        return moment

    def _record(self) -> bytes:
        """Return a record about removed parts, a nanosecond older than the open part."""
        moment = self._first_moment()
        if not (len(moment) == _MOMENT_BYTES and moment[20:29].isdigit()):
            return b""
        older = b"%09d" % max(0, int(moment[20:29]) - 1)
        return moment[:20] + older + b"Z stderr F " + ROTATED_AWAY + b"\n"


class LogFile:
    """Reader of a log's text; may be read again when the log has grown."""

    def __init__(self, file: BinaryIO | RotatedLog, *, timestamps: bool = False, since: str = "") -> None:
        """Read from the file's position lines written at or after `since`, in the form of `format_time`."""
        self._file = file
        self._timestamps = timestamps
        self._since = since.encode()
        self._torn = b""
        self._in_line = False
        self._skipping = False

    @classmethod
    def open(cls, folder: Path, run: int, *, tail: int | None, timestamps: bool, since: str) -> Self:
        """Open the log of a container's run, `tail` lines before its end if given.

        Raises:
            FileNotFoundError: The log does not exist yet.
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
        """Return the next block of unread text; None at the end of the file."""
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


def tail_offset(file: BinaryIO | RotatedLog, lines: int) -> int:
    """Return the offset of the last `lines` lines of a log; an unfinished line counts as one."""
    end = file.seek(0, 2)
    size = BLOCK_BYTES
    while True:
        at = max(0, end - size)
        file.seek(at)
        starts = [*_line_starts(file.read(end - at), at), end]
        if at == 0 or len(starts) > lines:
            return starts[max(0, len(starts) - 1 - lines)]
        size *= 4


def format_time(moment: datetime) -> str:
    """Format a time so that it compares as text with the time of a record."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def _line_starts(block: bytes, at: int) -> Iterator[int]:
    is_start = at == 0
    for index, record in enumerate(block.removesuffix(b"\n").split(b"\n") if block else ()):
        if is_start:
            yield at
        is_whole = index > 0 or is_start
        is_start = is_whole and record.split(b" ", 3)[2:3] != [b"P"]
        at += len(record) + 1
