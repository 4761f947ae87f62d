"""Runs of records of one form, read as columns; this makes a million points readable in half a second.

A training loop writes the same few tags again and again, so the file is a table: a row of records of fixed
lengths, in which only the wall times, steps, values and CRCs change. Every `row_bytes`-th byte is one column
of that table, and slicing, comparing and OR-ing whole columns costs about a nanosecond per byte.
"""

import operator
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Literal

from trainer.tfevents.event import HEADER_BYTES, EventRecord, crc32c, payload_is_good

# Rows read together; bounds the cost of a mismatch.
MOST_ROWS = 4096

FEWEST_ROWS = 8

_CONTINUED = bytes(range(128, 256))
_LAST = bytes(range(128))
_SHIFTED = {
    shift: bytes(
        ((octet & 127) << shift) & 255 if shift >= 0 else (octet & 127) >> -shift for octet in range(256)
    )
    for shift in range(-7, 8)
}


@dataclass(slots=True, eq=False)
class Columns:
    """Consecutive points of one tag: three arrays of one length."""

    tag: str
    steps: "array[int]"  # int64
    wall_times: "array[float]"  # float64, seconds since 1970
    values: "array[float]"  # float64

    @classmethod
    def empty(cls, tag: str) -> "Columns":
        """Return columns without points."""
        return cls(tag, array("q"), array("d"), array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, step: int, wall_time: float, value: float) -> None:
        """Append one point."""
        self.steps.append(step)
        self.wall_times.append(wall_time)
        self.values.append(value)

    def steps_rise(self) -> bool:
        """Return True if every step is greater than the one before."""
        steps = self.steps.tolist()
        return all(map(operator.lt, steps, steps[1:]))


@dataclass(frozen=True, slots=True)
class Form:
    """Layout of a record that holds one scalar; offsets count from the record's start."""

    template: bytes  # the record with zeros at the offsets that change
    changing: tuple[int, ...]  # the offsets whose bytes differ from row to row
    tag: str
    wall_time_at: int
    step_at: int
    step_end: int  # equal to `step_at` when the step is absent, which means 0
    value_at: int
    value_format: str
    # The record as: constant, wall time, constant, step, constant, value, constant, CRC
    parts: struct.Struct = field(compare=False)

    @classmethod
    def of(cls, record: bytes, event: EventRecord) -> "Form | None":
        """Describe `record`, whose payload decodes to `event`; None unless it holds one plain scalar."""
        if len(event.scalars) != 1 or event.wall_time_at < 0 or event.step < 0 or not event.scalars[0].form:
            return None
        found = event.scalars[0]
        wall_time_at, value_at = event.wall_time_at + HEADER_BYTES, found.at + HEADER_BYTES
        step_at, step_end = wall_time_at + 8, wall_time_at + 8
        if event.step_at >= 0:
            step_at, step_end = event.step_at + HEADER_BYTES, event.step_end + HEADER_BYTES
        value_end = value_at + struct.calcsize(found.form)
        if not wall_time_at + 8 <= step_at <= step_end <= value_at:
            return None
        changing = (
            *range(wall_time_at, wall_time_at + 8),
            *range(step_at, step_end),
            *range(value_at, value_end),
            *range(len(record) - 4, len(record)),
        )
        template = bytearray(record)
        for offset in changing:
            template[offset] = 0
        parts = struct.Struct(
            f"<{wall_time_at}sd{step_at - wall_time_at - 8}s{step_end - step_at}s{value_at - step_end}s"
            f"{found.form[1]}{len(record) - 4 - value_end}sI"
        )
        offsets = (wall_time_at, step_at, step_end, value_at)
        return cls(bytes(template), changing, found.tag, *offsets, found.form, parts)

    def read(self, chunk: bytes, at: int) -> tuple[int, float, float] | None:
        """Return step, wall time and value of the record at `at`; None if it has another form."""
        head, wall_time, gap, octets, middle, value, tail, _ = self.parts.unpack_from(chunk, at)
        known = self.template
        if (
            middle != known[self.step_end : self.value_at]
            or gap != known[self.wall_time_at + 8 : self.step_at]
            or not known.startswith(head)
            or not known.endswith(tail + b"\0\0\0\0")
        ):
            return None
        step = 0
        for k, octet in enumerate(octets, 1):
            if (octet > 127) == (k == len(octets)):
                return None
            step |= (octet & 127) << 7 * (k - 1)
        return step, wall_time, value


