"""The rows of a table: filter, order, lines and widths; and a cache for the views that make them.

A live list is replaced ten times a second, and nearly all of its rows are the same objects as before.
So each result is computed once per row object. Numbers sort by value, texts naturally; unknown values
come last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any, Generic, NamedTuple, TypeVar

from tui.tables.column import Cell, Column, Row
from tui.text.filter_query import parse_filter
from tui.text.format import NOTHING
from tui.text.natural_order import natural_key
from tui.widgets.table.columns import LinesPerRow, natural_widths, place_lines, widest

# None sorts last.
SortKey = float | str | None

# Returns the labels of the object of a row, by row key.
LabelsOf = Callable[[str], Mapping[str, str]]


def sort_key(cell: Cell) -> SortKey:
    """Return the sort key of a cell."""
    if cell.sort is None:
        return natural_key(cell.text) if cell.text.strip() not in ("", NOTHING) else None
    if isinstance(cell.sort, str):
        return natural_key(cell.sort)
    return None if math.isnan(cell.sort) else cell.sort


def sorted_places(keys: Sequence[SortKey], *, largest_first: bool) -> list[int]:
    """Return the indices of the keys in sort order; stable, None last in both directions."""
    numbers = [place for place, key in enumerate(keys) if isinstance(key, float | int)]
    words = [place for place, key in enumerate(keys) if isinstance(key, str)]
    for places in (numbers, words):
        places.sort(key=keys.__getitem__, reverse=largest_first)  # type: ignore[arg-type]
    missing = [place for place, key in enumerate(keys) if key is None]
    return [*words, *numbers, *missing] if largest_first else [*numbers, *words, *missing]


class RowFilter(NamedTuple):
    """A filter parsed for one table."""

    accepts: Callable[[Row], bool] | None = None
    """Test of a row; None accepts all rows."""
    problem: str = ""
    """Parse error; then no row passes."""
    hint: str = ""
    """Possible reason if no row passes."""


def row_filter(typed: str, columns: Sequence[Column] = (), labels_of: LabelsOf | None = None) -> RowFilter:
    """Parse a filter for the rows of a table.

    Args:
        typed: Text after `/`.
        columns: Columns of the rows, visible or not.
        labels_of: Returns the labels of a row; None if rows have none.
    """
    places = {column.title.lower(): index for index, column in enumerate(columns) if column.title}
    found = parse_filter(typed, places)
    if found is None:
        return RowFilter()
    problem = found.problem
    if found.labels and labels_of is None:
        problem = "These rows have no labels."
    if problem:
        return RowFilter(lambda _row: False, problem)
    accepts = found.accepts

    def passes(row: Row) -> bool:
        labels = labels_of(row.key) if labels_of is not None else {}
        return accepts([cell.text for cell in row.cells], places, labels)

    return RowFilter(passes, hint=found.hint)


T = TypeVar("T")
_EMPTY = ("", NOTHING)


class _Answers(Generic[T]):
    """# Results of a function for live rows, by identity."""

    def __init__(self, ask: Callable[[Row], T], rows: Iterable[Row]) -> None:
        self._ask = ask
        self._answers = {id(row): ask(row) for row in rows}

    def update(self, added: Iterable[Row], removed: Iterable[Row]) -> None:
        for row in removed:
            del self._answers[id(row)]
        for row in added:
            self._answers[id(row)] = self._ask(row)

    def of(self, rows: Iterable[Row]) -> Iterator[T]:
        return map(self._answers.__getitem__, map(id, rows))


