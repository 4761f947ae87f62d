"""A table that stays quick with ten thousand rows; a line is drawn again only when it says something else.

Rows, cursor and marks go by row keys, so they stay where they are while a live list is replaced,
sorted or filtered under them. Rows are scrolled here, see `tui.widgets.viewport`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import ClassVar, get_args

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from tui.keys import TABLE
from tui.text.format import Look
from tui.widgets.bindings import bindings
from tui.widgets.table.column_layout import ColumnLayout
from tui.widgets.table.columns import Cell, Column, Row
from tui.widgets.table.flashes import Flashes
from tui.widgets.table.lines_in_sight import LinesInSight
from tui.widgets.table.marks import Marks
from tui.widgets.table.paint import GUTTER, Header, RowPainter
from tui.widgets.table.row_set import RowSet
from tui.widgets.table.viewport import TableViewport
from tui.widgets.viewport import WHEEL_LINES

__all__ = ["Cell", "Column", "Row", "Table"]

_PARTS = ("header", "selected", "detail", "empty", "mark", "cursor", "cursor-mark", "flash", "thumb")


class Table(Widget, can_focus=True):
    """Rows under a fixed header, with a cursor, marks, an order, and a filter given from outside."""

    DEFAULT_CSS = """
    Table { width: 1fr; height: 1fr; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"table--{part}" for part in (*_PARTS, *filter(None, get_args(Look)))
    }
    BINDINGS: ClassVar[list[BindingType]] = bindings(TABLE)

    empty: reactive[str] = reactive("Nothing here", init=False, repaint=False)
    """What the table says where there is no row."""
    is_wide: reactive[bool] = reactive(False, init=False, repaint=False)
    """Whether all columns have their natural width, and are scrolled sideways."""
    order: reactive[tuple[str, bool] | None] = reactive(None, init=False, repaint=False)
    """The key of the column to sort by, and whether that is reversed; None: the order given."""

    flashes = True
    """Whether changes are pointed at, in columns that flash."""

    class TableMessage(Message):
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

    class RowHighlighted(TableMessage):
        """The cursor is on another row, or on none."""

    class RowMarked(TableMessage):
        """The set of marked rows changed; read it from `table.marks`."""

    class RowSelected(TableMessage):
        """The user pressed enter on this row, or clicked it twice."""

        key: str

        def can_replace(self, message: Message) -> bool:
            """Keep every one of them."""
            return False

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        empty: str = "Nothing here",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make an empty table.

        Args:
            columns: The columns, left to right.
            empty: What to say where there is no row.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self.set_reactive(Table.empty, empty)
        self._rows = RowSet(columns)
        self._view = TableViewport(self._rows)
        self._layout = ColumnLayout()
        self._marks = Marks()
        self._flashes = Flashes()
        self._lines = LinesInSight(self._rows, self._view, self._marks, self._flashes)
        self._painter = RowPainter(self._component_style)
        self._flash_timer: Timer | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, left to right; replaced by `set_columns`."""
        return self._rows.columns

    @property
    def shown_rows(self) -> Sequence[Row]:
        """The rows that the filter lets through, in the order in which they are shown."""
        return self._rows.shown

    @property
    def row_count(self) -> int:
        """How many rows the filter lets through."""
        return len(self._rows.shown)

    @property
    def top(self) -> int:
        """How many lines are scrolled away above."""
        return self._view.top

    @property
    def rows_in_sight(self) -> Sequence[Row]:
        """The rows that are on the screen, any line of them."""
        return [self._rows.shown[place] for place in self._view.rows_in_sight]

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor."""
        return row.key if (row := self._view.cursor_row) is not None else None

    @property
    def marks(self) -> tuple[str, ...]:
        """The keys of the marked rows in the order given, those hidden by the filter among them."""
        return self._marks.among(self._rows.rows)

    @property
    def hidden_marks(self) -> int:
        """How many marked rows the filter hides."""
        return len(self.marks) - len(self._marks.among(self._rows.shown))

    def set_columns(self, columns: Iterable[Column], rows: Sequence[Row]) -> None:
        """Replace the columns, and the rows that have a cell for each of them."""
        with self._keeping_place():
            self._rows.set_columns(columns, rows)
            self._flashes.clear()
        self._drop_marks()

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replace all rows, each with a key of its own; lines that say the same are not drawn again."""
        before = self._lines.rows
        with self._keeping_place():
            self._rows.replace(rows)
        if before and self.flashes and self.screen.is_current:
            self._flashes.note(self.columns, before, self._lines.rows.values(), monotonic())
            self._repaint()
            self._time_flashes()
        self._drop_marks()

    def set_filter(self, accepts: Callable[[Row], bool] | None, hint: str = "") -> None:
        """Show only rows that `accepts` lets through; None shows all; `hint` says why it may be none."""
        with self._keeping_place():
            self._rows.filter(accepts, hint)

    def point_at(self, keys: Collection[str]) -> None:
        """Bear a mark before the rows with these keys, and before no others."""
        self._lines.lit = keys
        self._repaint()

    def move_to(self, key: str) -> bool:
        """Put the cursor on the row with this key; return whether it is shown."""
        if (place := self._rows.find(key)) is not None:
            self._move_cursor(self._view.move_to(place))
        return place is not None

    @contextmanager
    def _keeping_place(self) -> Iterator[None]:
        """Change rows so that the cursor, and what is in sight, stay where they are."""
        lines, key = len(self._rows.lines.rows), self.cursor_key
        with self._view.keep_place():
            yield
        self._lay_out()
        if self.styles.is_auto_height and lines != len(self._rows.lines.rows):
            self.refresh(layout=True)
        if self.cursor_key != key:
            self.post_message(self.RowHighlighted(self, self.cursor_key))

    def _move_cursor(self, has_moved: bool) -> None:
        if has_moved:
            self._repaint()
            self.post_message(self.RowHighlighted(self, self.cursor_key))

    def _drop_marks(self) -> None:
        """Forget the marks of rows that are gone."""
        if self._marks.keep(self._rows.rows):
            self.post_message(self.RowMarked(self, self.cursor_key))

    def _marks_changed(self) -> None:
        self._repaint()
        self.post_message(self.RowMarked(self, self.cursor_key))

    def watch_empty(self) -> None:
        """Say it."""
        self._repaint()

    def watch_is_wide(self) -> None:
        """Lay the columns out anew."""
        self._layout.set_wide(self.is_wide)
        self._show_layout()

    def watch_order(self) -> None:
        """Sort anew."""
        with self._keeping_place():
            self._rows.sort(self.order)
        self._write_header(self._lines.header.selected)

    def on_resize(self) -> None:
        """Lay the columns out for the new width, and keep the cursor in sight."""
        self._view.resize(self.size.height - 1)
        self._view.reveal_cursor()
        self._lay_out()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Take a line for the header, and one for each line of the rows."""
        return len(self._rows.lines.rows) + 1

    def notify_style_update(self) -> None:
        """Draw all anew: there is another theme, or the focus came or went."""
        super().notify_style_update()
        self._painter.forget()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show what is below; the cursor stays on its row."""
        event.stop()
        self._view.scroll(WHEEL_LINES)
        self._repaint()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show what is above."""
        event.stop()
        self._view.scroll(-WHEEL_LINES)
        self._repaint()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a double click opens the row, one on a title sorts."""
        if (place := event.get_content_offset(self)) is None:
            return
        if place.y == 0:
            self.action_sort(self._layout.column_at(place.x - GUTTER))
        elif (line := place.y - 1 + self.top) < len(self._rows.lines.rows):
            self._move_cursor(self._view.move_to(self._view.row_at(line)))
            if event.chain == 2:
                self.action_open()

    def action_move(self, rows: int) -> None:
        """Move the cursor by rows."""
        self._move_cursor(self._view.move_to(self._view.cursor + rows))

    def action_page(self, pages: int) -> None:
        """Move the cursor by the lines that fit into the view, less one."""
        self._move_cursor(self._view.move_pages(pages))

    def action_go(self, index: int) -> None:
        """Move the cursor to a row by its place; -1 is the last."""
        self._move_cursor(self._view.move_to(index if index >= 0 else self.row_count + index))

    def action_open(self) -> None:
        """Tell the screen that the row under the cursor is to be opened."""
        if (key := self.cursor_key) is not None:
            self.post_message(self.RowSelected(self, key))

    def action_mark(self) -> None:
        """Mark the row under the cursor, or unmark it."""
        if (key := self.cursor_key) is not None:
            self._marks.toggle(key)
            self._marks_changed()

    def action_mark_range(self) -> None:
        """Mark every row from the last one marked to the cursor."""
        if self._rows.shown:
            self._marks.extend(self._rows.shown, self._view.cursor)
            self._marks_changed()

    def action_clear_marks(self) -> None:
        """Unmark every row."""
        if self._marks:
            self._marks.clear()
            self._marks_changed()

    def action_select_column(self, columns: int) -> None:
        """Pick the column so many after the one selected, or sorted by; after the last comes the first."""
        keys = [each.key for each in self.columns] if self.is_wide else self._layout.keys_in_sight
        if not keys:
            return
        was = self._lines.header.selected or self._lines.header.sorted_by
        selected = keys[(keys.index(was) + columns if was in keys else 0) % len(keys)]
        self._write_header(selected)
        self._layout.reveal(selected)
        self._show_layout()

    def action_sort_selected(self) -> None:
        """Sort by the column selected; where none is, reverse the order."""
        first = next(iter(self._layout.keys_in_sight), None)
        self.action_sort(self._lines.header.selected or self._lines.header.sorted_by or first)

    def action_sort(self, column: str | None) -> None:
        """Sort by a column, by its key, or reverse the order."""
        if column is not None and any(each.key == column for each in self.columns):
            was, is_reversed = self.order or ("", False)
            self._write_header(selected="")
            self.order = (column, was == column and not is_reversed)

    def action_toggle_wide(self) -> None:
        """Show all columns as wide as they would be, or again as many as fit."""
        self.is_wide = not self.is_wide

    def action_scroll_columns(self, columns: int) -> None:
        """Scroll a wide table sideways."""
        self._layout.scroll(columns)
        self._show_layout()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the arrows to others where there is nothing to scroll sideways."""
        return action != "scroll_columns" or self.is_wide

    def _write_header(self, selected: str) -> None:
        sorted_by = self.order[0] if self.order is not None else ""
        self._lines.header = Header(sorted_by, self._rows.largest_first, selected)
        self._repaint()

    def _lay_out(self) -> None:
        """Give each column its width, and draw what has changed."""
        rows = self._rows
        self._layout.lay_out(self.columns, rows.natural, self.size.width - GUTTER - 1, rows.empty_columns)
        self._show_layout()

    def _show_layout(self) -> None:
        if self._painter.lay_out(self.columns, self._layout.fit, self.size.width):
            self.refresh()
        self._repaint()

    def _repaint(self) -> None:
        """Have those lines drawn again that say something else than when they were last drawn."""
        width, height = self.size
        if (changed := self._lines.update(height, self.empty)) == [range(height)]:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, lines.start, width, len(lines)) for lines in changed))

    def render_line(self, y: int) -> Strip:
        """Draw the header, or the line of a row that is scrolled to `y`."""
        line = self._lines.lines[y] if y < len(self._lines.lines) else None
        return self._painter.draw(line) if line is not None else Strip.blank(self.size.width, self.rich_style)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw some lines. Without a frame around them, what was drawn before is returned as it was."""
        self._painter.use(self.rich_style)
        if self.gutter.width or self.gutter.height or self.opacity != 1 or self.styles.tint.a:
            return super().render_lines(crop)
        strips = [self.render_line(y).crop(crop.x, crop.right) for y in crop.line_range]
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return strips

    def _component_style(self, part: str) -> Style:
        return self.get_component_rich_style(f"table--{part}", partial=True)

    def _time_flashes(self) -> None:
        """Wait for the end of what flashes; where nothing does, nothing waits."""
        if (wait_s := self._flashes.wait_s(monotonic())) is not None and self._flash_timer is None:
            self._flash_timer = self.set_timer(wait_s, self._end_flashes)

    def _end_flashes(self) -> None:
        self._flash_timer = None
        self._flashes.end(monotonic())
        self._repaint()
        self._time_flashes()
