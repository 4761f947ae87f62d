"""Percentages and trends over time as one line of bars, newest last."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Without the full block, so that neighbouring rows do not touch.
LEVELS = "▁▂▃▄▅▆▇"
# Stands for an unknown value.
GAP = "·"


def level(percent: float) -> str:
    """Return the bar of a percentage on a scale of 0 to 100."""
    share = min(max(percent, 0.0), 100.0) / 100
    return LEVELS[min(int(share * len(LEVELS)), len(LEVELS) - 1)]


def sparkline(percents: Sequence[float | None], width: int) -> str:
    """Draw percentages in `width` cells, each with the maximum of its share.

    The last cell is the newest value alone, to agree with the number beside it. Fewer values than cells
    leave the first cells blank.
    """
    if width < 1 or not percents:
        return " " * max(width, 0)
    older, newest = percents[:-1], percents[-1]
    cells = min(width - 1, len(older))
    marks = [
        _mark(older[len(older) * cell // cells : len(older) * (cell + 1) // cells]) for cell in range(cells)
    ]
    return "".join((*marks, _mark([newest]))).rjust(width)


def _mark(percents: Sequence[float | None]) -> str:
    known = [each for each in percents if each is not None]
    return level(max(known)) if known else GAP


# Stands for NaN and infinity.
BROKEN = "✕"


def trend(values: Sequence[float], width: int = 8) -> str:
    """Draw values as bars between their minimum and maximum; empty for fewer than two.

    >>> trend([4, 3, 2, 1], 4)
    '▇▅▃▁'
    """
    if len(values) < 2:
        return ""
    columns = min(width, len(values))
    parts = [
        values[place * len(values) // columns : (place + 1) * len(values) // columns]
        for place in range(columns)
    ]
    heights = [math.fsum(part) / len(part) if all(map(math.isfinite, part)) else None for part in parts]
    finite = [each for each in heights if each is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(BROKEN if each is None else _bar(each, low, high) for each in heights)


def _bar(value: float, low: float, high: float) -> str:
    share = (value - low) / (high - low) if high > low else 0.0
    return LEVELS[round(share * (len(LEVELS) - 1))]
