"""The order of rows by one column: numbers by size, words as people count, what is not known last."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tui.text.format import NOTHING
from tui.widgets.table.columns import Cell

SortKey = float | str | None
"""What a row is sorted by; None where it has no value."""

_DIGITS = re.compile("[0-9]+")


def sort_key(cell: Cell) -> SortKey:
    """Return what a row with this cell is sorted by."""
    if cell.sort is None:
        return natural_key(cell.text) if cell.text.strip() not in ("", NOTHING) else None
    if isinstance(cell.sort, str):
        return natural_key(cell.sort)
    return None if math.isnan(cell.sort) else cell.sort


def natural_key(text: str) -> str:
    """Return a text that sorts where people look for this one: `worker-2` before `worker-10`."""
    return _DIGITS.sub(_counted, text.casefold())


def _counted(found: re.Match[str]) -> str:
    """Put before a number how many digits it has, so that texts compare as numbers do."""
    digits = found.group().lstrip("0")
    return chr(ord("0") + len(digits)) + digits


def sorted_places(keys: Sequence[SortKey], *, largest_first: bool) -> list[int]:
    """Return the places of the keys in their order; equals stay as they are, None comes last either way."""
    numbers = [place for place, key in enumerate(keys) if isinstance(key, float | int)]
    words = [place for place, key in enumerate(keys) if isinstance(key, str)]
    for places in (numbers, words):
        places.sort(key=keys.__getitem__, reverse=largest_first)  # type: ignore[arg-type]
    missing = [place for place, key in enumerate(keys) if key is None]
    return [*words, *numbers, *missing] if largest_first else [*numbers, *words, *missing]
