"""What a log consists of: the containers that write it, lines with their times, marks between them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from k8s.snapshot import Instance, Job

KEPT_BYTES = 64 * 1024
"""Bytes that are kept of one line; how many more there were is counted."""
LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Bytes that are kept of a line that is printed or saved."""

_NS = 1_000_000_000
_LONGEST_STAMP = 40


class Target(msgspec.Struct, frozen=True):
    """One container whose log is wanted, and what is known of the ranks that write it."""

    namespace: str
    pod: str
    container: str = ""
    """May be empty for a pod with one container."""
    pod_uid: str = ""
    """Empty when unknown; a pod made again under the same name has another."""
    instance: str = ""
    """Short name within the job: `worker-2`."""
    ranks: tuple[int, ...] = ()
    """Global ranks that it runs, as far as known."""
    ranks_proof: str = "none"
    """`declared`, `assumed`, `observed` or `none`."""
    is_chief: bool = False
    """Its log is the one to read first."""
    prints_all_ranks: bool = False
    """All ranks of the job print here: an MPI launcher."""
    status: str = ""
    """The instance's status, in the console's words."""

    @property
    def name(self) -> str:
        """Return what people call it: the instance, or else the pod."""
        return self.instance or self.pod

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what tells this stream from every other one."""
        return (self.pod_uid or f"{self.namespace}/{self.pod}", self.pod, self.container)


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line as a process wrote it. `text` is shown only as `k8s.text.sanitize.log_text` makes it."""

    stamp_ns: int
    """When it was written, in ns since 1970; the time of the line before where the server gave none."""
    raw: bytes
    """The line without its end, at most as long as what is kept."""
    source: Target
    """Where it was read."""
    seq: int
    """Counts what was read, markers too; lines of one source are in order."""
    rank: int | None = None
    """Global rank that wrote it; None: the pod itself, or nobody knows."""
    rank_is_proven: bool = False
    """The line itself names its global rank."""
    prefix_bytes: int = 0
    """Length of the rank prefix at the start of `raw`."""
    missing_bytes: int = 0
    """What was not kept of a line that is too long."""
    is_stamped: bool = True
    """The server said when it was written."""

    @property
    def text(self) -> bytes:
        """Return the line without its rank prefix."""
        return self.raw[self.prefix_bytes :] if self.prefix_bytes else self.raw

    @property
    def writer(self) -> str:
        """Return who wrote it, in words: `rank 3`, or where no rank is known the instance."""
        return self.source.name if self.rank is None else f"rank {self.rank}"


class Mark(StrEnum):
    """What a marker between the lines is about."""

    WAITING = "waiting"
    LOST = "lost"
    RECONNECTED = "reconnected"
    GAP = "gap"
    RESTART = "restart"
    ENDED = "ended"
    DROPPED = "dropped"
    NOTE = "note"


class Marker(msgspec.Struct, frozen=True):
    """Something that happened to a stream, between the lines where it happened."""

    mark: Mark
    text: str
    """In words, for the reader; it may quote the server, so it is text, never markup."""
    source: Target
    stamp_ns: int = 0
    """The time of the line before it, so that it stays there when streams are merged."""
    seq: int = 0

    @property
    def may_lack_lines(self) -> bool:
        """Tell whether lines may be missing here."""
        return self.mark in (Mark.GAP, Mark.DROPPED)


Item = LogLine | Marker
"""What a log is made of."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One line of a stream, before anybody knows whose it is."""

    stamp_ns: int
    """0 when the line does not begin with a time."""
    raw: bytes
    missing_bytes: int = 0


class Splitter:
    """Cuts a stream into lines that the server has put a time before, whatever the chunks are."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        """Keep at most `kept_bytes` of a line."""
        self._room = kept_bytes + _LONGEST_STAMP
        self._kept_bytes = kept_bytes
        self._rest = bytearray()
        self._rest_missing = 0

    def feed(self, chunk: bytes) -> list[Piece]:
        """Return the lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        pieces: list[Piece] = []
        if ended:
            if self._rest:
                self._extend(ended[0])
                pieces.append(self._take_rest())
            else:
                pieces.append(self._piece(ended[0], 0))
            pieces.extend([self._piece(line, 0) for line in ended[1:]])
        if rest:
            self._extend(rest)
        return pieces

    def finish(self) -> list[Piece]:
        """Return the last line when it has no end, and begin anew."""
        return [self._take_rest()] if self._rest else []

    def _extend(self, part: bytes) -> None:
        room = self._room - len(self._rest)
        if len(part) > room:
            self._rest_missing += len(part) - max(0, room)
            part = part[: max(0, room)]
        self._rest += part

    def _take_rest(self) -> Piece:
        piece = self._piece(bytes(self._rest), self._rest_missing)
        self._rest.clear()
        self._rest_missing = 0
        return piece

    def _piece(self, line: bytes, missing_bytes: int) -> Piece:
        stamp_ns, start = read_stamp(line)
        raw = line[start:]
        if len(raw) > self._kept_bytes:
            missing_bytes += len(raw) - self._kept_bytes
            raw = raw[: self._kept_bytes]
        return Piece(stamp_ns, raw, missing_bytes)


def read_stamp(line: bytes) -> tuple[int, int]:
    """Read the time at the start of a line: `2026-05-14T10:00:00.123456789Z text`.

    Returns:
        Nanoseconds since 1970, and where the text begins; (0, 0) when there is no time.
    """
    if line[29:31] == b"Z " and line[19:20] == b"." and (seconds := _SECONDS.get(line[:19])) is not None:
        fraction = line[20:29]
        return (seconds * _NS + int(fraction), 31) if fraction.isdigit() else (0, 0)
    return _read_any_stamp(line)


def _read_any_stamp(line: bytes) -> tuple[int, int]:
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
        if line[zone:end] == b"Z":
            if len(_SECONDS) > 1024:
                _SECONDS.clear()
            _SECONDS[line[:19]] = seconds
    except ValueError:
        return 0, 0
    return seconds * _NS + ns, end + 1 if space >= 0 else end


_SECONDS: dict[bytes, int] = {}
"""Whole seconds since 1970 of times in UTC; the lines of one second share the work."""


def _seconds(moment: bytes, zone: bytes) -> int:
    text = moment.decode("ascii") + ("+00:00" if zone == b"Z" else zone.decode("ascii"))
    return int(datetime.fromisoformat(text).timestamp())


def rfc3339(seconds: int) -> str:
    """Write whole seconds since 1970 as the API's `sinceTime` takes them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_stamp(stamp_ns: int) -> str:
    """Write a time as the kubelet does, with nine digits."""
    seconds, ns = divmod(stamp_ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


def in_time_order(items: Sequence[Item]) -> list[Item]:
    """Sort what several sources said; what one source said at one time keeps its order."""
    return sorted(items, key=lambda item: (item.stamp_ns, item.seq))


def targets_of(job: Job, *, container: str = "", all_containers: bool = False) -> tuple[Target, ...]:
    """Return the logs of a job, its chief's first; instances without a pod have none yet.

    Args:
        job: The job.
        container: Its name; empty for the training container.
        all_containers: Every container of each pod, the init containers too.
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
