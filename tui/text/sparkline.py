"""Percentages over time in one line of text, newest last; the same scale on every row."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇"
"""Without the full block, so that rows above each other do not run together."""
GAP = "·"
"""Stands for a time of which nothing is known."""


def level(percent: float) -> str:
    """Return the mark of one percentage; the scale is 0 to 100, whatever else there is."""
    share = min(max(percent, 0.0), 100.0) / 100
    return LEVELS[min(int(share * len(LEVELS)), len(LEVELS) - 1)]


def sparkline(percents: Sequence[float | None], width: int) -> str:
    """Draw percentages in `width` cells: each shows the highest of its share of them.

    The last cell is the newest value alone, so that it agrees with the number beside it. Fewer
    values than cells leave the cells before them blank.
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
