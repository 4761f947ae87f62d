"""Event files of a folder tree, joined into curves.

Each folder with event files is a run. A restarted job leaves a second file, which continues the curve; two
ranks that write into one folder at the same time have a curve each.
"""

import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from trainer.tfevents.columns import Columns
from trainer.tfevents.stream import EventStream, Restart, ScalarSeries

# Bytes read of a file at once; bounds memory only.
READ_BYTES = 1 << 22

_NAME = re.compile(r"tfevents\.(?P<second>\d+)\.(?P<host>.*?)(?:\.\d+)*$")


class NewPoints(NamedTuple):
    """New points of one tag of one run."""

    run: str
    columns: Columns


class RunText(NamedTuple):
    """A text that a run wrote, or one of its arguments. Not cleaned."""

    run: str
    name: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class ScalarCurve:
    """A curve: the points of one tag, with rising steps.

    The arrays may be the reader's own and grow with it: do not change them.
    """

    run: str  # the folder, relative to the root; "." for the root itself
    tag: str  # not cleaned: clean it before showing it
    writer: str
    steps: "array[int]"  # int64
    wall_times: "array[float]"  # float64, seconds since 1970
    values: "array[float]"  # float64; may hold NaN and infinities
    restarts: tuple[Restart, ...]

    def __len__(self) -> int:
        return len(self.steps)


class EventFiles:
    """Joins event files fed from any source: a folder, a pod, a test."""

    def __init__(self) -> None:
        self._streams: dict[str, EventStream] = {}
        self.unreadable: dict[str, str] = {}  # reason by path, for files and folders that cannot be opened

    def select(self, paths: Iterable[str]) -> list[str]:
        """Return the files to read: those that TensorBoard would, `…tfevents…`."""
        return [path for path in paths if "tfevents" in path.rpartition("/")[2]]

    def new_stream(self, path: str) -> EventStream:
        """Return the reader of a file that is seen for the first time."""
        return EventStream()

    def next_read(self, path: str, size_bytes: int) -> int | None:
        """Return the offset to read from once the file has that size; None if there is nothing new.

        A file that has become shorter is forgotten and read again.
        """
        if path in self._streams and self._streams[path].is_cut(size_bytes):
            self.forget(path)
        stream = self._streams.get(path)
        return stream.next_read(size_bytes) if stream is not None else 0 if size_bytes else None

    def offset(self, path: str) -> int:
        """Return the offset of the next byte to feed for the file at `path`."""
        return self._streams[path].offset if path in self._streams else 0

    def feed(self, path: str, chunk: bytes) -> list[NewPoints]:
        """Take the next bytes of the file at `path` ("/" between folders) and return the new points."""
        stream = self._streams.get(path) or self._streams.setdefault(path, self.new_stream(path))
        run = str(PurePosixPath(path).parent)
        return [NewPoints(run, columns) for columns in stream.feed(chunk)]

    def forget(self, path: str) -> None:
        """Forget a file, which was deleted or replaced."""
        self._streams.pop(path, None)

    @property
    def problems(self) -> dict[str, str]:
        """Errors by path, as sentences; empty if there is none."""
        problems = dict(self.unreadable)
        for path, stream in self._streams.items():
            if stream.problem:
                problems[path] = stream.problem
            elif stream.skipped:
                problems[path] = f"{stream.skipped} damaged records were left out."
        return problems

    @property
    def newest_s(self) -> float:
        """Time of the newest event, in seconds since 1970; 0 if unknown."""
        return max((stream.last_wall_time or 0.0 for stream in self._streams.values()), default=0.0)

    def texts(self) -> list[RunText]:
        """Return the texts and arguments of all runs, sorted."""
        return sorted(
            RunText(str(PurePosixPath(path).parent), name, text)
            for path, stream in self._streams.items()
            for name, text in stream.texts.items()
        )

    def curves(self) -> list[ScalarCurve]:
        """Return the curves of all runs, sorted by run, tag and file.

        A file continues another one whose last event is before its first. A point of the later file drops the
        earlier file's points at and after it.
        """
        paths_by_run: dict[str, list[str]] = {}
        for path in sorted(self._streams, key=_creation):
            paths_by_run.setdefault(str(PurePosixPath(path).parent), []).append(path)
        curves = [
            curve
            for run, paths in paths_by_run.items()
            for lane in self._lanes(paths)
            for curve in self._curves_of_lane(run, lane)
        ]
        return sorted(curves, key=lambda curve: (curve.run, curve.tag, curve.writer))

    def _lanes(self, paths: Iterable[str]) -> list[list[str]]:
        """Group files, oldest first, so that within a group each starts after the previous one ended."""
        lanes: list[list[str]] = []
        for path in paths:
            stream = self._streams[path]
            if stream.first_wall_time is None:
                continue
            ended = [lane for lane in lanes if self._ended(lane[-1]) <= stream.first_wall_time]
            if ended:
                host = _host(path)
                max(ended, key=lambda lane: (_host(lane[-1]) == host, self._ended(lane[-1]))).append(path)
            else:
                lanes.append([path])
        return lanes

    def _ended(self, path: str) -> float:
        stream = self._streams[path]
        ended = stream.last_wall_time
        return float("inf") if ended is None or not stream.series else ended

    def _curves_of_lane(self, run: str, lane: list[str]) -> Iterable[ScalarCurve]:
        tags = {tag for path in lane for tag in self._streams[path].series}
        for tag in tags:
            paths = [path for path in lane if tag in self._streams[path].series]
            series = _join([self._streams[path].series[tag] for path in paths])
            writer = PurePosixPath(paths[-1]).name
            restarts = tuple(series.restarts)
            yield ScalarCurve(run, tag, writer, series.steps, series.wall_times, series.values, restarts)


