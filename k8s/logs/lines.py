"""Containers, log lines with their times, the markers between them, and positions in a log."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter, itemgetter
from zlib import crc32

import msgspec

from k8s.snapshot import Instance, Job

# Stored of one line; the rest is only counted.
MAX_LINE_BYTES = 64 * 1024
# Limit for lines that are printed or saved.
LONGEST_LINE_BYTES = 64 * 1024 * 1024

_NS = 1_000_000_000
_LONGEST_STAMP = 40
# As the kubelet writes it in UTC, with its space: such times are ordered as bytes, too.
_STAMP, STAMP_BYTES = b"0000-00-00T00:00:00.000000000Z ", 31
_stamp_of = itemgetter(slice(STAMP_BYTES))
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
# Two streams of a process may overtake each other, so a resumed log begins this much earlier.
_SLACK_S = 1
# Stamps retained before the old ones are dropped.
_SEEN_STAMPS = 10_000
# By which a log that was rotated is told from the one before.
_HEAD_BYTES = 4096


class Target(msgspec.Struct, frozen=True):
    """A container with a log, and the known ranks that write it."""

    namespace: str
    pod: str
    container: str = ""
    """May be empty for a pod with one container."""
    pod_uid: str = ""
    """Empty if unknown; a recreated pod of the same name has another uid."""
    instance: str = ""
    """Short name within the job: `worker-2`."""
    ranks: tuple[int, ...] = ()
    """Global ranks that it runs, as far as known."""
    ranks_proof: str = "none"
    """`declared`, `assumed`, `observed` or `none`."""
    is_chief: bool = False
    prints_all_ranks: bool = False
    """All ranks of the job print here: an MPI launcher."""
    status: str = ""

    @property
    def name(self) -> str:
        """Return the display name: the instance, else the pod."""
        return self.instance or self.pod

    @property
    def key(self) -> tuple[str, str, str]:
        """Return a key that is unique for this stream."""
        return (self.pod_uid or f"{self.namespace}/{self.pod}", self.pod, self.container)


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line as a process wrote it. Show `text` only through `k8s.text.sanitize.log_text`."""

    stamp_ns: int
    """In ns since 1970; that of the line before if the server gave none."""
    raw: bytes
    """The line without its end, cut off at the limit."""
    source: Target
    seq: int
    """Order of reading, markers included."""
    rank: int | None = None
    """Global rank; None if it is unknown or the pod itself wrote the line."""
    rank_is_proven: bool = False
    prefix_bytes: int = 0
    """Length of the rank prefix at the start of `raw`."""
    missing_bytes: int = 0
    """Bytes cut off a line that is too long."""
    is_stamped: bool = True
    offset: int = 0
    """Bytes of the line that came before `raw`; only lines in pieces have any."""
    has_end: bool = True
    """False if more of the line may come."""

    @property
    def text(self) -> bytes:
        """Return the line without its rank prefix."""
        return self.raw[self.prefix_bytes :] if self.prefix_bytes else self.raw

    @property
    def writer(self) -> str:
        """Return the writer's display name: `rank 3`, or the instance if no rank is known."""
        return self.source.name if self.rank is None else f"rank {self.rank}"


class LogBlock(LogLine, frozen=True, gc=False):
    """Bytes of a log as they arrived, line ends included; `raw` may begin and end within a line."""

    lines: Sequence[bytes] = ()
    """Lines as they are printed, instead of `raw`, and their times, which are ordered as bytes."""
    stamps: Sequence[bytes] = ()


class Mark(StrEnum):
    """Subject of a marker."""

    WAITING = "waiting"
    LOST = "lost"
    RECONNECTED = "reconnected"
    GAP = "gap"
    RESTART = "restart"
    ENDED = "ended"
    DROPPED = "dropped"
    NOTE = "note"


class Marker(msgspec.Struct, frozen=True):
    """An event of a stream, between the lines where it happened."""

    mark: Mark
    text: str
    """Plain text, never markup: it may quote the server."""
    source: Target
    stamp_ns: int = 0
    """Time of the line before it, which keeps it in place when streams are merged."""
    seq: int = 0

    @property
    def may_lack_lines(self) -> bool:
        """Return True if lines may be missing here."""
        return self.mark in (Mark.GAP, Mark.DROPPED)


