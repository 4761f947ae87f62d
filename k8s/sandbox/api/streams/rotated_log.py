"""The files of a container's log as if they were one, while the shim adds new ones and removes old ones.

What was removed before it could be read is not passed over in silence: a record says so.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from k8s.sandbox.pod_folder import log_of, log_parts

ROTATED_AWAY = b"gpuconsole: older lines of this log were rotated away."
_MOMENT_BYTES = 30
"""A record's time, as in 2026-11-22T10:00:00.123456789Z."""


class RotatedLog:
    """Reads all parts of a log that are there, in order, from the oldest or from where it is set."""

    def __init__(self, folder: Path, run: int) -> None:
        """Begin with the oldest part.

        Raises:
            FileNotFoundError: There is none yet.
        """
        self._folder = folder
        self._run = run
        self._sizes = self._look()
        self._file: BinaryIO | None = None
        self._part = -1
        self._notice = b""
        self._open(next(iter(self._sizes)))

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a byte of what was there when the end was last sought; `whence` 2 is the end as it is now."""
        if whence == 2:
            self._sizes = self._look()
            offset += sum(self._sizes.values())
        at = offset
        *earlier, wanted = self._sizes
        for part in earlier:
            if at < self._sizes[part]:
                wanted = part
                break
            at -= self._sizes[part]
        self._open(wanted, at)
        return offset

    def seek_time(self, moment: bytes) -> bool:
        """Go to the newest part that began before a time, else to the oldest; tell whether there was one."""
        for part in reversed(self._sizes):
            self._open(part)
            if b"" < self._first_moment() < moment:
                return True
        return False

    def begin(self) -> None:
        """Have the next read tell, where this is so, that something was removed before the oldest part."""
        self._notice = self._record() if min(self._sizes) > 0 else b""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer only at the end of what is there."""
        found, self._notice = self._notice, b""
        while len(found) < size:
            if not (chunk := self._chunk(size - len(found))):
                break
            found += chunk
        return found

    def _chunk(self, size: int) -> bytes:
        """Return some bytes of this part, or of the next one that is there."""
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

    def _look(self) -> dict[int, int]:
        """Return the size of each part that is there, the oldest first.

        Raises:
            FileNotFoundError: There is none.
        """
        found = {}
        for part in log_parts(self._folder, self._run):
            with suppress(FileNotFoundError):
                found[part] = log_of(self._folder, self._run, part).stat().st_size
        if not found:
            raise FileNotFoundError(log_of(self._folder, self._run))
        return found

    def _open(self, part: int, at: int = 0) -> None:
        """Open a part at a byte; where it was removed meanwhile, the next one at its beginning."""
        if part == self._part and self._file is not None:
            self._file.seek(at)
            return
        try:
            opened = log_of(self._folder, self._run, part).open("rb")
        except FileNotFoundError:
            later = [each for each in log_parts(self._folder, self._run) if each > part]
            if not later:
                raise
            self._open(later[0])
            return
        opened.seek(at)
        self.close()
        self._file, self._part = opened, part

    def _first_moment(self) -> bytes:
        """Return when the first record of the open part was written; go there. Empty before there is one."""
        assert self._file is not None
        self._file.seek(0)
        moment = self._file.read(_MOMENT_BYTES)
        self._file.seek(0)
        return moment

    def _record(self) -> bytes:
        """Return the record, a nanosecond older than the open part, that says what is missing before it."""
        moment = self._first_moment()
        if not (len(moment) == _MOMENT_BYTES and moment[20:29].isdigit()):
            return b""
        older = b"%09d" % max(0, int(moment[20:29]) - 1)
        return moment[:20] + older + b"Z stderr F " + ROTATED_AWAY + b"\n"
