"""One event file that is followed while it grows: record by record until they repeat, then in columns."""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from trainer.tfevents.columns import Columns, Form, read_rows
from trainer.tfevents.event import (
    HEADER_BYTES,
    BadPayload,
    BrokenEvents,
    decode_event,
    payload_is_good,
    record_end,
)

# Longest cycle of records that is searched for.
LONGEST_CYCLE = 64

# Forms remembered for records of one length.
MOST_FORMS = 16

# Most records read one by one after a false repetition.
LONGEST_WAIT = 1024


class Reading:
    """Result of one pass; after an error, what was read before it."""

    def __init__(self, chunk: bytes) -> None:
        self.columns: list[Columns] = []  # in the order of the file, for each tag by itself
        self.used = 0  # bytes of complete records
        self.skipped = 0  # number of records whose payload is damaged
        self.texts: dict[str, str] = {}
        self.first_wall_time: float | None = None  # of the first event, scalar or not; None before it
        self.last_wall_time: float | None = None
        self._chunk = chunk
        self._single: dict[str, Columns] = {}
        self._known: dict[int, list[Form]] = {}
        self._recent: dict[Form, None] = {}
        self._wait = 1

    def run(self) -> None:
        """Read up to the last complete record.

        Raises:
            BrokenEvents: A length does not match its CRC.
        """
        try:
            self._run()
        finally:
            self._close_single()

    def _run(self) -> None:
        before_look = 0
        while (end := record_end(self._chunk, self.used)) is not None:
            at, self.used = self.used, end
            if not payload_is_good(self._chunk, at, end):
                self.skipped += 1
                continue
            form = self._pop_known(at, end) or self._take(at, end)
            before_look -= 1
            if before_look > 0:
                continue
            if form is None or len(self._recent) == LONGEST_CYCLE:
                self._recent.clear()
            elif form in self._recent:
                before_look = self._read_cycle(form)
            else:
                self._recent[form] = None

    def _pop_known(self, at: int, end: int) -> Form | None:
        """Read a record of a known form, which is fast; None if its form is new."""
        for form in self._known.get(end - at, ()):
            point = form.read(self._chunk, at)
            if point is not None:
                self._add(form.tag, *point)
                self.last_wall_time = point[1]
                return form
        return None

    def _take(self, at: int, end: int) -> Form | None:
        """Read a record of any form, and remember the form if it holds one plain scalar."""
        try:
            event = decode_event(self._chunk[at + HEADER_BYTES : end - 4])
        except BadPayload:
            self.skipped += 1
            return None
        if self.first_wall_time is None:
            self.first_wall_time = event.wall_time
        self.last_wall_time = event.wall_time
        self.texts.update(event.texts)
        for tag, value, _, _ in event.scalars:
            self._add(tag, event.step, event.wall_time, value)
        form = Form.of(self._chunk[at:end], event)
        known = self._known.setdefault(end - at, [])
        if form is not None and len(known) < MOST_FORMS:
            known.append(form)
        return form

    def _add(self, tag: str, step: int, wall_time: float, value: float) -> None:
        columns = self._single.get(tag)
        if columns is None:
            columns = self._single[tag] = Columns.empty(tag)
        columns.append(step, wall_time, value)

    def _close_single(self) -> None:
        self.columns += self._single.values()
        self._single = {}

    def _read_cycle(self, form: Form) -> int:
        """Read in columns, as `form` has repeated; returns how many records to read one by one next."""
        recent = list(self._recent)
        cycle = [*recent[recent.index(form) + 1 :], form]
        self._recent.clear()
        used_before = self.used
        if len({each.tag for each in cycle}) == len(cycle):
            while True:
                columns, used = read_rows(self._chunk, self.used, cycle)
                if not used:
                    break
                self._close_single()
                self.columns += columns
                self.used += used
                self.last_wall_time = columns[-1].wall_times[-1]
        self._wait = 1 if self.used > used_before else min(2 * self._wait, LONGEST_WAIT)
        return self._wait


class Restart(NamedTuple):
    """A place where a tag's step went back: the points from `step` on were written again."""

    step: int
    wall_time: float


