"""The rows of a table: which are shown, in which order, on which lines, and how wide they are.

A live list is replaced ten times a second, and nearly all its rows are the same objects as before.
So whatever is asked of a row is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import Generic, TypeVar

from tui.text.format import NOTHING
from tui.widgets.table.columns import Column, LinesPerRow, Row, natural_widths, place_lines, widest
from tui.widgets.table.row_order import SortKey, sort_key, sorted_places

T = TypeVar("T")
_UNTOLD = ("", NOTHING)


class _Answers(Generic[T]):
    """What a function says of rows that are alive; compared by identity."""

    def __init__(self, ask: Callable[[Row], T], rows: Iterable[Row]) -> None:
        self._ask = ask
        self._answers = {id(row): ask(row) for row in rows}

    def update(self, came: Iterable[Row], went: Iterable[Row]) -> None:
        for row in went:
            del self._answers[id(row)]
        for row in came:
            self._answers[id(row)] = self._ask(row)

    def of(self, rows: Iterable[Row]) -> Iterator[T]:
        return map(self._answers.__getitem__, map(id, rows))


class RowSet:
    """Rows as they were given, and what the filter and the order make of them."""

    def __init__(self, columns: Iterable[Column]) -> None:
        """Start without any row."""
        self.columns = tuple(columns)
        """The columns, left to right."""
        self.rows: Sequence[Row] = ()
        """All rows, in the order given."""
        self.shown: Sequence[Row] = ()
        """Those that the filter lets through, in the order they are shown."""
        self.lines = LinesPerRow()
        """Where the shown rows lie."""
        self.natural = natural_widths(self.columns, ())
        """The cells each column would like to have for all rows, shown or not."""
        self.hint = ""
        """Why perhaps no row passes the filter."""
        self._ids: set[int] = set()
        self._told = [0] * len(self.columns)
        self._verdicts: _Answers[bool] | None = None
        self._keys: _Answers[SortKey] | None = None
        self._order: tuple[str, bool] | None = None
        self._sorted: tuple[list[SortKey], list[int]] = ([], [])
        self._places: dict[str, int] | None = None

    def replace(self, rows: Iterable[Row]) -> None:
        """Take other rows, each with a cell for each column and a key of its own."""
        before, rows = self.rows, list(rows)
        ids = set(map(id, rows))
        came = [row for row in rows if id(row) not in self._ids]
        went = [row for row in before if id(row) not in ids]
        self.rows, self._ids = rows, ids
        for answers in (self._verdicts, self._keys):
            if answers is not None:
                answers.update(came, went)
        self._measure(came, went)
        self._arrange()

    def set_columns(self, columns: Iterable[Column], rows: Iterable[Row]) -> None:
        """Take other columns, and rows that have a cell for each of them."""
        self.columns = tuple(columns)
        self.natural, self._told = natural_widths(self.columns, ()), [0] * len(self.columns)
        if self._verdicts is not None:
            self._verdicts.update((), self.rows)
        self.rows, self._ids = (), set()
        self._ask_keys()
        self.replace(rows)

    def filter(self, accepts: Callable[[Row], bool] | None, hint: str = "") -> None:
        """Show only rows that `accepts` lets through; None shows all; `hint` says why it may be none."""
        self.hint = hint
        self._verdicts = _Answers(accepts, self.rows) if accepts else None
        self._arrange()

    def sort(self, order: tuple[str, bool] | None) -> None:
        """Show the rows in the order of a column, by its key, perhaps reversed; None: as given.

        Rows are shown as given also while there is no such column.
        """
        was, self._order = self._order, order
        if (was and was[0]) != (order and order[0]):
            self._ask_keys()
        self._sorted = ([], [])
        self._arrange()

    @property
    def largest_first(self) -> bool:
        """Whether the order puts the largest value on top."""
        by, is_reversed = self._order or ("", False)
        return any(column.sorts_largest_first != is_reversed for column in self.columns if column.key == by)

    def find(self, key: str | None, near: int = 0) -> int | None:
        """Return the place of a row among those shown; `near` is where it may well be."""
        if near < len(self.shown) and self.shown[near].key == key:
            return near
        if self._places is None:
            self._places = {row.key: place for place, row in enumerate(self.shown)}
        return self._places.get(key) if key is not None else None

    @property
    def empty_columns(self) -> list[int]:
        """Return the places of the columns in which no row says anything; none while there is no row."""
        return [index for index, told in enumerate(self._told) if not told] if self.rows else []

    def _ask_keys(self) -> None:
        by = self._order[0] if self._order else ""
        index = next((place for place, column in enumerate(self.columns) if column.key == by), None)
        self._keys = None if index is None else _Answers(lambda row: sort_key(row.cells[index]), self.rows)
        self._sorted = ([], [])

    def _arrange(self) -> None:
        shown = self.rows
        if self._verdicts is not None:
            shown = list(compress(shown, self._verdicts.of(shown)))
        if self._keys is not None:
            keys = list(self._keys.of(shown))
            if keys != self._sorted[0]:
                self._sorted = keys, sorted_places(keys, largest_first=self.largest_first)
            shown = [shown[place] for place in self._sorted[1]]
        self.shown, self._places = shown, None
        self.lines = place_lines(shown)

    def _measure(self, came: Sequence[Row], went: Sequence[Row]) -> None:
        """Widen columns for rows that came; look at all rows again where one of the widest went."""
        floor = natural_widths(self.columns, ())
        wanted = natural_widths(self.columns, came)
        for index, column in enumerate(self.columns):
            if column.priority > 0:
                self._told[index] += _telling(came, index) - _telling(went, index)
        for index, width in enumerate(self.natural):
            if wanted[index] >= width:
                self.natural[index] = wanted[index]
            elif went and width > floor[index] and widest(row.cells[index] for row in went) >= width:
                self.natural[index] = max(floor[index], widest(row.cells[index] for row in self.rows))


def _telling(rows: Sequence[Row], index: int) -> int:
    """Count the rows that say something in a column."""
    return sum(row.cells[index].text not in _UNTOLD for row in rows)


def survivor(before: Sequence[Row], place: int, rows: RowSet) -> int | None:
    """Return where a row is shown now that was at `place`, or else the nearest after it, or before it."""
    for at in chain(range(place, len(before)), range(place - 1, -1, -1)):
        if (found := rows.find(before[at].key, near=at)) is not None:
            return found
    return None
