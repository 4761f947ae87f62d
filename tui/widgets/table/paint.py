"""Drawing of table lines, with a cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from k8s.text.sanitize import sanitize
from tui.tables.column import Cell, Column, Row
from tui.text.cells import cell_len, elide_end, elide_middle, wrapped
from tui.text.format import Run
from tui.text.gpu_bar import HIGHLIGHTED
from tui.widgets.table.columns import GAP, Fit

# Left of the first column: mark, cursor, space.
GUTTER = 3
# Columns without the detail of a row.
DETAIL_MARGIN = GUTTER + 3
# Size of the line cache: a few screens, so that scrolling back is cheap.
MAX_CACHED_LINES = 400


class RowLine(NamedTuple):
    """Everything that determines the look of a row's line; the cache key."""

    row: Row
    part: int
    """0 for the cells, from 1 for the lines of the detail."""
    cursor: str
    """Look of the cursor; empty if it is on another row."""
    is_marked: bool
    flashing: tuple[int, ...]
    # The scroll thumb is beside this line.
    has_thumb: bool
    # Highlighted from outside the table.
    is_highlighted: bool = False


class Header(NamedTuple):
    """Everything that determines the look of the header."""

    sorted_by: str
    """Key of the sort column; empty for the given order."""
    largest_first: bool
    selected: str
    """Key of the selected column; empty for none."""


class PlainLine(NamedTuple):
    """Line without a row."""

    text: str


Line = RowLine | Header | PlainLine


class RowPainter:
    """Renders lines as strips of the table's width."""

    def __init__(self, style_of: Callable[[str], Style]) -> None:
        """Draw with the styles that `style_of` returns for the parts of a table."""
        self._style_of = style_of
        self._columns: Sequence[Column] = ()
        self._fit = Fit()
        self._width = 0
        self._base = Style()
        self._styles: dict[tuple[str, ...], Style] = {}
        # Textual's LRUCache holds its entries in cycles, so that `clear` would free nothing at once.
        self._strips = OrderedDict[tuple[object, ...], tuple[Line, Strip]]()

    def lay_out(self, columns: Sequence[Column], fit: Fit, width: int) -> bool:
        """Set columns and width; return True if they have changed."""
        if (columns, fit, width) == (self._columns, self._fit, self._width):
            return False
        self._columns, self._fit, self._width = columns, fit, width
        self._strips.clear()
        return True

    def use(self, base: Style) -> None:
        """Set the base style."""
        if base != self._base:
            self.forget()
            self._base = base

    def forget(self) -> None:
        """Clear the cache after a change of styles."""
        self._styles.clear()
        self._strips.clear()

    def draw(self, line: Line) -> Strip:
        """Return the strip of a line, cached if possible."""
        # A row is looked up by its identity, because comparing all its cells takes longer.
        key = (id(line.row), *line[1:]) if isinstance(line, RowLine) else (type(line), *line)
        kept = self._strips.get(key)
        if kept is None:
            kept = (line, Strip(self._segments(line)).adjust_cell_length(self._width, self._base))
            self._strips[key] = kept
            if len(self._strips) > MAX_CACHED_LINES:
                self._strips.popitem(last=False)
        else:
            self._strips.move_to_end(key)
        return kept[1]

    def _segments(self, line: Line) -> Iterable[Segment]:
        if isinstance(line, Header):
            return self._header(line)
        if isinstance(line, PlainLine):
            text = elide_end(sanitize(line.text), self._width - GUTTER)
            return [Segment(" " * GUTTER + text, self._style("empty"))]
        runs, beneath = self._detail(line) if line.part else self._row(line), _beneath(line)
        words = Strip(_joined(runs)).adjust_cell_length(max(0, self._width - 1), self._style(*beneath))
        thumb = " ┃"[line.has_thumb]
        return [*words, Segment(thumb, self._style(*beneath, "thumb" if line.has_thumb else ""))]

    def _style(self, *names: str) -> Style:
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
        text = detail_parts(line.row.detail or "", self._width - DETAIL_MARGIN)[line.part - 1]
        text = elide_end(text, self._width - DETAIL_MARGIN)
        return [(" " * (GUTTER + 2) + text, self._style(*_beneath(line), "detail"))]

    def _row(self, line: RowLine) -> list[tuple[str, Style]]:
        beneath = _beneath(line)
        mark = "●" if line.is_marked else HIGHLIGHTED if line.is_highlighted else " "
        cursor = "▸" if line.cursor else " "
        runs = [
            (mark, self._style(*beneath, "mark" if mark != " " else "")),
            (cursor + " ", self._style(*beneath, "cursor-mark" if line.cursor else "")),
        ]
        for index, cells in self._fit.widths:
            top = "flash" if index in line.flashing else ""
            runs += self._cell(line.row.cells[index], self._columns[index], cells, (*beneath, top))
        return runs

    def _cell(
        self, cell: Cell, column: Column, cells: int, beneath: tuple[str, ...]
    ) -> list[tuple[str, Style]]:
        runs = [(sanitize(text), look) for text, look in cell.runs or ((cell.text, cell.style),)]
        while column.elide == "runs" and len(runs) > 1 and sum(cell_len(part) for part, _ in runs) > cells:
            runs.pop()
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


def detail_parts(detail: str, width: int) -> tuple[str, str]:
    """Return the first line of a detail, of at most `width` cells, and the indented rest."""
    text = " ".join(sanitize(detail).split())
    first = next(iter(wrapped(text, max(1, width))), "")
    rest = text[len(first) :].strip()
    return first, f"  {rest}" if rest else ""


def _cut(runs: Iterable[Run], cells: int) -> list[Run]:
    left, kept = cells, list[Run]()
    for text, look in runs:
        if cell_len(text) >= left:
            return [*kept, (elide_end(f"{text} ", left), look)]
        left -= cell_len(text)
        kept.append((text, look))
    return kept


def _beneath(line: RowLine) -> tuple[str, ...]:
    return (line.cursor,) if line.cursor else ()


def _joined(runs: Iterable[tuple[str, Style]]) -> list[Segment]:
    segments: list[Segment] = []
    for text, style in runs:
        if segments and segments[-1].style == style:
            segments[-1] = Segment(segments[-1].text + text, style)
        elif text:
            segments.append(Segment(text, style))
    return segments
