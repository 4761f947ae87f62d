"""From what is typed after `/` to the test that a table's rows must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tui.text.filter_query import parse_filter
from tui.widgets.table.columns import Column, Row

_NO_LABELS: Mapping[str, str] = {}


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
