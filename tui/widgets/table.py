"""A table that stays quick with ten thousand rows.

Only lines on the screen are drawn, and only those that changed are drawn
again. Cursor and marks belong to row keys, so they stay where they are while
a live list is replaced under them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, get_args

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from k8s.text import sanitize
from tui.format import Look, cell_len, count, elide_end, elide_middle, pad
from tui.widgets.columns import GAP, Cell, Column, Fit, Lines, Row, fit_columns, natural_widths, place_lines

__all__ = ["Cell", "Column", "Row", "Table"]

GUTTER = 3
"""Cells left of the first column: the mark, the cursor, a space."""


class Table(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows under a fixed header, with a cursor, marks, and a filter given from outside."""

    DEFAULT_CSS = """
    Table { overflow-x: hidden; }
    """

    empty: reactive[str] = reactive("Nothing here")
    """What the table says where there is no row."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"table--{part}"
        for part in (
            "header",
            "detail",
            "empty",
            "mark",
            "cursor",
            "cursor-mark",
            *filter(None, get_args(Look)),
        )
    }

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False, id="table.down"),
        Binding("k,up", "move(-1)", "Up", show=False, id="table.up"),
        Binding("g,home", "go(0)", "First row", show=False, id="table.first"),
        Binding("G,end", "go(-1)", "Last row", show=False, id="table.last"),
        Binding("ctrl+f,pagedown", "page(1)", "Page down", show=False, id="table.page_down"),
        Binding("ctrl+b,pageup", "page(-1)", "Page up", show=False, id="table.page_up"),
        Binding("enter", "choose", "Open", show=False, id="table.choose"),
        Binding("space", "mark", "Mark", show=False, id="table.mark"),
        Binding("V,ctrl+@", "mark_range", "Mark up to here", show=False, id="table.mark_range"),
        Binding("U,ctrl+backslash", "clear_marks", "Clear marks", show=False, id="table.clear_marks"),
    ]

    class Told(Message):
        """What this table tells its screen; the base of its messages."""

        def __init__(self, table: Table, key: str | None) -> None:
            super().__init__()
            self.table = table
            """The table it happened in."""
            self.key = key
            """The key of the row under the cursor."""

        @property
        def control(self) -> Table:
            """The table it happened in."""
            return self.table

        def can_replace(self, message: Message) -> bool:
            """Let the newest state stand for those before it."""
            return type(message) is type(self) and message.control is self.table

    class Highlighted(Told):
        """The cursor is on another row, or on none."""

    class Marked(Told):
        """The set of marked rows changed; read it from `table.marks`."""

    class Chosen(Told):
        """The user wants what this row stands for."""

        key: str

        def can_replace(self, message: Message) -> bool:
            """Keep each wish."""
            return False

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        empty: str = "Nothing here",
        ascii_only: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make an empty table.

        Args:
            columns: The columns, left to right.
            empty: What to say where there is no row.
            ascii_only: Draw the cursor as `>` and marks as `*`.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self.columns = tuple(columns)
        """The columns, left to right; replaced by `set_columns`."""
        self.ascii_only = ascii_only
        """Whether only ASCII marks are drawn."""
        self.set_reactive(Table.empty, empty)
        self._rows: Sequence[Row] = ()
        self._shown: Sequence[Row] = ()
        self._wanted: Callable[[Row], bool] | None = None
        self._lines = Lines()
        self._natural = natural_widths(self.columns, ())
        self._fit = Fit()
        self._sort: tuple[str, bool] | None = None
        self._cursor = 0
        self._marks: set[str] = set()
        self._last_marked: str | None = None
        self._base = Style()

    @property
    def row_count(self) -> int:
        """How many rows the filter lets through."""
        return len(self._shown)

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor."""
        return self._shown[self._cursor].key if self._shown else None

    @property
    def marks(self) -> tuple[str, ...]:
        """The keys of the marked rows in row order, those hidden by the filter among them."""
        return tuple(row.key for row in self._rows if row.key in self._marks) if self._marks else ()

    @property
    def hidden_marks(self) -> int:
        """How many marked rows the filter hides."""
        return len(self._marks) - sum(row.key in self._marks for row in self._shown) if self._marks else 0

    def set_columns(self, columns: Iterable[Column], rows: Sequence[Row]) -> None:
        """Replace the columns, and the rows that have a cell for each of them."""
        self.columns = tuple(columns)
        self._fit = Fit()
        self.set_rows(rows)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replace all rows, each with a key of its own; lines that say the same are not drawn again."""
        if not rows and not self._rows and self._fit.widths:
            return
        self._rows = rows
        self._natural = natural_widths(self.columns, rows)
        if self._marks and not self._marks <= (keys := {row.key for row in rows}):
            self._marks &= keys
            self.post_message(self.Marked(self, self.cursor_key))
        self._show()

    def set_filter(self, wanted: Callable[[Row], bool] | None) -> None:
        """Show only rows that `wanted` accepts; None shows all."""
        self._wanted = wanted
        self._show()

    def set_sort_mark(self, column: str | None, *, descending: bool = False) -> None:
        """Point in the header at the column by which the rows given are sorted."""
        self._sort = (column, descending) if column else None
        self._refresh_line(0)

    def move_to(self, key: str) -> bool:
        """Put the cursor on the row with this key; say whether it is shown."""
        if (index := self._find(key)) is not None:
            self._set_cursor(index)
        return index is not None

    def _show(self) -> None:
        had_rows, key, top = bool(self._shown), self.cursor_key, self.scroll_offset.y
        lines_before = [self._at_line(line) for line in self._lines_in_view()]
        was_in_view = had_rows and self._lines.first[self._cursor] in self._lines_in_view()
        self._shown = list(filter(self._wanted, self._rows)) if self._wanted else self._rows
        self._lines = place_lines(self._shown)
        found = self._find(key)
        self._cursor = max(0, min(self._cursor, len(self._shown) - 1)) if found is None else found
        self.virtual_size = Size(self.size.width, len(self._lines.rows) + 1)
        if self._refit() or not had_rows or not self._shown:
            self.refresh()
        elif self.scroll_offset.y == top:
            for y, before in enumerate(lines_before):
                if before != self._at_line(top + y):
                    self._refresh_line(y + 1)
        if was_in_view:
            self._reveal_cursor()
        if self.cursor_key != key:
            self.post_message(self.Highlighted(self, self.cursor_key))

    def _find(self, key: str | None) -> int | None:
        shown = self._shown
        if self._cursor < len(shown) and shown[self._cursor].key == key:
            return self._cursor
        return next((index for index, row in enumerate(shown) if row.key == key), None)

    def _refit(self) -> bool:
        fit = fit_columns(self.columns, self._natural, self.size.width - GUTTER - 1)
        changed, self._fit = fit != self._fit, fit
        return changed

    def _lines_in_view(self) -> range:
        top = self.scroll_offset.y
        return range(top, top + max(0, self.size.height - 1))

    def _at_line(self, line: int) -> tuple[Row, bool, bool] | None:
        if line >= len(self._lines.rows):
            return None
        index = self._lines.rows[line]
        return self._shown[index], self._lines.first[index] != line, index == self._cursor

    def _reveal_cursor(self) -> None:
        view = self._lines_in_view()
        if not self._shown or not view:
            return
        first = self._lines.first[self._cursor]
        last = first + bool(self._shown[self._cursor].detail)
        if first < view.start:
            self.scroll_to(y=first, animate=False, force=True)
        elif last >= view.stop:
            self.scroll_to(y=last - len(view) + 1, animate=False, force=True)

    def _set_cursor(self, index: int) -> None:
        index = max(0, min(index, len(self._shown) - 1))
        if not self._shown or index == self._cursor:
            return
        self._refresh_row(self._cursor)
        self._cursor = index
        self._refresh_row(index)
        self._reveal_cursor()
        self.post_message(self.Highlighted(self, self.cursor_key))

    def _refresh_row(self, index: int) -> None:
        y = self._lines.first[index] - self.scroll_offset.y + 1
        self._refresh_line(y)
        if self._shown[index].detail:
            self._refresh_line(y + 1)

    def _refresh_line(self, y: int) -> None:
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def on_resize(self) -> None:
        """Lay the columns out for the new width, and keep the cursor in sight."""
        if self._refit():
            self.refresh()
        self._reveal_cursor()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a double click opens the row."""
        place = event.get_content_offset(self)
        if place is None or place.y == 0:
            return
        line = place.y - 1 + self.scroll_offset.y
        if line < len(self._lines.rows):
            self._set_cursor(self._lines.rows[line])
            if event.chain == 2:
                self.action_choose()

    def action_move(self, rows: int) -> None:
        """Move the cursor by rows."""
        self._set_cursor(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by the lines that fit into the view, less one."""
        if self._shown:
            line = self._lines.first[self._cursor] + pages * max(1, self.size.height - 2)
            self._set_cursor(self._lines.rows[max(0, min(line, len(self._lines.rows) - 1))])

    def action_go(self, index: int) -> None:
        """Move the cursor to a row by its place; -1 is the last."""
        self._set_cursor(index if index >= 0 else len(self._shown) + index)

    def action_choose(self) -> None:
        """Say that the user wants what the cursor is on."""
        if (key := self.cursor_key) is not None:
            self.post_message(self.Chosen(self, key))

    def action_mark(self) -> None:
        """Mark the row under the cursor, or unmark it."""
        if (key := self.cursor_key) is None:
            return
        self._marks ^= {key}
        self._last_marked = key if key in self._marks else None
        self._refresh_row(self._cursor)
        self.post_message(self.Marked(self, self.cursor_key))

    def action_mark_range(self) -> None:
        """Mark every row from the last one marked to the cursor."""
        if not self._shown:
            return
        keys = [row.key for row in self._shown]
        start = keys.index(self._last_marked) if self._last_marked in keys else self._cursor
        first, last = sorted((start, self._cursor))
        self._marks.update(keys[first : last + 1])
        self._last_marked = self.cursor_key
        self.refresh()
        self.post_message(self.Marked(self, self.cursor_key))

    def action_clear_marks(self) -> None:
        """Unmark every row."""
        if self._marks:
            self._marks.clear()
            self.refresh()
            self.post_message(self.Marked(self, self.cursor_key))

    def render_line(self, y: int) -> Strip:
        """Draw the header, or the line of a row that is scrolled to `y`."""
        width = self.size.width
        if y == 0:
            segments = self._header(width)
        elif not self._shown:
            segments = self._empty_line(y, width)
        elif (found := self._at_line(y - 1 + self.scroll_offset.y)) is None:
            segments = []
        else:
            segments = self._row_line(*found, width)
        return Strip(segments).adjust_cell_length(width, self._base)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw some lines, looking up the style below them all only once."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def _style(self, name: str, base: Style) -> Style:
        return base + self.get_component_rich_style(f"table--{name}", partial=True) if name else base

    def _header(self, width: int) -> list[Segment]:
        sorted_by, descending = self._sort or ("", False)
        arrow = "^v"[descending] if self.ascii_only else "↑↓"[descending]
        text, start = "", GUTTER
        for index, cells in self._fit.widths:
            column = self.columns[index]
            title = elide_end(column.title, cells)
            title = pad(title, cells, "right") if column.align == "right" else title
            text = pad(text, start) + title + (arrow if column.key == sorted_by else "")
            start += cells + GAP
        if self._fit.hidden:
            hint = f"+{self._fit.hidden}> "
            text = pad(text, width - len(hint)) + hint
        return [Segment(text, self._style("header", self._base))]

    def _empty_line(self, y: int, width: int) -> list[Segment]:
        words = f"Nothing matches; {count(len(self._rows))} hidden" if self._rows else self.empty
        lines = words.split("\n")
        index = y - max(1, min(2, self.size.height - len(lines)))
        text = elide_end(sanitize(lines[index]), width - GUTTER) if 0 <= index < len(lines) else ""
        return [Segment(" " * GUTTER + text, self._style("empty", self._base))]

    def _row_line(self, row: Row, is_detail: bool, at_cursor: bool, width: int) -> list[Segment]:
        base = self._style("cursor" if at_cursor else "", self._base)
        if is_detail:
            text = " " * (GUTTER + 2) + elide_end(sanitize(row.detail or ""), width - GUTTER - 3)
            return [Segment(pad(text, width), self._style("detail", base))]
        mark = ("*" if self.ascii_only else "●") if row.key in self._marks else " "
        cursor = (">" if self.ascii_only else "▸") if at_cursor else " "
        segments = [
            Segment(mark, self._style("mark", base)),
            Segment(cursor + " ", self._style("cursor-mark", base)),
        ]
        for index, cells in self._fit.widths:
            segments.extend(self._cell(row.cells[index], self.columns[index], cells, base))
        return [*segments, Segment(" " * width, base)]

    def _cell(self, cell: Cell, column: Column, cells: int, base: Style) -> list[Segment]:
        runs = [(sanitize(text), look) for text, look in cell.runs or ((cell.text, cell.look),)]
        text = "".join(part for part, _ in runs)
        if cell_len(text) > cells:
            text = (elide_middle if column.elide == "middle" else elide_end)(text, cells)
            runs = [(text, runs[0][1])]
        # Spaces take the style of the text beside them: a style less to send for each cell.
        space = " " * (cells - cell_len(text))
        before, after = (space, "") if column.align == "right" else ("", space)
        segments = [Segment(before + part, self._style(look, base)) for part, look in runs[:1]]
        segments += [Segment(part, self._style(look, base)) for part, look in runs[1:]]
        return [*segments[:-1], Segment(segments[-1].text + after + " " * GAP, segments[-1].style)]