@dataclass(slots=True, eq=False)
class ScalarSeries:
    """Points of one tag, with rising steps.

    A step at or below the last one drops the points at and after it, as in TensorBoard's data server.
    """

    steps: "array[int]" = field(default_factory=lambda: array("q"))  # int64
    wall_times: "array[float]" = field(default_factory=lambda: array("d"))  # float64, seconds since 1970
    values: "array[float]" = field(default_factory=lambda: array("d"))  # float64
    # Rising; a restart is dropped with the points around it
    restarts: list[Restart] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    def extend(self, new: Columns) -> None:
        """Append points in the order they were written; takes time for the new ones only."""
        if not new.steps:
            return
        if (not self.steps or new.steps[0] > self.steps[-1]) and new.steps_rise():
            self.steps.extend(new.steps)
            self.wall_times.extend(new.wall_times)
            self.values.extend(new.values)
            return
        for step, wall_time, value in zip(new.steps, new.wall_times, new.values, strict=True):
            if self.steps and step <= self.steps[-1]:
                self._go_back(step, wall_time)
            self.steps.append(step)
            self.wall_times.append(wall_time)
            self.values.append(value)

    def _go_back(self, step: int, wall_time: float) -> None:
        if step < self.steps[-1]:
            while self.restarts and self.restarts[-1].step >= step:
                self.restarts.pop()
            self.restarts.append(Restart(step, wall_time))
        first = bisect_left(self.steps, step)
        del self.steps[first:], self.wall_times[first:], self.values[first:]


# Texts retained of one file.
MOST_TEXTS = 256


class EventStream:
    """Follows one event file from any source.

    Bytes are fed in order, in pieces of any size. Damage is counted or named, never raised.
    """

    def __init__(self) -> None:
        self.series: dict[str, ScalarSeries] = {}
        self.texts: dict[str, str] = {}  # newest texts and arguments of the run, by tag or name. Not cleaned.
        self.offset = 0  # offset in the file of the next bytes to feed
        self.skipped = 0  # number of records whose payload is damaged
        self.problem = ""  # reason why nothing more can be read; empty if there is none
        self.first_wall_time: float | None = None  # of the first event, scalar or not; None before it
        self.last_wall_time: float | None = None
        self._pending = b""
        self._parts: list[bytes] = []
        self._wanted = 0

    def next_read(self, size_bytes: int) -> int | None:
        """Return the offset to read from once the file has that size; None if there is nothing new."""
        return self.offset if size_bytes > self.offset else None

    def is_cut(self, size_bytes: int) -> bool:
        """Return True if a file of that size cannot be the one that was read."""
        return size_bytes < self.offset

    def feed(self, chunk: bytes) -> list[Columns]:
        """Take the next bytes of the file and return the points that they complete."""
        self.offset += len(chunk)
        if self.problem:
            return []
        self._parts.append(chunk)
        self._wanted -= len(chunk)
        if self._wanted > 0:
            return []
        pending = b"".join(self._parts)
        reading = Reading(pending)
        try:
            reading.run()
        except BrokenEvents as error:
            self.problem = str(error)
        self.skipped += reading.skipped
        for tag, text in reading.texts.items():
            if tag in self.texts or len(self.texts) < MOST_TEXTS:
                self.texts[tag] = text
        if self.first_wall_time is None:
            self.first_wall_time = reading.first_wall_time
        self.last_wall_time = reading.last_wall_time or self.last_wall_time
        self._keep(pending[reading.used :])
        for columns in reading.columns:
            self.series.setdefault(columns.tag, ScalarSeries()).extend(columns)
        return reading.columns

    def _keep(self, rest: bytes) -> None:
        if len(rest) >= HEADER_BYTES and not any(rest[:HEADER_BYTES]):
            self.offset -= len(rest)
            rest = b""
        self._parts = [rest] if rest and not self.problem else []
        length = int.from_bytes(rest[:8], "little") if len(rest) >= HEADER_BYTES else 0
        self._wanted = max(0, length + HEADER_BYTES + 4 - len(rest))
