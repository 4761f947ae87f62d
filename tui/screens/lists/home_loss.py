"""What the cells of the column of the loss say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tui.text.format import NOTHING, Look, number
from tui.text.trend import BROKEN, trend
from tui.widgets.table.table import Cell

NUMBER_CELLS = 6
"""Cells of the number before the bars, so that those of all jobs stand below each other."""


def loss_cell(values_by_uid: Mapping[str, Sequence[float]], uid: str) -> Cell:
    """Return what the column says of a job: its last loss, and how it came to be so."""
    values = values_by_uid.get(uid, ())
    if not values:
        return Cell(NOTHING, "quiet")
    last = values[-1]
    is_broken = not math.isfinite(last)
    look: Look = "failed" if is_broken else ""
    bars = BROKEN if is_broken else trend(values)
    words = _short(last).ljust(NUMBER_CELLS if bars else 0)
    return Cell.of((words, look), (f" {bars}" if bars else "", look or "quiet"), sort=last)


def _short(value: float) -> str:
    """Write a number in as many digits as there is room for: `0.00462` as `0.0046`."""
    ways = (number(value), f"{value:.2g}", f"{value:.0e}")
    return next((words for words in ways if len(words) <= NUMBER_CELLS), ways[-1])
