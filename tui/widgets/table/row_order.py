"""Which rows are shown and in which order: the filter typed after `/`, and the sort by one column.

Numbers are sorted by size, words as people count, and what is not known comes last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tui.text.filter_query import parse_filter
from tui.text.format import NOTHING
from tui.text.natural_order import natural_key
from tui.widgets.table.columns import Cell, Column, Row

SortKey = float | str | None
"""What a row is sorted by; None where it has no value."""

_NO_LABELS: Mapping[str, str] = {}


def sort_key(cell: Cell) -> SortKey:
    """Return what a row with this cell is sorted by."""
    if cell.sort is None:
        return natural_key(cell.text) if cell.text.strip() not in ("", NOTHING) else None
    if isinstance(cell.sort, str):
        return natural_key(cell.sort)
    return None if math.isnan(cell.sort) else cell.sort


def sorted_places(keys: Sequence[SortKey], *, largest_first: bool) -> list[int]:
    """Return the places of the keys in their order; equals stay as they are, None comes last either way."""
    numbers = [place for place, key in enumerate(keys) if isinstance(key, float | int)]
    words = [place for place, key in enumerate(keys) if isinstance(key, str)]
    for places in (numbers, words):
        places.sort(key=keys.__getitem__, reverse=largest_first)  # type: ignore[arg-type]
    missing = [place for place, key in enumerate(keys) if key is None]
    return [*words, *numbers, *missing] if largest_first else [*numbers, *words, *missing]


class RowFilter(NamedTuple):
    """What was typed after `/`, understood for the rows of one table."""

    accepts: Callable[[Row], bool] | None = None
    """The test; None where all rows pass."""
    problem: str = ""
    """What could not be understood."""
    hint: str = ""
    """Why perhaps no row passes."""


def row_filter(
    typed: str,
    columns: Sequence[Column] = (),
    labels_of: Callable[[str], Mapping[str, str]] = lambda _key: _NO_LABELS,
) -> RowFilter:
    """Understand a filter.

    Args:
        typed: What stands after `/`.
        columns: The columns of the rows, shown or not.
        labels_of: Returns the labels of what the row with a key stands for.
    """
    places = {column.title.lower(): index for index, column in enumerate(columns) if column.title}
    found = parse_filter(typed, places)
    if found is None or found.problem:
        return RowFilter(problem=found.problem if found else "")
    accepts = found.accepts

    def passes(row: Row) -> bool:
        return accepts([cell.text for cell in row.cells], places, labels_of(row.key))

    return RowFilter(passes, hint=found.hint)