def read_rows(chunk: bytes, at: int, forms: Sequence[Form]) -> tuple[list[Columns], int]:
    """Read rows of records of `forms`, over and over, from `at` on.

    Returns:
        One Columns for each form, and the bytes used: 0 when the next
        records have other forms, or are damaged, or are fewer than FEWEST_ROWS rows.
    """
    template = b"".join(form.template for form in forms)
    row_bytes = len(template)
    rows = min((len(chunk) - at) // row_bytes, MOST_ROWS)
    if rows < FEWEST_ROWS:
        return [], 0
    starts = [0, *accumulate(len(form.template) for form in forms[:-1])]
    changing = [start + offset for start, form in zip(starts, forms, strict=True) for offset in form.changing]
    window = chunk[at : at + rows * row_bytes]
    window = window[: _equal_rows(window, template, changing) * row_bytes]
    rows = _good_rows(window, forms, starts)
    if rows < FEWEST_ROWS:
        return [], 0
    window = window[: rows * row_bytes]
    columns = []
    for start, form in zip(starts, forms, strict=True):
        steps = _steps([window[start + k :: row_bytes] for k in range(form.step_at, form.step_end)], rows)
        if steps is None:
            return [], 0
        wall_times = _numbers(window, start + form.wall_time_at, row_bytes, "d")
        code: Literal["f", "d"] = "f" if form.value_format == "<f" else "d"
        values = _numbers(window, start + form.value_at, row_bytes, code)
        columns.append(Columns(form.tag, steps, wall_times, array("d", values)))
    return columns, len(window)


def _equal_rows(window: bytes, template: bytes, changing: Sequence[int]) -> int:
    # May count too few rows, never too many.
    row_bytes = len(template)
    rows = len(window) // row_bytes
    blanked = bytearray(window)
    for offset in changing:
        blanked[offset::row_bytes] = bytes(rows)
    while rows and blanked[: rows * row_bytes] != template * rows:
        rows //= 2
    return rows


def _good_rows(window: bytes, forms: Sequence[Form], starts: Sequence[int]) -> int:
    # The number of rows before the first damaged payload.
    row_bytes = sum(len(form.template) for form in forms)
    good = len(window) // row_bytes
    if not _all_match(window, forms, starts):
        for start, form in zip(starts, forms, strict=True):
            places = range(start, good * row_bytes, row_bytes)
            ends = (place + len(form.template) for place in places)
            checks = map(payload_is_good, repeat(window), places, ends)
            good = next((row for row, is_good in enumerate(checks) if not is_good), good)
    return good


def _all_match(window: bytes, forms: Sequence[Form], starts: Sequence[int]) -> bool:
    """Check the CRCs of all rows at once.

    A payload followed by its own CRC leaves the same remainder whatever it says. So good rows have one CRC
    over all of them, once the CRCs in them are unmasked: that of as many blank rows of the same forms.
    """
    row_bytes = sum(len(form.template) for form in forms)
    rows, unmasked, blank = len(window) // row_bytes, bytearray(window), bytearray()
    each = int.from_bytes(b"\1\0\0\0" * rows, "little")  # every CRC is a 32-bit lane of one number
    for start, form in zip(starts, forms, strict=True):
        end = start + len(form.template) - 4
        crcs = bytearray(4 * rows)
        for k in range(4):
            crcs[k::4] = window[end + k :: row_bytes]
        # Subtract the constant, without a carry into the next lane, and rotate back.
        masked = int.from_bytes(crcs, "little")
        low = masked & each * 0x7FFFFFFF
        rotated = low + each * (2**32 - 0xA282EAD8) ^ masked ^ low
        found = rotated >> 17 & each * 0x7FFF | rotated << 15 & each * 0xFFFF8000
        crcs[:] = found.to_bytes(4 * rows, "little")
        for k in range(4):
            unmasked[end + k :: row_bytes] = crcs[k::4]
        blank += form.template[:-4] + crc32c(form.template[HEADER_BYTES:-4]).to_bytes(4, "little")
    return crc32c(bytes(unmasked)) == crc32c(bytes(blank * rows))


def _numbers(window: bytes, at: int, row_bytes: int, code: Literal["f", "d"]) -> "array[float]":
    """Gather the number at the offset `at` of each row, `code` as in `array`."""
    numbers = array(code)
    size = numbers.itemsize
    gathered = bytearray(len(window) // row_bytes * size)
    for k in range(size):
        gathered[k::size] = window[at + k :: row_bytes]
    numbers.frombytes(bytes(gathered))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _steps(octets: Sequence[bytes], rows: int) -> "array[int] | None":
    """Return the numbers in columns of varint bytes; None if a varint does not end with its column."""
    if not octets:
        return array("q", bytes(8 * rows))
    if any(column.translate(None, _CONTINUED) for column in octets[:-1]) or octets[-1].translate(None, _LAST):
        return None
    gathered = bytearray(8 * rows)
    for k in range(8):
        bits = 0
        for j, column in enumerate(octets):
            shift = 7 * j - 8 * k
            if shift in _SHIFTED:
                bits |= int.from_bytes(column.translate(_SHIFTED[shift]), "little")
        gathered[k::8] = bits.to_bytes(rows, "little")
    steps = array("q")
    steps.frombytes(bytes(gathered))
    if sys.byteorder == "big":
        steps.byteswap()
    return steps
