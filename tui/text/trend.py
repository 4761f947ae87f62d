"""Values as a few bars, so that one sees in a cell of a table whether they fall."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tui.text.sparkline import LEVELS

BROKEN = "✕"
"""Stands for values that are no number."""


def trend(values: Sequence[float], width: int = 8) -> str:
    """Draw values as bars between their lowest and their highest; nothing where there are fewer than two.

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
