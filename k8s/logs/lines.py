"""Containers, log lines with their times, and the markers between them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from k8s.snapshot import Instance, Job

# Stored of one line; the rest is only counted.
MAX_LINE_BYTES = 64 * 1024
# Limit for lines that are printed or saved.
LONGEST_LINE_BYTES = 64 * 1024 * 1024

_NS = 1_000_000_000
_LONGEST_STAMP = 40
# As the kubelet writes it in UTC, with its space.
_STAMP_BYTES = 31


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
    """The server gave the time of the line."""
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
            seconds_of, max_bytes = _SECONDS_NS.get, self._max_bytes + _STAMP_BYTES
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


def rfc3339(seconds: int) -> str:
    """Format seconds since 1970 for the API's `sinceTime`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_stamp(stamp_ns: int) -> str:
    """Format a time as the kubelet does, with nine digits."""
    seconds, ns = divmod(stamp_ns, _NS)
    return f"{_second_text(seconds)}.{ns:09d}Z"


@lru_cache(1024)
def _second_text(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def in_time_order(items: Sequence[Item]) -> list[Item]:
    """Sort items of several sources by time; items of one source and time keep their order."""
    return sorted(items, key=lambda item: (item.stamp_ns, item.seq))


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
