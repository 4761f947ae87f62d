"""Which rows are shown and in which order: the filter typed after `/`, and the sort by one column.

Numbers are sorted by size, words as people count, and what is not known comes last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from tui.text.filter_query import parse_filter
from tui.text.format import NOTHING
from tui.widgets.table.columns import Cell, Column, Row

SortKey = float | str | None
"""What a row is sorted by; None where it has no value."""

_NO_LABELS: Mapping[str, str] = {}
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


def row_filter(
    typed: str,
    columns: Sequence[Column] = (),
    labels_of: Callable[[str], Mapping[str, str]] = lambda _key: _NO_LABELS,
) -> tuple[Callable[[Row], bool] | None, str]:
    """Return the test, None when all rows pass, and what could not be understood.

    Args:
        typed: What stands after `/`.
        columns: The columns of the rows, shown or not.
        labels_of: Returns the labels of what the row with a key stands for.
    """
    places = {column.title.lower(): index for index, column in enumerate(columns) if column.title}
    found = parse_filter(typed, places)
    if found is None or found.problem:
        return None, found.problem if found else ""
    accepts = found.accepts

    def passes(row: Row) -> bool:
        return accepts([cell.text for cell in row.cells], places, labels_of(row.key))

    return passes, ""
