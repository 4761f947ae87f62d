"""How the columns of a table share its width, which of them are in sight, and which are scrolled away."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import NamedTuple

from tui.text.cells import cell_len
from tui.widgets.table.columns import Column

GAP = 2
"""Cells between columns."""

HINT = 5
"""Cells kept free at the right end for `+2>` while columns are hidden."""

WIDE_HINT = 8
"""Cells kept free at the right end for `<2 +4>` in a wide table."""


class Fit(NamedTuple):
    """Which columns are shown, and how wide they are."""

    widths: tuple[tuple[int, int], ...] = ()
    """Pairs of column index and cells, left to right."""
    hidden: int = 0
    """How many columns found no place on the right."""
    before: int = 0
    """How many columns are scrolled away to the left."""

    @property
    def hint(self) -> str:
        """Say what is not shown: `+4>`, or `<2 +4>`; nothing where all is shown."""
        words = (f"<{self.before}" if self.before else "", f"+{self.hidden}>" if self.hidden else "")
        return " ".join(filter(None, words))


def fit_columns(
    columns: Sequence[Column], natural: Sequence[int], width: int, empty: Collection[int] = ()
) -> Fit:
    """Choose columns and widths for `width` cells.

    Columns that elide shrink to their `min_width` before any column is given up. Where
    something would be lost, columns that say nothing go first.

    Args:
        columns: The columns, left to right.
        natural: The cells each column would like.
        width: The cells there are.
        empty: The places of the columns in which no row says anything.
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
    while True:
        room = width - GAP * (len(kept) - 1) - (HINT if len(kept) < len(columns) else 0)
        spare = room - sum(floor[index] for index in kept)
        optional = [index for index in kept if columns[index].priority > 0]
        if spare >= 0 or not optional:
            break
        kept.remove(max(optional, key=lambda index: (columns[index].priority, index)))
    widths = {index: floor[index] for index in kept}
    growing = [index for index in kept if natural[index] > floor[index]]
    while spare > 0 and growing:
        share = max(1, spare // len(growing))
        for index in list(growing):
            grown = min(share, natural[index] - widths[index], spare)
            widths[index] += grown
            spare -= grown
            if widths[index] == natural[index]:
                growing.remove(index)
    return Fit(tuple(widths.items()), len(columns) - len(kept))


def fit_wide(columns: Sequence[Column], natural: Sequence[int], width: int, skipped: int) -> Fit:
    """Choose columns for `width` cells, each as wide as it would like to be.

    The first column stays, in at most half of the width. `skipped` of the others are
    scrolled away, but never more than it takes to see the last one.
    """
    if not columns:
        return Fit()
    pinned = min(natural[0], max(1, width // 2)) if len(columns) > 1 else min(natural[0], width)
    skipped = max(0, min(skipped, len(columns) - 2))
    while True:
        fit = _fit_after(natural, width, pinned, skipped)
        if not skipped or fit.hidden or _fit_after(natural, width, pinned, skipped - 1).hidden:
            return fit
        skipped -= 1


def _fit_after(natural: Sequence[int], width: int, pinned: int, skipped: int) -> Fit:
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
    """The columns in sight: as many as fit, or in a wide table as many as fit from some column on."""

    def __init__(self) -> None:
        """Start without columns."""
        self.is_wide = False
        """Whether all columns have their natural width, and are scrolled sideways."""
        self.fit = Fit()
        """The columns in sight, and how wide they are."""
        self._columns: Sequence[Column] = ()
        self._natural: Sequence[int] = ()
        self._empty: Collection[int] = ()
        self._width = 0
        self._skipped = 0

    def lay_out(
        self, columns: Sequence[Column], natural: Sequence[int], width: int, empty: Collection[int] = ()
    ) -> None:
        """Give each column its width.

        Args:
            columns: The columns, left to right.
            natural: The cells each column would like.
            width: The cells there are.
            empty: The places of the columns in which no row says anything.
        """
        self._columns, self._natural, self._width, self._empty = columns, natural, width, empty
        self._fit()

    def set_wide(self, is_wide: bool) -> None:
        """Show all columns as wide as they would be, or as many as fit."""
        self.is_wide, self._skipped = is_wide, 0
        self._fit()

    def scroll(self, columns: int) -> None:
        """Scroll a wide table sideways."""
        self._skipped = max(0, self._skipped + columns)
        self._fit()

    def reveal(self, key: str) -> None:
        """Scroll a wide table until a column is in sight."""
        index = next(place for place, column in enumerate(self._columns) if column.key == key)
        if 0 < index <= self._skipped:
            self.scroll(index - 1 - self._skipped)
        while key not in self.keys_in_sight and self.fit.hidden:
            self.scroll(1)

    @property
    def keys_in_sight(self) -> list[str]:
        """The keys of the columns that are in sight."""
        return [self._columns[index].key for index, _ in self.fit.widths]

    def column_at(self, x: int) -> str | None:
        """Return the key of the column at a cell of the line, counted from the first column's start."""
        ends = accumulate(cells + GAP for _, cells in self.fit.widths)
        return next((key for key, end in zip(self.keys_in_sight, ends, strict=True) if x < end), None)

    def _fit(self) -> None:
        if self.is_wide:
            self.fit = fit_wide(self._columns, self._natural, self._width, self._skipped)
            self._skipped = self.fit.before
        else:
            self.fit = fit_columns(self._columns, self._natural, self._width, self._empty)
