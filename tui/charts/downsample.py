"""Choose what of a curve can be seen: lowest, highest and last for each column of dots."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from typing import NamedTuple

from tui.charts.series import Bands


class Span(NamedTuple):
    """What the points that fall into one column of dots amount to."""

    x: int
    """The column, from 0."""
    first: float
    """The first value; it may be NaN or infinite, like the last."""
    low: float
    """The lowest finite value; infinity if there is none."""
    high: float
    """The highest finite value; negative infinity if there is none."""
    last: float
    """The last value."""


def downsample(
    xs: array[int] | array[float],
    values: array[float],
    bands: Bands,
    *,
    low: float,
    high: float,
    columns: int,
) -> list[Span]:
    """Sum up the points between `low` and `high` for each column of dots.

    Columns without points are left out. The first column is centred on `low`, the last one on `high`.

    Args:
        xs: Where each value lies, never falling.
        values: The values.
        bands: The bands over `values`.
        low: Where the chart begins.
        high: Where the chart ends; greater than `low`.
        columns: How many columns of dots the chart has; at least 2.
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
        spans.append(Span(column, values[start], *bands.between(start, end), values[end - 1]))
        start = end
    return spans


def value_range(spans: list[Span], *, above_zero: bool = False) -> tuple[float, float] | None:
    """Find the lowest and highest value that can be drawn, or None if there is none.

    Args:
        spans: The spans of one or several curves.
        above_zero: Leave out what a logarithmic axis cannot show.
    """
    lows = [span.low for span in spans if math.isfinite(span.low)]
    highs = [span.high for span in spans if math.isfinite(span.high)]
    if above_zero:
        lows = [
            min(low if low > 0 else high, high) for low, high in zip(lows, highs, strict=True) if high > 0
        ]
        highs = [high for high in highs if high > 0]
    return (min(lows), max(highs)) if lows else None
