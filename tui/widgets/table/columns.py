"""What a table is made of: cells, rows, columns, and how columns share a width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, NamedTuple

from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len
from tui.text.format import Look, Run


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
    is_age: bool = False
    """Whether its cells tell for how long something is; they are sorted by the negative time since 1970."""
    flashes: bool = False
    """Whether a change of its text is pointed at; never for what grows by itself, such as ages."""


def natural_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """Count the cells each column would like for its title and these rows."""
    by_column = list(zip(*[row.cells for row in rows], strict=True)) or [()] * len(columns)
    return [
        max(column.min_width, cell_len(sanitize(column.title)), widest(cells))
        for column, cells in zip(columns, by_column, strict=True)
    ]


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
