"""Draws the lines of a table, each once while it says the same in the same place and style."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.strip import Strip

from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_end, elide_middle
from tui.text.format import Run
from tui.text.gpu_bar import LIT
from tui.widgets.table.column_layout import GAP, Fit
from tui.widgets.table.columns import Cell, Column, Row

GUTTER = 3
"""Cells left of the first column: the mark, the cursor, a space."""
KEPT_LINES = 400
"""Drawn lines that are kept: a few screens, so that scrolling back and forth is cheap."""


class RowLine(NamedTuple):
    """All that one line of a row says; equal ones look the same."""

    row: Row
    is_detail: bool
    at_cursor: bool
    is_marked: bool
    flashing: tuple[int, ...]
    """The columns in which it has just changed."""
    has_thumb: bool
    """Whether the bar that shows where the view is passes it."""
    is_lit: bool = False
    """Whether something outside the table points at the row."""


class Header(NamedTuple):
    """All that the header says."""

    sorted_by: str
    """The key of the column that the rows are sorted by; empty when they are not."""
    largest_first: bool
    selected: str
    """The key of the column that the user might sort by next; empty for none."""


class Words(NamedTuple):
    """What a line says that belongs to no row."""

    text: str


Line = RowLine | Header | Words
"""What a line of the table says."""


class RowPainter:
    """Turns lines into strips of the table's width."""

    def __init__(self, style_of: Callable[[str], Style]) -> None:
        """Make one that asks the table for the styles of its parts."""
        self._style_of = style_of
        self._columns: Sequence[Column] = ()
        self._fit = Fit()
        self._width = 0
        self._base = Style()
        self._styles: dict[tuple[str, ...], Style] = {}
        self._strips: LRUCache[tuple[object, ...], tuple[Line, Strip]] = LRUCache(KEPT_LINES)

    def lay_out(self, columns: Sequence[Column], fit: Fit, width: int) -> bool:
        """Draw these columns so wide from now on; return whether that is something new."""
        if (columns, fit, width) == (self._columns, self._fit, self._width):
            return False
        self._columns, self._fit, self._width = columns, fit, width
        self._strips.clear()
        return True

    def use(self, base: Style) -> None:
        """Draw on this style from now on."""
        if base != self._base:
            self.forget()
            self._base = base

    def forget(self) -> None:
        """Draw all anew: styles have changed."""
        self._styles.clear()
        self._strips.clear()

    def draw(self, line: Line) -> Strip:
        """Draw a line, or return it as it was drawn before."""
        # A row is looked up by its identity, because comparing all its cells takes longer.
        key = (id(line.row), *line[1:]) if isinstance(line, RowLine) else (type(line), *line)
        kept = self._strips.get(key)
        if kept is None:
            kept = (line, Strip(self._segments(line)).adjust_cell_length(self._width, self._base))
            self._strips[key] = kept
        return kept[1]

    def _segments(self, line: Line) -> Iterable[Segment]:
        if isinstance(line, Header):
            return self._header(line)
        if isinstance(line, Words):
            text = elide_end(sanitize(line.text), self._width - GUTTER)
            return [Segment(" " * GUTTER + text, self._style("empty"))]
        runs, beneath = self._detail(line) if line.is_detail else self._row(line), _beneath(line)
        words = Strip(_joined(runs)).adjust_cell_length(max(0, self._width - 1), self._style(*beneath))
        thumb = " ┃"[line.has_thumb]
        return [*words, Segment(thumb, self._style(*beneath, "thumb" if line.has_thumb else ""))]

    def _style(self, *names: str) -> Style:
        """Return what parts look like, each upon those before it."""
        if (style := self._styles.get(names)) is None:
            style = self._base
            for name in filter(None, names):
                above = self._style_of(name)
                # What is reversed upon something reversed is set off by being straight.
                style = (
                    style + above + Style(reverse=False) if style.reverse and above.reverse else style + above
                )
            self._styles[names] = style
        return style

    def _header(self, header: Header) -> list[Segment]:
        arrow = "↑↓"[header.largest_first]
        quiet = self._style("header")
        runs = [(" " * GUTTER, quiet)]
        for index, cells in self._fit.widths:
            column = self._columns[index]
            title = elide_end(sanitize(column.title), cells)
            before = " " * (cells - cell_len(title)) if column.align == "right" else ""
            mark = arrow if column.key == header.sorted_by else ""
            style = self._style("selected") if column.key == header.selected else quiet
            after = " " * (cells + GAP - cell_len(before + title + mark))
            runs += [(before, quiet), (title + mark, style), (after, quiet)]
        if hint := self._fit.hint:
            segments = Strip(_joined(runs)).adjust_cell_length(max(0, self._width - len(hint) - 1), quiet)
            return [*segments, Segment(hint + " ", quiet)]
        return _joined(runs)

    def _detail(self, line: RowLine) -> list[tuple[str, Style]]:
        text = elide_end(sanitize(line.row.detail or ""), self._width - GUTTER - 3)
        return [(" " * (GUTTER + 2) + text, self._style(*_beneath(line), "detail"))]

    def _row(self, line: RowLine) -> list[tuple[str, Style]]:
        beneath = _beneath(line)
        mark = "●" if line.is_marked else LIT if line.is_lit else " "
        cursor = "▸" if line.at_cursor else " "
        runs = [
            (mark, self._style(*beneath, "mark" if mark != " " else "")),
            (cursor + " ", self._style(*beneath, "cursor-mark" if line.at_cursor else "")),
        ]
        for index, cells in self._fit.widths:
            top = "flash" if index in line.flashing else ""
            runs += self._cell(line.row.cells[index], self._columns[index], cells, (*beneath, top))
        return runs

    def _cell(
        self, cell: Cell, column: Column, cells: int, beneath: tuple[str, ...]
    ) -> list[tuple[str, Style]]:
        runs = [(sanitize(text), look) for text, look in cell.runs or ((cell.text, cell.look),)]
        text = "".join(part for part, _ in runs)
        if cell_len(text) > cells:
            text = (elide_middle if column.elide == "middle" else elide_end)(text, cells)
            runs = [(text, runs[0][1])] if column.elide == "middle" else _cut(runs, cells)
        styled = [(part, self._style(*beneath, look)) for part, look in runs]
        space = " " * (cells - cell_len(text))
        # Spaces take the style of the text beside them: a style less to send for each cell.
        outside = self._style(*beneath[:-1], "") if beneath[-1] else styled[-1][1]
        if column.align == "right":
            return [(space, outside), *styled, (" " * GAP, outside)]
        return [*styled, (space + " " * GAP, outside)]


def _cut(runs: Iterable[Run], cells: int) -> list[Run]:
    """Shorten pieces of text to `cells` together; each that is left keeps how it is meant."""
    left, kept = cells, list[Run]()
    for text, look in runs:
        if cell_len(text) >= left:
            return [*kept, (elide_end(f"{text} ", left), look)]
        left -= cell_len(text)
        kept.append((text, look))
    return kept


def _beneath(line: RowLine) -> tuple[str, ...]:
    return ("cursor",) if line.at_cursor else ()


def _joined(runs: Iterable[tuple[str, Style]]) -> list[Segment]:
    """Make segments; neighbours of one style become one, which is less to send."""
    segments: list[Segment] = []
    for text, style in runs:
        if segments and segments[-1].style == style:
            segments[-1] = Segment(segments[-1].text + text, style)
        elif text:
            segments.append(Segment(text, style))
    return segments