class EventFolder(EventFiles):
    """Follows the event files under a folder of this machine."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        super().__init__()
        self.root = Path(root)  # the folder, which need not exist yet

    def read_new(self) -> list[NewPoints]:
        """Read bytes appended since the last call, and new files.

        Deleted files are forgotten, unless a part of the tree cannot be read now. Waits for the disk; call it
        and `curves` from one thread at a time.
        """
        self.unreadable = {}
        fresh: list[NewPoints] = []
        root = os.fspath(self.root)
        found = self.select(
            f"{below}/{name}" if (below := folder[len(root) :].strip("/")) else name
            for folder, names in self._walk(root)
            for name in names
        )
        for path in found:
            try:
                fresh += self._read_file(self.root / path, path)
            except OSError as error:
                self._note(error)
        if not self.unreadable:
            for path in self._streams.keys() - {*found}:
                self.forget(path)
        return fresh

    def _walk(self, root: str) -> Iterator[tuple[str, list[str]]]:
        # What links lead to is read once, so that loops end, and not the folders around the root.
        seen = {*map(os.fspath, Path(root).resolve().parents)}
        for folder, folders, names in os.walk(root, onerror=self._note, followlinks=True):
            if (real := os.path.realpath(folder)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders.sort(key=lambda name: os.path.islink(os.path.join(folder, name)))
            yield folder, names

    def _read_file(self, file: Path, path: str) -> list[NewPoints]:
        size = file.stat().st_size
        if self.next_read(path, size) is None:
            return []
        fresh: list[NewPoints] = []
        with file.open("rb") as opened:
            while (at := self.next_read(path, size)) is not None:
                opened.seek(at)
                # Not what was written meanwhile: a file shorter than what was read counts as replaced.
                fresh += self.feed(path, opened.read(min(READ_BYTES, size - at)))
                if self.offset(path) == at:
                    break
        return fresh

    def _note(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            path = Path(error.filename or self.root)
            inside = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
            self.unreadable[inside] = error.strerror or str(error)


def _join(parts: list[ScalarSeries]) -> ScalarSeries:
    joined = parts[0]
    for part in parts[1:]:
        kept = bisect_left(joined.steps, part.steps[0])
        restarts = [mark for mark in joined.restarts if mark.step < part.steps[0]]
        if kept < len(joined.steps) and joined.steps[-1] > part.steps[0]:
            restarts.append(Restart(part.steps[0], part.wall_times[0]))
        joined = ScalarSeries(
            joined.steps[:kept] + part.steps,
            joined.wall_times[:kept] + part.wall_times,
            joined.values[:kept] + part.values,
            restarts + part.restarts,
        )
    return joined


def _creation(path: str) -> tuple[int, str]:
    matched = _NAME.search(path)
    return (int(matched["second"]) if matched else 0, path)


def _host(path: str) -> str:
    matched = _NAME.search(path)
    return matched["host"] if matched else ""
