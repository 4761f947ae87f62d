"""What a table is made of: cells, rows, columns, and how columns share a width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple

from k8s.text.sanitize import sanitize
from tui.text.format import Look, Run, cell_len

GAP = 2
"""Cells between columns."""

HINT = 5
"""Cells kept free at the right end for `+2>` while columns are hidden."""

WIDE_HINT = 8
"""Cells kept free at the right end for `<2 +4>` in a wide table."""


class Cell(NamedTuple):
    """What one row says in one column; the text is never read as markup."""

    text: str
    look: Look = ""
    """How the whole text is meant."""
    runs: tuple[Run, ...] = ()
    """Pieces with looks of their own; joined, they are `text`."""
    sort: float | str | None = None
    """What the row is sorted by in this column; None: by the text, `worker-2` before `worker-10`."""

    @classmethod
    def of(cls, *runs: Run, sort: float | str | None = None) -> Cell:
        """Make a cell of pieces with different looks."""
        return cls("".join(text for text, _ in runs), "", runs, sort)


class Row(NamedTuple):
    """One row: a key that stays the same while the row lives, and a cell for each column."""

    key: str
    cells: tuple[Cell, ...]
    detail: str | None = None
    """A second, dim line under the row, such as `└ waits: ...`."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is laid out."""

    key: str
    title: str
    align: Literal["left", "right"] = "left"
    """Numbers go right."""
    min_width: int = 0
    """Cells it always has; a column that elides shrinks to this."""
    priority: int = 0
    """Where cells are short, the highest number goes first; 0 always stays."""
    elide: Literal["", "middle", "end"] = ""
    """Where text may be lost: `middle` keeps the suffix of names. Empty means: never shrink."""
    max_width: int = 60
    """Cells it never exceeds, whatever its text, but where the table is wide."""
    sorts_largest_first: bool = False
    """Whether the first sort by it puts the largest value on top."""
    flashes: bool = False
    """Whether a change of its text is pointed at; never for what grows by itself, such as ages."""


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


def natural_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """Count the cells each column would like for its title and these rows."""
    by_column = list(zip(*[row.cells for row in rows], strict=True)) or [()] * len(columns)
    return [
        max(column.min_width, cell_len(sanitize(column.title)), widest(cells))
        for column, cells in zip(columns, by_column, strict=True)
    ]


def fit_columns(columns: Sequence[Column], natural: Sequence[int], width: int) -> Fit:
    """Choose columns and widths for `width` cells.

    Columns that elide shrink to their `min_width` before any column is given up.

    Args:
        columns: The columns, left to right.
        natural: The cells each column would like.
        width: The cells there are.
    """
    natural = [
        min(wish, max(column.max_width, column.min_width))
        for column, wish in zip(columns, natural, strict=True)
    ]
    floor = [
        min(wish, max(column.min_width, cell_len(column.title))) if column.elide else wish
        for column, wish in zip(columns, natural, strict=True)
    ]
    kept = list(range(len(columns)))
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
    def chosen(room: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for index in range(1 + skipped, len(natural)):
            cells = natural[index] if found else min(natural[index], max(1, room - GAP))
            if found and room < GAP + cells:
                break
            found.append((index, cells))
            room -= GAP + cells
        return found

    others = chosen(width - pinned)
    if skipped or skipped + len(others) < len(natural) - 1:
        others = chosen(width - pinned - WIDE_HINT)
    return Fit(((0, pinned), *others), len(natural) - 1 - skipped - len(others), skipped)


_text = itemgetter(0)


class LinesPerRow(NamedTuple):
    """Where rows lie when some of them take two lines."""

    first: Sequence[int] = ()
    """The first line of each row."""
    rows: Sequence[int] = ()
    """The index of the row at each line."""


def place_lines(rows: Sequence[Row]) -> LinesPerRow:
    """Give each row a line, and a second one where it has a detail."""
    if not any(row.detail for row in rows):
        return LinesPerRow(range(len(rows)), range(len(rows)))
    first: list[int] = []
    row_at_line: list[int] = []
    for index, row in enumerate(rows):
        first.append(len(row_at_line))
        row_at_line.extend((index, index) if row.detail else (index,))
    return LinesPerRow(first, row_at_line)


def widest(cells: Iterable[Cell]) -> int:
    """Count the cells of the terminal that the longest of these texts takes."""
    texts = list(map(_text, cells))
    if "".join(texts).isascii():
        return max(map(len, texts), default=0)
    return max(map(cell_len, set(texts)), default=0)
