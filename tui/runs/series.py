"""Points of one curve, stored and downsampled so that a million of them draw in milliseconds.

Values are summarised in blocks as they arrive, so a chart column finds the range of its
thousands of points in a few dozen steps.
"""

from __future__ import annotations

import math
import operator
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

BLOCK = 64

_CHUNK = 4096
_SETTLED = 1e-15
# Seconds since 1970 up to the year 8307; others are no times.
_LATEST_S = 2e11


class MinMaxLevels:
    """Minimum and maximum of any slice of values, without reading the whole slice."""

    def __init__(self, values: array[float]) -> None:
        """Index `values`; call `catch_up` after they grew and `cut` after they shrank."""
        self._values = values
        self._lows: array[float] = array("d")
        self._highs: array[float] = array("d")

    def catch_up(self) -> None:
        """Summarise newly completed blocks; the cost depends only on new values."""
        start = len(self._lows) * BLOCK
        part = self._values[start : len(self._values) // BLOCK * BLOCK].tolist()
        blocks = [part[at : at + BLOCK] for at in range(0, len(part), BLOCK)]
        if math.isfinite(sum(part)):
            self._lows.extend(map(min, blocks))
            self._highs.extend(map(max, blocks))
            return
        for low, high in map(_low_high, blocks):
            self._lows.append(low)
            self._highs.append(high)

    def cut(self, length: int) -> None:
        """Drop the summaries at and after index `length`."""
        del self._lows[length // BLOCK :], self._highs[length // BLOCK :]

    def between(self, start: int, end: int) -> tuple[float, float]:
        """Return the lowest and highest finite of `values[start:end]`; infinity and its negative if none."""
        first = -(-start // BLOCK)
        last = min(end // BLOCK, len(self._lows))
        if last - first < 2:
            return _low_high(self._values[start:end].tolist())
        head = _low_high(self._values[start : first * BLOCK].tolist())
        tail = _low_high(self._values[last * BLOCK : end].tolist())
        return (
            min(head[0], tail[0], min(self._lows[first:last])),
            max(head[1], tail[1], max(self._highs[first:last])),
        )

    def count_outside(self, start: int, end: int, low: float, high: float, *, above: float) -> int:
        """Count the finite of `values[start:end]` that are above `above`, but not from `low` to `high`."""
        values, lows, highs = self._values, self._lows, self._highs
        found = 0
        for block in range(start // BLOCK, -(-end // BLOCK)):
            if block < len(lows) and low <= lows[block] and highs[block] <= high:
                continue
            part = values[max(start, block * BLOCK) : min(end, (block + 1) * BLOCK)]
            found += sum(1 for value in part if above < value < low or high < value < math.inf)
        return found


def _low_high(part: Sequence[float]) -> tuple[float, float]:
    if part and math.isfinite(sum(part)):
        return min(part), max(part)
    finite = list(filter(math.isfinite, part))
    return min(finite, default=math.inf), max(finite, default=-math.inf)


class Series:
    """The points of one curve, in increasing steps.

    A point at or below the last step drops the points at and after it, as when a job restarts
    from a checkpoint; `restarts` lists these steps. Values may be NaN or infinite. Wall times
    never decrease: a clock that goes back is clamped.
    """

    def __init__(self) -> None:
        self.steps: array[int] = array("q")
        """int64, increasing."""
        self.wall_times: array[float] = array("d")
        """Seconds since 1970, never decreasing."""
        self.values: array[float] = array("d")
        self.restarts: list[int] = []
        self.alerts: Sequence[int] = ()
        """Steps at which it began to go wrong."""
        """Steps from which the curve was rewritten."""
        self.broken: array[int] = array("q")
        """Indices of NaN and infinite values."""
        self.version = 0
        self.cuts = 0
        self.bands = MinMaxLevels(self.values)
        self._smoothed: Smoothed | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, points: Iterable[tuple[int, float, float]]) -> None:
        """Append points (step, wall time, value), oldest first."""
        columns = list(zip(*points, strict=True))
        if columns:
            self.extend(*columns)

    def extend(self, steps: Sequence[int], wall_times: Sequence[float], values: Sequence[float]) -> None:
        """Append points given as three columns of equal length, oldest first."""
        if not steps:
            return
        start = 0
        while start < len(steps):
            end = _rising_until(steps, start)
            if self.steps and steps[start] <= self.steps[-1]:
                self._go_back(steps[start])
            if end - start == len(steps):
                self._add(steps, wall_times, values)
            else:
                self._add(steps[start:end], wall_times[start:end], values[start:end])
            start = end
        self.bands.catch_up()
        self.version += 1

    def update(
        self,
        steps: Sequence[int],
        wall_times: Sequence[float],
        values: Sequence[float],
        restarts: Iterable[int] = (),
    ) -> None:
        """Replace the points; if the old points are a prefix of the new ones, only the others are added.

        Steps must increase, as those of a `ScalarCurve` do.
        """
        known = len(self)
        if known and not self._begins(steps, values):
            self._cut(0)
            known = 0
        if len(steps) > known:
            self._add(steps[known:], wall_times[known:], values[known:])
            self.bands.catch_up()
            self.version += 1
        if self.restarts != (new := list(restarts)):
            self.restarts = new
            self.version += 1

    def mark_alerts(self, steps: Sequence[int]) -> None:
        """Mark the steps at which it began to go wrong."""
        if self.alerts != steps:
            self.alerts = steps
            self.version += 1

    def smoothed(self, weight: float) -> Smoothed:
        """Return the running mean for a weight from 0 to 0.999; the latest weight is cached."""
        if self._smoothed is None or self._smoothed.weight != weight:
            self._smoothed = Smoothed(self, weight)
        self._smoothed.catch_up()
        return self._smoothed

    def broken_between(self, start: int, end: int) -> int:
        """Count the NaN and infinite values in `values[start:end]`."""
        return bisect_left(self.broken, end) - bisect_left(self.broken, start)

    def _begins(self, steps: Sequence[int], values: Sequence[float]) -> bool:
        last = len(self) - 1
        if last >= len(steps) or steps[0] != self.steps[0] or steps[last] != self.steps[last]:
            return False
        value, known = values[last], self.values[last]
        return value == known or (math.isnan(value) and math.isnan(known))

    def _go_back(self, step: int) -> None:
        if step < self.steps[-1]:
            self.restarts = [*(earlier for earlier in self.restarts if earlier < step), step]
        self._cut(bisect_left(self.steps, step))

    def _cut(self, length: int) -> None:
        del self.steps[length:], self.wall_times[length:], self.values[length:]
        del self.broken[bisect_left(self.broken, length) :]
        self.bands.cut(length)
        self.cuts += 1
        self.version += 1

    def _add(self, steps: Sequence[int], wall_times: Sequence[float], values: Sequence[float]) -> None:
        known = len(self)
        latest = self.wall_times[-1] if known else 0.0
        self.steps.extend(steps)
        if (
            latest <= wall_times[0]
            and wall_times[-1] <= _LATEST_S
            and all(map(operator.le, wall_times, islice(wall_times, 1, None)))
        ):
            self.wall_times.extend(wall_times)
        else:
            times = (time if 0 <= time <= _LATEST_S else 0.0 for time in wall_times)
            self.wall_times.extend(islice(accumulate(times, max, initial=latest), 1, None))
        self.values.extend(values)
        if not math.isfinite(sum(values)):
            self.broken.extend(
                index for index, value in enumerate(values, start=known) if not math.isfinite(value)
            )


class Smoothed:
    """Exponential moving mean of a series, as in TensorBoard.

    The mean is debiased: it is divided by `1 - weight ** n`. NaN and infinite values are passed
    through and do not enter the mean.

    Source: `data_transformer.ts` of TensorBoard's time series page.
    """

    def __init__(self, series: Series, weight: float) -> None:
        self.weight = weight
        self.values: array[float] = array("d")
        """One value per point of the series."""
        self.bands = MinMaxLevels(self.values)
        self._series = series
        self._cuts = series.cuts
        self._mean = 0.0
        self._count = 0

    def catch_up(self) -> None:
        """Process new points; a series that was cut is processed again from its start."""
        if self._cuts != self._series.cuts:
            self._cuts = self._series.cuts
            del self.values[:]
            self.bands.cut(0)
            self._mean, self._count = 0.0, 0
        for start in range(len(self.values), len(self._series), _CHUNK):
            self._add(self._series.values[start : start + _CHUNK])
        self.bands.catch_up()

    def _add(self, part: array[float]) -> None:
        weight, share = self.weight, 1 - self.weight
        if weight**self._count < _SETTLED and math.isfinite(sum(part)):
            means = accumulate(part, lambda mean, value: mean * weight + value * share, initial=self._mean)
            self.values.extend(islice(means, 1, None))
            self._mean = self.values[-1]
            self._count += len(part)
            return
        for value in part:
            if math.isfinite(value):
                self._mean = self._mean * weight + value * share
                self._count += 1
                self.values.append(self._mean / (1 - weight**self._count))
            else:
                self.values.append(value)


def _rising_until(steps: Sequence[int], start: int) -> int:
    # The end of the increasing stretch that begins at `start`.
    part = steps[start:] if start else steps
    if all(map(operator.lt, part, islice(part, 1, None))):
        return len(steps)
    return next(index for index in range(start + 1, len(steps)) if steps[index] <= steps[index - 1])


class Span(NamedTuple):
    """Summary of the points in one dot column."""

    x: int
    first: float
    """Like `last`, it may be NaN or infinite."""
    low: float
    """Lowest finite value; infinity if there is none."""
    high: float
    """Highest finite value; negative infinity if there is none."""
    last: float
    start: int = 0
    """Index of its first point."""


def downsample(
    xs: array[int] | array[float],
    values: array[float],
    bands: MinMaxLevels,
    *,
    low: float,
    high: float,
    columns: int,
) -> list[Span]:
    """Summarise the points between `low` and `high` for each dot column.

    Columns without points are left out. The first column is centred on `low`, the last one on `high`.

    Args:
        xs: Position of each value, never decreasing.
        values: The values.
        bands: Minima and maxima of `values`.
        low: Start of the chart.
        high: End of the chart; greater than `low`.
        columns: Number of dot columns; at least 2.
    """
    step = (high - low) / (columns - 1)
    spans = []
    start, end_of_all = bisect_left(xs, low - step / 2), len(xs)
    for column in range(columns):
        if start >= end_of_all:
            break
        edge = low + (column + 0.5) * step
        if xs[start] >= edge:
            continue
        end = bisect_left(xs, edge, start)
        spans.append(Span(column, values[start], *bands.between(start, end), values[end - 1], start))
        start = end
    return spans


def few_points(steps: array[int], values: array[float], columns: int) -> list[int]:
    """Return the indices of the points that a chart of so many dot columns needs, in order.

    They are the first and the last point, and of each column the lowest, the highest, and the first that is
    not finite. At least two points are needed, with rising steps.
    """
    bands = MinMaxLevels(values)
    bands.catch_up()
    spans = downsample(steps, values, bands, low=steps[0], high=steps[-1], columns=columns)
    found = {0, len(steps) - 1}
    for span, end in zip(spans, [*(each.start for each in spans[1:]), len(steps)], strict=True):
        if span.low <= span.high:
            found |= {values.index(value, span.start, end) for value in (span.low, span.high)}
        if not math.isfinite(sum(values[span.start : end])):
            broken = (at for at in range(span.start, end) if not math.isfinite(values[at]))
            found |= {*islice(broken, 1)}
    return sorted(found)


def value_range(spans: list[Span], *, above_zero: bool = False) -> tuple[float, float] | None:
    """Return the lowest and highest value that can be drawn; None if there is none.

    Args:
        spans: The spans of one or several curves.
        above_zero: Ignore values that a logarithmic axis cannot show.
    """
    lows = [span.low for span in spans if math.isfinite(span.low)]
    highs = [span.high for span in spans if math.isfinite(span.high)]
    if above_zero:
        lows = [
            min(low if low > 0 else high, high) for low, high in zip(lows, highs, strict=True) if high > 0
        ]
        highs = [high for high in highs if high > 0]
    return (min(lows), max(highs)) if lows else None