Item = LogLine | Marker


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One line of a stream, before its rank is known."""

    stamp_ns: int
    """0 if the line does not begin with a time."""
    raw: bytes
    missing_bytes: int = 0
    offset: int = 0
    has_end: bool = True


class Splitter:
    """Splits a stream of chunks into lines with timestamps."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES, piece_bytes: int = 0) -> None:
        """Create a splitter; with `piece_bytes`, a longer line with a time comes in pieces of that size."""
        self._max_bytes = max_line_bytes
        self._piece_bytes = piece_bytes
        self._partial = bytearray()
        self._stamp_ns = self._offset = 0  # of the line of which pieces were returned
        self._missing_bytes = 0

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return the lines that end in this chunk."""
        *ended, partial = chunk.split(b"\n")
        pieces: list[Piece] = []
        if ended:
            if self._partial or self._offset:
                self._extend(ended[0])
                pieces += self._full_pieces()
                pieces.append(self._pop_partial())
                del ended[0]
            seconds_of, max_bytes = _SECONDS_NS.get, self._max_bytes + STAMP_BYTES
            for line in ended:  # inlined, for this is most of the time that a long log takes
                start_ns = seconds_of(line[:20])
                if start_ns is None or line[29:31] != b"Z " or len(line) > max_bytes:
                    pieces.append(self._piece(line))
                elif (fraction := line[20:29]).isdigit():
                    pieces.append(Piece(start_ns + int(fraction), line[31:]))
                else:
                    pieces.append(Piece(0, line))
        if partial:
            self._extend(partial)
            pieces += self._full_pieces()
        return pieces

    def whole(self, chunk: bytes) -> tuple[list[bytes], list[bytes]] | None:
        """Return lines and their times, faster; None, reading none, if not all have times in order."""
        size = len(self._partial)
        if self._offset or size > MAX_LINE_BYTES or size + len(chunk) > self._max_bytes or b"\n" not in chunk:
            return None
        *lines, rest = (bytes(self._partial) + chunk).split(b"\n")
        stamps = [*map(_stamp_of, lines)]
        text = b"".join(stamps)
        if text.translate(_DIGITS) != _STAMP * len(lines) or sorted(stamps) != stamps:
            return None
        minutes = {stamp[:17] for stamp in stamps} if stamps[0][:17] != stamps[-1][:17] else {text[:17]}
        if not all(read_stamp(each + b"00Z")[0] for each in minutes) or text[17::31].strip(b"012345"):
            return None
        self._partial[:] = rest
        return stamps, lines

    @property
    def is_within_line(self) -> bool:
        """Return True if there is a part of a line that was not returned."""
        return bool(self._partial)

    def flush(self, most_bytes: int | None = None) -> list[Piece]:
        """Return the part that there is of a line with a time; empty if there is none."""
        start = 0
        if not self._offset:
            self._stamp_ns, start = read_stamp(bytes(self._partial[:_LONGEST_STAMP]))
        end = len(self._partial) if most_bytes is None else start + most_bytes
        raw = bytes(self._partial[start:end])
        if not raw or not self._stamp_ns:
            return []
        piece = Piece(self._stamp_ns, raw, 0, self._offset, has_end=False)
        self._offset += len(raw)
        del self._partial[:end]
        return [piece]

    def _full_pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        while 0 < self._piece_bytes < len(self._partial) - _LONGEST_STAMP:
            if not (found := self.flush(self._piece_bytes)):
                break
            pieces += found
        return pieces

    def finish(self) -> list[Piece]:
        """Return the last line if it has no end, and start over."""
        return [self._pop_partial()] if self._partial or self._offset else []

    def _extend(self, part: bytes) -> None:
        room = max(0, self._max_bytes + _LONGEST_STAMP - len(self._partial))
        self._missing_bytes += max(0, len(part) - room)
        self._partial += part[:room]

    def _pop_partial(self) -> Piece:
        piece = self._piece(bytes(self._partial), self._missing_bytes)
        if self._offset:
            piece = Piece(self._stamp_ns, bytes(self._partial), self._missing_bytes, self._offset)
        self._partial.clear()
        self._missing_bytes = self._offset = 0
        return piece

    def _piece(self, line: bytes, missing_bytes: int = 0) -> Piece:
        stamp_ns, start = read_stamp(line)
        if len(line) - start <= self._max_bytes:
            return Piece(stamp_ns, line[start:], missing_bytes)
        end = start + self._max_bytes
        return Piece(stamp_ns, line[start:end], missing_bytes + len(line) - end)


class Cursor:
    """Read position in the log of one run of one container.

    The API resumes a log at a whole second (`sinceTime`), so its first lines have been read before. They
    are recognised by their nanosecond stamps, and counted where several share one. At least one of
    them must come again; that proves that no line in between is missing.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        """0 until a line was read."""
        self.missing_since_ns = 0
        """The last time before a gap; 0 if there is none."""
        self._first_ns = 0
        self._seen: Counter[int] = Counter()
        self._max_seen = _SEEN_STAMPS
        # Times of the lines passed on as blocks, newest last.
        self._blocks: list[list[bytes]] = []
        self._expected: dict[int, int] | None = None
        self._has_overlap = True
        # The line that was passed on without its end, and its bytes; the bytes to skip of the current one.
        self._open_ns = self._open_bytes = self._skipped_bytes = 0

    def since_time(self) -> str:
        """Return the `sinceTime` to resume at, and expect the lines already read; empty for a new log."""
        for stamps in self._blocks:
            self.take([Piece(read_stamp(stamp)[0], b"") for stamp in stamps])
        self._blocks.clear()
        if not self.last_ns:
            return ""
        second = self.last_ns // _NS - _SLACK_S
        self._expected = {stamp: count for stamp, count in self._seen.items() if stamp >= second * _NS}
        self._has_overlap = False
        self.missing_since_ns = 0
        return rfc3339(second)

    @property
    def is_resumed(self) -> bool:
        """Return True if the log was resumed, not begun."""
        return self._expected is not None

    @property
    def knows(self) -> bool:
        """Return True once it is known whether lines are missing since the last `since_time`."""
        return self._has_overlap or self.missing_since_ns > 0

    def take(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Return the lines that are new."""
        fresh = list(pieces) if self._expected is None else self._unexpected(pieces)
        if fresh:
            last = fresh[-1]
            self._open_ns, self._open_bytes = (
                last.stamp_ns,
                0 if last.has_end else last.offset + len(last.raw),
            )
        if stamps := [piece.stamp_ns for piece in fresh if piece.stamp_ns and not piece.offset]:
            self._first_ns = self._first_ns or stamps[0]
            self.last_ns = max(self.last_ns, *stamps)
            self._seen.update(stamps)
        if len(self._seen) > self._max_seen:
            floor_ns = (self.last_ns // _NS - _SLACK_S) * _NS
            self._seen = Counter({stamp: seen for stamp, seen in self._seen.items() if stamp >= floor_ns})
            self._max_seen = max(_SEEN_STAMPS, 2 * len(self._seen))
        return fresh

    def add(self, stamps: list[bytes]) -> None:
        """Record the times of lines in order, of a log that was not resumed."""
        self._first_ns = self._first_ns or read_stamp(stamps[0])[0]
        floor = to_stamp(max(1, read_stamp(stamps[-1])[0] - 2 * _SLACK_S * _NS))
        self._blocks = [*(each for each in self._blocks if each[-1] >= floor), stamps]

    def _unexpected(self, pieces: Iterable[Piece]) -> list[Piece]:
        expected = self._expected if self._expected is not None else {}
        fresh = []
        for piece in pieces:
            stamp_ns = piece.stamp_ns
            if piece.offset:
                pass  # its line was judged by the first piece
            elif count := expected.get(stamp_ns, 0):
                expected[stamp_ns] = count - 1
                self._has_overlap = True
                is_open = count == 1 and stamp_ns == self._open_ns and self._open_bytes > 0
                self._skipped_bytes = self._open_bytes if is_open else sys.maxsize
            # Lines before the first one read were cut off by `tail`.
            elif not stamp_ns or stamp_ns >= self._first_ns:
                if stamp_ns and not self._has_overlap and not self.missing_since_ns:
                    self.missing_since_ns = self.last_ns
                self._skipped_bytes = 0
            else:
                self._skipped_bytes = sys.maxsize
            known = self._skipped_bytes - piece.offset
            if known <= 0:
                fresh.append(piece)
            elif self._skipped_bytes < sys.maxsize and (known < len(piece.raw) or piece.has_end):
                missing, has_end = piece.missing_bytes, piece.has_end
                fresh.append(Piece(stamp_ns, piece.raw[known:], missing, self._skipped_bytes, has_end))
        return fresh


class Delivered:
    """Record of the bytes passed on of a log without timestamps; they are skipped when it is read again."""

    def __init__(self) -> None:
        self.remaining = 0
        self.ends_line = True
        self._size = self._crc = self._read_crc = 0
        self._head = b""

    def add(self, chunk: bytes) -> None:
        """Record bytes that are passed on."""
        self._size += len(chunk)
        self.remaining = self._size
        self.ends_line = chunk.endswith(b"\n")
        self._crc = crc32(chunk, self._crc)
        if len(self._head) < _HEAD_BYTES:
            self._head += chunk[:_HEAD_BYTES]

    def skip(self, block: bytes) -> tuple[bytes, bool]:
        """Return the new part of a block, and False if the log was replaced.

        A rotated log begins differently and shares no line with the one before it, so all of it is new.
        """
        if self.remaining == self._size and not self._head.startswith(block[: len(self._head)]):
            return block if self.ends_line else b"\n" + block, False
        known, fresh = block[: self.remaining], block[self.remaining :]
        self._read_crc = crc32(known, self._read_crc)
        self.remaining -= len(known)
        return fresh, self.remaining > 0 or self._read_crc == self._crc


def read_stamp(line: bytes) -> tuple[int, int]:
    """Parse the time at the start of a line: `2026-05-14T10:00:00.123456789Z text`.

    Returns:
        Nanoseconds since 1970 and the offset of the text; (0, 0) if there is no time.
    """
    space = line.find(b" ", 0, _LONGEST_STAMP)
    end = space if space >= 0 else min(len(line), _LONGEST_STAMP)
    if end < 20 or line[10:11] != b"T":
        return 0, 0
    try:
        dot, zone = 19, end - 1
        if line[zone] != 0x5A:  # Z
            zone = max(line.rfind(b"+", 19, end), line.rfind(b"-", 19, end))
        seconds = _seconds(line[:19], line[zone:end])
        fraction = line[dot + 1 : zone] if line[dot] == 0x2E else b""
        if not seconds or zone < dot or (fraction and not fraction.isdigit()):
            return 0, 0
        ns = int(fraction[:9].ljust(9, b"0")) if fraction else 0
        if zone == 29 and line[zone:end] == b"Z":
            if len(_SECONDS_NS) > 1024:
                _SECONDS_NS.clear()
            _SECONDS_NS[line[:20]] = seconds * _NS
    except ValueError:
        return 0, 0
    return seconds * _NS + ns, end + 1 if space >= 0 else end


# Nanoseconds by time in UTC up to the whole seconds and their dot: the lines of one second share the parsing.
_SECONDS_NS: dict[bytes, int] = {}


def _seconds(moment: bytes, zone: bytes) -> int:
    text = moment.decode("ascii") + ("+00:00" if zone == b"Z" else zone.decode("ascii"))
    return int(datetime.fromisoformat(text).timestamp())


def to_stamp(stamp_ns: int) -> bytes:
    """Format a time as the kubelet does, with the space after it; empty for 0."""
    return f"{write_stamp(stamp_ns)} ".encode() if stamp_ns else b""


@lru_cache(1024)
def rfc3339(seconds: int) -> str:
    """Format seconds since 1970 for the API's `sinceTime`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_stamp(stamp_ns: int) -> str:
    """Format a time as the kubelet does, with nine digits."""
    seconds, ns = divmod(stamp_ns, _NS)
    return f"{rfc3339(seconds)[:-1]}.{ns:09d}Z"


def in_time_order(items: Sequence[Item]) -> list[Item]:
    """Sort items of several sources by time; items of one source and time keep their order."""
    # Twice, for sorting by pairs takes longer and sets off the garbage collector.
    return sorted(sorted(items, key=attrgetter("seq")), key=attrgetter("stamp_ns"))


def targets_of(job: Job, *, container: str = "", all_containers: bool = False) -> tuple[Target, ...]:
    """Return the containers of a job whose logs to read, its chief's first.

    By default these are the training containers. Instances without a pod have none.
    """
    found = [
        _target(job, instance, name)
        for instance in job.instances
        if instance.pod
        for name in _containers(instance, container, all_containers)
    ]
    return tuple(sorted(found, key=lambda each: not each.is_chief))


def _containers(instance: Instance, container: str, all_containers: bool) -> tuple[str, ...]:
    if container:
        return (container,) if container in instance.containers else ()
    return instance.containers if all_containers else instance.containers[:1]


def _target(job: Job, instance: Instance, container: str) -> Target:
    return Target(
        namespace=job.ref.namespace,
        pod=instance.pod,
        container=container,
        pod_uid=instance.pod_uid,
        instance=instance.name,
        ranks=instance.ranks,
        ranks_proof=instance.ranks_proof,
        is_chief=instance.is_chief,
        prints_all_ranks=instance.role == "launcher",
        status=instance.status.value,
    )
