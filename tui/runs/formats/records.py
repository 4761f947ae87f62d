"""Metric files of mappings from names to numbers: CSV, JSON lines and the Trainer's state of Hugging Face.

A record without a time has the time 0, or its seconds since the start of the run where it tells those.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from k8s.text.sanitize import sanitize
from trainer.tfevents import Columns, EventStream, ScalarSeries

# A longer line is damage.
LINE_LIMIT_BYTES = 1 << 20
STATE_LIMIT_BYTES = 64 << 20
MOST_TAGS = 1024
LONGEST_TAG = 200
# Lines without metrics, from the start of a file, after which it is not read on.
FOREIGN_LINES = 20
# Bytes at the end of what was read that are read again, to find out that the file was rewritten.
OVERLAP_BYTES = 64

STEPS = (
    *("step", "_step", "global_step", "trainer/global_step", "current_steps", "iteration", "iter", "n_iter"),
    *("num_updates", "num_timesteps", "total_timesteps", "time/total_timesteps", "timesteps_total"),
)
_KIMG = "Progress/kimg"
_TIMES = ("_timestamp", "timestamp", "wall_time", "time", "date", "created_at")
_ELAPSED = ("_runtime", "elapsed_time", "time_elapsed", "time/time_elapsed", "Timing/total_sec")
_NO_METRICS = {
    *STEPS,
    *_TIMES[:-3],
    *_ELAPSED,
    _KIMG,
    "max_steps",
    "percentage",
    "remaining_time",
    "total_steps",
}
_CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_SPECIAL = {"NaN": math.nan, "nan": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SPECIAL |= {"inf": math.inf, "-inf": -math.inf}
_EARLIEST_S = 1e8
_DEPTH = 4
_MOST_STEP = 2**62


class RecordStream(EventStream):
    """Follows one file of records."""

    def __init__(self) -> None:
        super().__init__()
        self.is_foreign = False
        """True if the file has no metrics and is not read on."""
        self._records = 0
        self._epoch, self._last = 0.0, 0
        self._starts: dict[float, int] = {}
        self._fresh: dict[str, Columns] = {}

    def add(self, record: Mapping[str, object], separator: str = "/") -> bool:
        """Add the numbers of one record; return False if it has no metrics."""
        numbers = dict(_numbers(record, separator))
        if not numbers.keys() - {*_NO_METRICS, "epoch"}:
            return False
        mode = record.get("mode")
        is_training = mode not in ("val", "test", "eval")
        step, of = self._position(numbers, is_training=is_training)
        if of == "" and not any("loss" in name for name in numbers):
            return False
        time_s = _time(record, numbers)
        if time_s > _EARLIEST_S:
            self.last_wall_time = max(self.last_wall_time or 0.0, time_s)
        self._records += 1
        for name, value in numbers.items():
            if name == of or name in _NO_METRICS:
                continue
            tag = sanitize(name[:LONGEST_TAG]) if is_training or "/" in name else f"{mode}/{sanitize(name)}"
            if tag in self.series or len(self.series) + len(self._fresh) < MOST_TAGS:
                self._fresh.setdefault(tag, Columns.empty(tag)).append(step, time_s, value)
            else:
                self.problem = f"Only the first {MOST_TAGS} tags are read."
        return True

    def pop_fresh(self) -> list[Columns]:
        """Append the records added since the last call to the series, and return them."""
        fresh, self._fresh = [*self._fresh.values()], {}
        for columns in fresh:
            self.series.setdefault(columns.tag, ScalarSeries()).extend(columns)
        return fresh

    def _position(self, numbers: Mapping[str, float], *, is_training: bool) -> tuple[int, str]:
        # The step, and the name of the number that it was read from; "" if none tells it.
        epoch = numbers.get("epoch", math.nan)
        for name in STEPS:
            if (step := _whole(numbers.get(name, math.nan))) is not None:
                if name == "iter" and not math.isnan(epoch):
                    return self._within_epoch(step, epoch, is_training=is_training), name
                return step, name
        if (images := _whole(1000 * numbers.get(_KIMG, math.nan))) is not None:
            return images, _KIMG
        if (step := _whole(epoch)) is not None and step == epoch:
            return step, "epoch"
        return self._records, ""

    def _within_epoch(self, step: int, epoch: float, *, is_training: bool) -> int:
        # mmcv counts iterations within the epoch, those of its validation by themselves.
        if not is_training:
            return min(self._starts.get(self._epoch, 0) + self._last, _MOST_STEP)
        if epoch != self._epoch:
            start = self._starts.get(self._epoch, 0) + (self._last if step <= self._last else 0)
            self._starts.setdefault(epoch, start)
            self._epoch = epoch
        self._last = step
        return min(self._starts.get(epoch, 0) + step, _MOST_STEP)


class LineStream(RecordStream):
    """Follows a file of lines; a rewritten one is read from the start."""

    def __init__(self) -> None:
        super().__init__()
        self._tail = b""
        self._rest = b""
        self._foreign_lines = 0
        self._is_in_long_line = False

    def next_read(self, size_bytes: int) -> int | None:
        """Return the offset to read from once the file has that size; None if there is nothing new."""
        return self.offset if size_bytes > self.offset + len(self._tail) and not self.is_foreign else None

    def is_cut(self, size_bytes: int) -> bool:
        """Return True if a file of that size cannot be the one that was read."""
        return size_bytes < self.offset + len(self._tail)

    def continues(self, chunk: bytes) -> bool:
        """Return True if the bytes from `offset` on follow those that were read."""
        return chunk.startswith(self._tail)

    def feed(self, chunk: bytes) -> list[Columns]:
        """Take the next bytes of the file, with some that were fed before, and return the new points."""
        fresh, end = chunk[len(self._tail) :], self.offset + len(chunk)
        self._tail = chunk[-OVERLAP_BYTES:]
        self.offset = end - len(self._tail)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        for line in lines:
            if self._is_in_long_line or len(line) > LINE_LIMIT_BYTES:
                self.skipped, self._is_in_long_line = self.skipped + 1, False
            elif line.strip() and not self.is_foreign:
                self._take(line)
        if len(self._rest) > LINE_LIMIT_BYTES:
            self._rest, self._is_in_long_line = b"", True
        elif self._rest and self.is_whole(self._rest):
            self._take(self._rest)
            self._rest = b""
        return self.pop_fresh()

    def _take(self, line: bytes) -> None:
        is_good = self.read_line(line)
        if is_good is None:
            self.skipped += 1
        if not is_good and not self._records:
            self._foreign_lines += 1
            if self._foreign_lines >= FOREIGN_LINES:
                self.is_foreign, self.skipped = True, 0

    def is_whole(self, line: bytes) -> bool:
        """Return True if a line that has no end yet has all of its record."""
        return False

    def read_line(self, line: bytes) -> bool | None:
        """Add the record of a line; return False if it has no metrics, and None if it is damaged."""
        raise NotImplementedError


class JsonLines(LineStream):
    """Follows a file with a JSON object in each line."""

    def is_whole(self, line: bytes) -> bool:
        """Return True if a line that has no end yet has all of its record."""
        return line.rstrip().endswith(b"}") and parse_json(line) is not None

    def read_line(self, line: bytes) -> bool | None:
        """Add the record of a line; return False if it has no metrics, and None if it is damaged."""
        record = parse_json(line)
        return self.add(record) if isinstance(record, dict) else None


class CsvLines(LineStream):
    """Follows a CSV file whose first line has the names; empty cells are no points."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []

    def read_line(self, line: bytes) -> bool | None:
        """Add the record of a line; return False if it has no metrics, and None if it is damaged."""
        try:
            cells = [cell.strip() for cell in next(csv.reader([line.decode("utf-8-sig", "replace")]))]
        except (csv.Error, StopIteration):
            return None
        if not self._names:
            self._names = cells
            return False
        if cells == self._names:
            return False
        if len(cells) != len(self._names):
            return None
        record = {name: _cell(cell) for name, cell in zip(self._names, cells, strict=True) if cell}
        return self.add(record) or (None if record and not self._records else False)