class RowSet:
    """Given rows, and the filtered and sorted ones."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self.columns = tuple(columns)
        self.rows: Sequence[Row] = ()
        self.shown: Sequence[Row] = ()
        self.lines = LinesPerRow()
        # For all rows, visible or not.
        self.natural = natural_widths(self.columns, ())
        self.hint = ""
        """Possible reason if no row passes the filter."""
        self._ids: set[int] = set()
        self._detail_cells = 0
        self._text_counts = [0] * len(self.columns)
        self._verdicts: _Answers[bool] | None = None
        self._keys: _Answers[SortKey] | None = None
        self._order: tuple[str, bool] | None = None
        self._sorted: tuple[list[SortKey], list[int]] = ([], [])
        self._places: dict[str, int] | None = None

    def replace(self, rows: Iterable[Row]) -> None:
        """Replace the rows; each has a cell for each column and a unique key."""
        before, rows = self.rows, list(rows)
        ids = set(map(id, rows))
        added = [row for row in rows if id(row) not in self._ids]
        removed = [row for row in before if id(row) not in ids]
        self.rows, self._ids = rows, ids
        for answers in (self._verdicts, self._keys):
            if answers is not None:
                answers.update(added, removed)
        self._measure(added, removed)
        self._arrange()

    def set_columns(self, columns: Iterable[Column], rows: Iterable[Row]) -> None:
        """Replace the columns and the rows."""
        self.columns = tuple(columns)
        self.natural, self._text_counts = natural_widths(self.columns, ()), [0] * len(self.columns)
        if self._verdicts is not None:
            self._verdicts.update((), self.rows)
        self.rows, self._ids = (), set()
        self._compute_keys()
        self.replace(rows)

    def filter(self, accepts: Callable[[Row], bool] | None, hint: str = "") -> None:
        """Set the filter; None shows all rows. `hint` explains an empty result."""
        self.hint = hint
        self._verdicts = _Answers(accepts, self.rows) if accepts else None
        self._arrange()

    def sort(self, order: tuple[str, bool] | None) -> None:
        """Sort by a column key, perhaps reversed; None, or a missing column, keeps the given order."""
        was, self._order = self._order, order
        if (was and was[0]) != (order and order[0]):
            self._compute_keys()
        self._sorted = ([], [])
        self._arrange()

    def wrap_details(self, width: int) -> None:
        """Give the details lines of `width` cells."""
        self._detail_cells = width
        self.lines = place_lines(self.shown, width)

    @property
    def largest_first(self) -> bool:
        """True if the order puts the largest value on top."""
        by, is_reversed = self._order or ("", False)
        return any(column.sorts_largest_first != is_reversed for column in self.columns if column.key == by)

    def find(self, key: str | None, near: int = 0) -> int | None:
        """Return the index of a visible row; `near` is a guess."""
        if near < len(self.shown) and self.shown[near].key == key:
            return near
        if self._places is None:
            self._places = {row.key: place for place, row in enumerate(self.shown)}
        return self._places.get(key) if key is not None else None

    @property
    def empty_columns(self) -> list[int]:
        """Return the indices of columns without any text; none without rows."""
        return [index for index, texts in enumerate(self._text_counts) if not texts] if self.rows else []

    def _compute_keys(self) -> None:
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
        self.lines = place_lines(shown, self._detail_cells)

    def _measure(self, added: Sequence[Row], removed: Sequence[Row]) -> None:
        floor = natural_widths(self.columns, ())
        wanted = natural_widths(self.columns, added)
        for index, column in enumerate(self.columns):
            if column.priority > 0:
                self._text_counts[index] += _count_texts(added, index) - _count_texts(removed, index)
        for index, width in enumerate(self.natural):
            if wanted[index] >= width:
                self.natural[index] = wanted[index]
            elif removed and width > floor[index] and widest(row.cells[index] for row in removed) >= width:
                self.natural[index] = max(floor[index], widest(row.cells[index] for row in self.rows))


def _count_texts(rows: Sequence[Row], index: int) -> int:
    return sum(row.cells[index].text not in _EMPTY for row in rows)


def survivor(before: Sequence[Row], place: int, rows: RowSet) -> int | None:
    """Return the new index of the row at `place`, or of its nearest remaining neighbour; after it first."""
    for at in chain(range(place, len(before)), range(place - 1, -1, -1)):
        if (found := rows.find(before[at].key, near=at)) is not None:
            return found
    return None


# A row is renewed once its age has grown by this share, and by a second at least.
OLDER = 0.01


def for_ever(_thing: object) -> float:
    """Return the age of a row without ages."""
    return float("inf")


class RowCache(Generic[T]):
    """Rows of one table by the identity of their objects."""

    def __init__(self) -> None:
        self._cached: dict[int, tuple[T, float, Row]] = {}
        self._drawn_for: object = None

    def renew(self, thing: T) -> None:
        """Drop the row of an unchanged object."""
        self._cached.pop(id(thing), None)

    def steps(
        self,
        things: Iterable[T],
        make: Callable[[T], Row],
        *,
        drawn_for: object,
        now_s: float = 0.0,
        age_s: Callable[[T], float] = for_ever,
    ) -> Iterator[None]:
        """Make the rows that are missing, before `rows` is called with the same; other tasks may run between.

        Args:
            things: The objects, each once, compared by identity.
            make: Creates the row of an object.
            drawn_for: Everything else that rows depend on; a new value renews all rows.
            now_s: Current time of any clock.
            age_s: Returns the smallest growing age in a row.
        """
        if drawn_for != self._drawn_for:
            self._cached, self._drawn_for = {}, drawn_for
        for thing in things:
            cached = self._cached.get(id(thing))
            if cached is None or cached[1] <= now_s:
                holds_s = max(1.0, OLDER * age_s(thing))
                self._cached[id(thing)] = thing, now_s + holds_s, make(thing)
                yield
                if drawn_for != self._drawn_for:  # meanwhile they were drawn otherwise
                    return

    def rows(self, things: Collection[T], make: Callable[[T], Row], **how: Any) -> list[Row]:
        """Return one row per object, in order; see `steps` for the arguments."""
        for _ in self.steps(things, make, **how):
            pass
        self._cached = {id(thing): self._cached[id(thing)] for thing in things}
        return [row for _, _, row in self._cached.values()]
