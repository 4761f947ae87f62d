"""`GET pods/NAME/log`: selects a container's log, and follows it to its end.

The pod's status tells which run is the current one and when it is over. Its files hold CRI records,
`TIME stream F text`; a line longer than 16 KiB is several records, all but the last tagged `P`. Text stays
bytes. The shim rotates files while they are read; a record tells of parts that were removed unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.lists import Count, read_query
from k8s.sandbox.api.store import Record, Store
from k8s.sandbox.paths import log_of, log_parts

BLOCK_BYTES = 256 * 1024
ROTATED_AWAY = b"gpuconsole: older lines of this log were rotated away."
# Length of a record's time, as in 2026-11-22T10:00:00.123456789Z.
_MOMENT_BYTES = 30
# Between reads of a followed file: shorter while it grows, longer while it is idle.
MIN_WAIT_S, MAX_WAIT_S = 0.01, 0.08


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


class LogQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Parameters of a log request."""

    container: str = ""
    previous: bool = False
    follow: bool = False
    timestamps: bool = False
    tail_lines: Count | None = None
    limit_bytes: Count | None = None
    since_seconds: Count | None = None
    since_time: datetime | None = None

    @property
    def since(self) -> str:
        """Return the earliest requested time in the form of a record; empty if there is none."""
        moment = self.since_time
        if self.since_seconds is not None:
            moment = datetime.now(UTC) - timedelta(seconds=self.since_seconds)
        return format_time(moment) if moment is not None else ""


def container_of(pod: Mapping[str, Any], requested: str) -> str:
    """Return the requested container, or the only one of the pod.

    Raises:
        ApiError: The request names none and the pod has several, or the pod lacks it.
    """
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [each["name"] for each in spec["containers"]]
    init_containers = [each["name"] for each in spec.get("initContainers") or ()]
    if not requested and len(containers) == 1:
        return str(containers[0])
    if not requested:
        choice = f"choose one of: [{' '.join(containers)}]"
        if init_containers:
            choice += f" or one of the init containers: [{' '.join(init_containers)}]"
        raise api_errors.bad_request(f"a container name must be specified for pod {name}, {choice}")
    if requested not in (*containers, *init_containers):
        raise api_errors.bad_request(f"container {requested} is not valid for pod {name}")
    return requested


def status_of(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return the status of a container; empty before there is one."""
    status = pod.get("status") or {}
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return next((each for each in statuses if each.get("name") == container), {})


def run_of(pod: Mapping[str, Any], container: str, *, previous: bool) -> int:
    """Return the number of the requested run; a container that waits shows its last one.

    Raises:
        ApiError: The container has had no such run.
    """
    name, status = pod["metadata"]["name"], status_of(pod, container)
    state, restarts = status.get("state") or {}, int(status.get("restartCount") or 0)
    ended_before = bool((status.get("lastState") or {}).get("terminated"))
    is_waiting = "running" not in state and "terminated" not in state
    if previous and not ended_before:
        raise api_errors.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if is_waiting and not ended_before:
        reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
        raise api_errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return restarts if is_waiting or not previous else restarts - 1


async def send_log(
    request: web.Request, store: Store, record: Record, pods_root: Path, stopping: asyncio.Event
) -> web.StreamResponse:
    """Send a log as its process wrote it, and follow it if requested."""
    pod = record.obj
    uid = pod["metadata"]["uid"]
    query = read_query(request.query, LogQuery)
    container = container_of(pod, query.container)
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)
    run = run_of(pod, container, previous=query.previous)
    folder = pods_root / uid / container
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    remaining_bytes, since = query.limit_bytes, query.since
    log: LogFile | None = None
    wait_s = MIN_WAIT_S
    try:
        while not stopping.is_set():
            # Checked before reading, so that everything written before the end is read too.
            is_over = not query.follow or _is_over(store, record, container, run)
            if log is None:
                with suppress(FileNotFoundError):
                    log = LogFile.open(
                        folder, run, tail=query.tail_lines, timestamps=query.timestamps, since=since
                    )
            text = log.read() if log is not None else None
            if text:
                wait_s = MIN_WAIT_S
                await response.write(text if remaining_bytes is None else text[:remaining_bytes])
                remaining_bytes = None if remaining_bytes is None else remaining_bytes - len(text)
            if remaining_bytes is not None and remaining_bytes <= 0:
                break
            if text is None:
                if is_over:
                    break
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, MAX_WAIT_S)
    finally:
        if log is not None:
            log.close()
    await response.write_eof()
    return response


def current_status(store: Store, original: Record, container: str) -> Mapping[str, Any]:
    """Return the present status of a pod's container; empty once the pod is gone."""
    record = store.get("pods", original.namespace, original.name)
    if record is None or record.obj["metadata"]["uid"] != original.obj["metadata"]["uid"]:
        return {}
    return status_of(record.obj, container)


def _is_over(store: Store, original: Record, container: str, run: int) -> bool:
    status = current_status(store, original, container)
    return "running" not in (status.get("state") or {}) or int(status.get("restartCount") or 0) != run