class TrainerState(RecordStream):
    """Follows `trainer_state.json`, which is rewritten each time; tags as in its event files."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._parts: list[bytes] = []

    def next_read(self, size_bytes: int) -> int | None:
        """Return the offset to read from once the file has that size; None if there is nothing new."""
        if size_bytes > STATE_LIMIT_BYTES:
            self.problem = f"It is larger than {STATE_LIMIT_BYTES >> 20} MiB."
            return None
        if size_bytes != self._size:
            self._size, self.offset, self._parts = size_bytes, 0, []
        return self.offset if size_bytes > self.offset else None

    def is_cut(self, size_bytes: int) -> bool:
        """Return False: a file of any size may be the next state."""
        return False

    def feed(self, chunk: bytes) -> list[Columns]:
        """Take the next bytes and, once the state is complete, return all points."""
        self._parts.append(chunk)
        self.offset += len(chunk)
        if self.offset < self._size:
            return []
        state, self._parts = parse_json(b"".join(self._parts)), []
        history = state.get("log_history") if isinstance(state, dict) else None
        if not isinstance(state, dict) or not isinstance(history, list):
            self.problem = "It is not complete JSON with a log_history."
            return []
        self.series, self.skipped, self.problem = {}, 0, ""
        self.texts = {
            sanitize(name): sanitize(str(value))
            for name, value in state.items()
            if isinstance(value, str | int | float)
        }
        for record in history:
            if not isinstance(record, dict) or not self.add(dict(_renamed(record))):
                self.skipped += 1
        return self.pop_fresh()


def _renamed(record: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in record.items():
        kind, _, rest = name.partition("_")
        if name in ("step", "epoch"):
            yield name, value
        else:
            yield (f"{kind}/{rest}" if kind in ("eval", "test") else f"train/{name}"), value


def parse_json(text: bytes) -> object:
    """Return the value of a JSON text; None if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def to_number(value: object) -> float | None:
    """Return a number, or one of the words for NaN and infinities, as float; None for all else."""
    if isinstance(value, str):
        return _SPECIAL.get(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _numbers(
    record: Mapping[str, object], separator: str, depth: int = _DEPTH
) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, dict):
            # StyleGAN writes each metric as {"num", "mean", "std"}; W&B marks what is no number by _type.
            if (mean := to_number(value.get("mean"))) is not None and "num" in value:
                yield name, mean
            elif depth and "_type" not in value:
                inner = _numbers(value, separator, depth - 1)
                yield from ((f"{name}{separator}{below}", number) for below, number in inner)
        elif (number := to_number(value)) is not None:
            yield name, number


def _whole(number: float) -> int | None:
    return int(number) if abs(number) < _MOST_STEP else None


def _cell(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _time(record: Mapping[str, object], numbers: Mapping[str, float]) -> float:
    for name in _TIMES:
        if (number := numbers.get(name, 0.0)) > _EARLIEST_S and number < math.inf:
            return number / 1000 if number > 1000 * _EARLIEST_S else number
        if isinstance(text := record.get(name), str):
            try:
                return max(0.0, datetime.fromisoformat(text).timestamp())
            except (ValueError, OverflowError, OSError):
                continue
    for name in _ELAPSED:
        if 0 <= (number := numbers.get(name, -1.0)) < _EARLIEST_S:
            return number
        if isinstance(text := record.get(name), str) and (found := _CLOCK.fullmatch(text)):
            days, hours, minutes, seconds = found.groups("0")
            return 86400 * float(days) + 3600 * float(hours) + 60 * float(minutes) + float(seconds)
    return 0.0
