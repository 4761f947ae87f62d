"""Widths and visibility of a table's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from k8s.text.sanitize import sanitize
from tui.tables.column import Cell, Column, Row
from tui.text.cells import cell_len


def natural_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """Return the width of each column for its title and these rows."""
    by_column = list(zip(*[row.cells for row in rows], strict=True)) or [()] * len(columns)
    return [
        max(column.min_width, cell_len(sanitize(column.title)), widest(cells))
        for column, cells in zip(columns, by_column, strict=True)
    ]


# Columns of this priority and above are hidden before another one shrinks below its `good_width`.
SPARED_PRIORITY = 5
_text = itemgetter(0)


# Lines of a detail; the rest is cut.
DETAIL_LINES = 2


class LinesPerRow(NamedTuple):
    """Positions of rows of which some take several lines."""

    first: Sequence[int] = ()
    rows: Sequence[int] = ()


def place_lines(rows: Sequence[Row], width: int) -> LinesPerRow:
    """Assign each row a line, and others for its detail, which has `width` cells; 0 if that is unknown."""
    if not any(row.detail for row in rows):
        return LinesPerRow(range(len(rows)), range(len(rows)))
    first: list[int] = []
    row_at_line: list[int] = []
    for index, row in enumerate(rows):
        first.append(len(row_at_line))
        row_at_line.append(index)
        if row.detail:
            is_long = 0 < width < cell_len(row.detail)
            row_at_line.extend([index] * (DETAIL_LINES if is_long else 1))
    return LinesPerRow(first, row_at_line)


def widest(cells: Iterable[Cell]) -> int:
    """Return the width of the longest text."""
    texts = list(map(_text, cells))
    if "".join(texts).isascii():
        return max(map(len, texts), default=0)
    return max(map(cell_len, set(texts)), default=0)


GAP = 2

# Reserved on the right for `+2>` while columns are hidden.
HINT = 5

# Reserved on the right for `<2 +4>` in a wide table.
WIDE_HINT = 8


class Fit(NamedTuple):
    """Visible columns and their widths."""

    widths: tuple[tuple[int, int], ...] = ()
    """Pairs of column index and width, left to right."""
    hidden: int = 0
    before: int = 0

    @property
    def hint(self) -> str:
        """Return the hint about hidden columns: `+4>` or `<2 +4>`; empty if all are visible."""
        words = (f"<{self.before}" if self.before else "", f"+{self.hidden}>" if self.hidden else "")
        return " ".join(filter(None, words))


def fit_columns(
    columns: Sequence[Column], natural: Sequence[int], width: int, empty: Collection[int] = ()
) -> Fit:
    """Choose columns and widths for `width` cells.

    Columns that elide shrink to their `min_width` before any column is hidden, or to their `good_width`
    before one of `SPARED_PRIORITY` is. If anything would be lost, empty columns are hidden first.

    Args:
        columns: The columns, left to right.
        natural: Natural width of each column.
        width: Available width.
        empty: Indices of columns without any text.
    """
    natural = [
        min(wanted, max(column.max_width, column.min_width))
        for column, wanted in zip(columns, natural, strict=True)
    ]
    fit = _fit(columns, natural, width, range(len(columns)))
    needless = {index for index in empty if columns[index].priority > 0}
    is_whole = not fit.hidden and all(cells == natural[index] for index, cells in fit.widths)
    if is_whole or not needless:
        return fit
    return _fit(columns, natural, width, [index for index in range(len(columns)) if index not in needless])


def _fit(columns: Sequence[Column], natural: Sequence[int], width: int, wanted: Sequence[int]) -> Fit:
    floor = [
        min(wanted, max(column.min_width, cell_len(column.title))) if column.elide else wanted
        for column, wanted in zip(columns, natural, strict=True)
    ]
    kept = list(wanted)
    good = [max(cells, min(natural[i], columns[i].good_width)) for i, cells in enumerate(floor)]
    while True:
        room = width - GAP * (len(kept) - 1) - (HINT if len(kept) < len(columns) else 0)
        spare = room - sum(floor[index] for index in kept)
        is_good = sum(good[index] for index in kept) <= room
        lowest = 1 if spare < 0 else SPARED_PRIORITY
        optional = [index for index in kept if columns[index].priority >= lowest]
        if is_good or not optional:
            break
        kept.remove(max(optional, key=lambda index: (columns[index].priority, index)))
    widths = {index: floor[index] for index in kept}
    growing = [index for index in kept if natural[index] > floor[index]]
    for index in sorted(growing, key=lambda place: columns[place].priority):
        is_whole = columns[index].elide == "runs"
        wanted_more = (natural[index] if is_whole else good[index]) - widths[index]
        if wanted_more <= spare or not is_whole:
            grown = max(0, min(wanted_more, spare))
            widths[index] += grown
            spare -= grown
        if is_whole or widths[index] == natural[index]:
            growing.remove(index)
    while spare > 0 and growing:
        share = max(1, spare // len(growing))
        for index in list(growing):
            grown = min(share, natural[index] - widths[index], spare)
            widths[index] += grown
            spare -= grown
            if widths[index] == natural[index]:
                growing.remove(index)
    # What was hidden first may be narrower than what is left over.
    for index in sorted(set(wanted) - set(kept), key=lambda place: (columns[place].priority, place)):
        if floor[index] + GAP <= spare:
            widths[index] = min(natural[index], spare - GAP)
            spare -= widths[index] + GAP
    return Fit(tuple(sorted(widths.items())), len(columns) - len(widths))


def layout_wide(columns: Sequence[Column], natural: Sequence[int], width: int, skipped: int) -> Fit:
    """Choose columns for `width` cells at their natural widths.

    The first column is pinned, in at most half of the width. `skipped` of the others are scrolled away,
    but never more than needed to see the last one.
    """
    if not columns:
        return Fit()
    pinned = min(natural[0], max(1, width // 2)) if len(columns) > 1 else min(natural[0], width)
    skipped = max(0, min(skipped, len(columns) - 2))
    while True:
        fit = _fit_columns_after(natural, width, pinned, skipped)
        if not skipped or fit.hidden or _fit_columns_after(natural, width, pinned, skipped - 1).hidden:
            return fit
        skipped -= 1


def _fit_columns_after(natural: Sequence[int], width: int, pinned: int, skipped: int) -> Fit:
    def fitting(room: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for index in range(1 + skipped, len(natural)):
            cells = natural[index] if found else min(natural[index], max(1, room - GAP))
            if found and room < GAP + cells:
                break
            found.append((index, cells))
            room -= GAP + cells
        return found

    others = fitting(width - pinned)
    if skipped or skipped + len(others) < len(natural) - 1:
        others = fitting(width - pinned - WIDE_HINT)
    return Fit(((0, pinned), *others), len(natural) - 1 - skipped - len(others), skipped)


class ColumnLayout:
    """Visible columns: as many as fit, or in a wide table those from some column on."""

    def __init__(self) -> None:
        self.is_wide = False
        self.fit = Fit()
        self._columns: Sequence[Column] = ()
        self._natural: Sequence[int] = ()
        self._empty: Collection[int] = ()
        self._width = 0
        self._skipped = 0

    def lay_out(
        self, columns: Sequence[Column], natural: Sequence[int], width: int, empty: Collection[int] = ()
    ) -> None:
        """Assign the column widths; see `fit_columns` for the arguments."""
        self._columns, self._natural, self._width, self._empty = columns, natural, width, empty
        self._fit()

    def set_wide(self, is_wide: bool) -> None:
        """Set whether columns keep their natural widths and scroll sideways."""
        self.is_wide, self._skipped = is_wide, 0
        self._fit()

    def scroll(self, columns: int) -> None:
        """Scroll a wide table sideways."""
        self._skipped = max(0, self._skipped + columns)
        self._fit()

    def reveal(self, key: str) -> None:
        """Scroll a wide table until a column is visible."""
        index = next(place for place, column in enumerate(self._columns) if column.key == key)
        if 0 < index <= self._skipped:
            self.scroll(index - 1 - self._skipped)
        while key not in self.visible_keys and self.fit.hidden:
            self.scroll(1)

    @property
    def visible_keys(self) -> list[str]:
        """Keys of the visible columns."""
        return [self._columns[index].key for index, _ in self.fit.widths]

    def column_at(self, x: int) -> str | None:
        """Return the key of the column at a cell, counted from the first column."""
        ends = accumulate(cells + GAP for _, cells in self.fit.widths)
        return next((key for key, end in zip(self.visible_keys, ends, strict=True) if x < end), None)

    def _fit(self) -> None:
        if self.is_wide:
            self.fit = layout_wide(self._columns, self._natural, self._width, self._skipped)
            self._skipped = self.fit.before
        else:
            self.fit = fit_columns(self._columns, self._natural, self._width, self._empty)
