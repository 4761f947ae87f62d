"""A table for ten thousand rows; only changed lines are redrawn.

Rows, cursor and marks go by row keys, so they stay in place while a live list is replaced, sorted or
filtered. Rows are scrolled here, see `tui.widgets.viewport`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer

from tui.settings.keys import TABLE
from tui.tables.column import Cell, Column, Row
from tui.text.cells import cell_len
from tui.widgets.bindings import bindings
from tui.widgets.painted import PaintedWidget
from tui.widgets.table.columns import ColumnLayout
from tui.widgets.table.paint import DETAIL_MARGIN, GUTTER, Header, RowPainter, detail_parts
from tui.widgets.table.row_set import LabelsOf, RowFilter, RowSet, row_filter
from tui.widgets.table.visible_lines import Flashes, Marks, TableViewport, VisibleLines
from tui.widgets.viewport import WHEEL_LINES

__all__ = ["Cell", "Column", "Row", "Table"]


class Table(PaintedWidget, can_focus=True):
    """Rows under a fixed header, with a cursor, marks and an order; filters are set from outside."""

    DEFAULT_CSS = """
    Table { width: 1fr; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings(TABLE)

    empty: reactive[str] = reactive("Nothing here", init=False, repaint=False)
    is_wide: reactive[bool] = reactive(False, init=False, repaint=False)
    order: reactive[tuple[str, bool] | None] = reactive(None, init=False, repaint=False)
    """Key of the sort column, and True if reversed; None keeps the given order."""

    # Highlight changes in columns that flash.
    flashes = True

    class TableMessage(Message):
        """Base of the table's messages."""

        def __init__(self, table: Table, key: str | None) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> Table:
            """The sender."""
            return self.table

        def can_replace(self, message: Message) -> bool:
            """Keep only the newest per table."""
            return type(message) is type(self) and message.control is self.table

    class RowHighlighted(TableMessage):
        """The cursor moved to another row, or to none."""

    class RowMarked(TableMessage):
        """The marks have changed; see `table.marks`."""

    class RowSelected(TableMessage):
        """The user pressed enter on a row, or double-clicked it."""

        key: str

        def can_replace(self, message: Message) -> bool:
            """Keep every message."""
            return False

    def __init__(
        self,
        columns: Iterable[Column] = (),
        *,
        empty: str = "Nothing here",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Create an empty table; `empty` is the text without rows."""
        super().__init__(id=id, classes=classes)
        self.set_reactive(Table.empty, empty)
        self._rows = RowSet(columns)
        self._view = TableViewport(self._rows)
        self._layout = ColumnLayout()
        self._marks = Marks()
        self._flashes = Flashes()
        self._lines = VisibleLines(self._rows, self._view, self._marks, self._flashes)
        self._painter = RowPainter(self._component_style)
        self._flash_timer: Timer | None = None
        self._refilter: Callable[[Sequence[Column]], RowFilter] | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns, left to right."""
        return self._rows.columns

    @property
    def shown_rows(self) -> Sequence[Row]:
        """Filtered rows in display order."""
        return self._rows.shown

    @property
    def row_count(self) -> int:
        """Number of filtered rows."""
        return len(self._rows.shown)

    @property
    def top(self) -> int:
        """Number of lines scrolled away."""
        return self._view.top

    @property
    def visible_rows(self) -> Sequence[Row]:
        """Rows on the screen, also partly visible ones."""
        return [self._rows.shown[place] for place in self._view.visible_rows]

    @property
    def cursor_key(self) -> str | None:
        """Key of the row under the cursor."""
        return row.key if (row := self._view.cursor_row) is not None else None

    @property
    def marks(self) -> tuple[str, ...]:
        """Keys of the marked rows in the given order, including hidden ones."""
        return self._marks.among(self._rows.rows)

    @property
    def hidden_marks(self) -> int:
        """Number of marked rows hidden by the filter."""
        return len(self.marks) - len(self._marks.among(self._rows.shown))

    def set_columns(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Replace the columns and the rows; if the columns are the same, only the rows."""
        if tuple(columns) == self.columns:
            self.set_rows(rows)
            return
        with self._restore_position():
            if self._refilter is not None:
                self._rows.filter(None)  # it counts on the columns as they were
            self._rows.set_columns(columns, rows)
            if self._refilter is not None:
                found = self._refilter(self.columns)
                self._rows.filter(found.accepts, found.problem or found.hint)
            self._flashes.clear()
        self._drop_marks()

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replace the rows; only changed lines are redrawn."""
        before = self._lines.rows
        with self._restore_position():
            self._rows.replace(rows)
        if before and self.flashes and self.screen.is_current:
            self._flashes.record(self.columns, before, self._lines.rows.values(), monotonic())
            self._repaint()
            self._time_flashes()
        self._drop_marks()

    def set_filter(self, accepts: Callable[[Row], bool] | None, hint: str = "") -> None:
        """Set the row test; None shows all rows. `hint` explains an empty result."""
        self._refilter = None
        with self._restore_position():
            self._rows.filter(accepts, hint)

    def filter_by(self, typed: str, labels_of: LabelsOf | None = None) -> RowFilter:
        """Apply a typed filter; it also holds after the columns are replaced."""
        found = row_filter(typed, self.columns, labels_of)
        self.set_filter(found.accepts, found.problem or found.hint)
        self._refilter = lambda columns: row_filter(typed, columns, labels_of)
        return found

    def point_at(self, keys: Collection[str]) -> None:
        """Mark the rows with these keys as highlighted from outside."""
        self._lines.highlighted = keys
        self._repaint()

    def shows_detail(self, key: str) -> bool:
        """Return True if the detail of a row is shown in full."""
        place, width = self._rows.find(key), self.size.width - DETAIL_MARGIN
        detail = self._rows.shown[place].detail if place is not None else None
        return bool(detail) and cell_len(detail_parts(detail or "", width)[1]) <= width

    def move_to(self, key: str) -> bool:
        """Move the cursor to a row; return False if it is hidden."""
        if (place := self._rows.find(key)) is not None:
            self._move_cursor(self._view.move_to(place))
        return place is not None

    @contextmanager
    def _restore_position(self) -> Iterator[None]:
        lines, key = len(self._rows.lines.rows), self.cursor_key
        with self._view.keep_position():
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
        if self._marks.keep(self._rows.rows):
            self.post_message(self.RowMarked(self, self.cursor_key))

    def _marks_changed(self) -> None:
        self._repaint()
        self.post_message(self.RowMarked(self, self.cursor_key))

    def watch_empty(self) -> None:
        """Redraw."""
        self._repaint()

    def watch_is_wide(self) -> None:
        """Lay out the columns."""
        self._layout.set_wide(self.is_wide)
        self._show_layout()

    def watch_order(self) -> None:
        """Sort."""
        with self._restore_position():
            self._rows.sort(self.order)
        self._write_header(self._lines.header.selected)

    def on_resize(self) -> None:
        """Lay out the columns, and keep the cursor visible."""
        with self._restore_position():
            self._rows.wrap_details(self.size.width - DETAIL_MARGIN)
            self._view.resize(self.size.height - 1)
        self._view.reveal_cursor()
        self._repaint()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines, including the header."""
        return len(self._rows.lines.rows) + 1

    def notify_style_update(self) -> None:
        """Draw in the new theme or focus state."""
        super().notify_style_update()
        self._painter.forget()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Redraw the line at the cursor."""
        super().watch_has_focus(has_focus)
        self._lines.cursor_look = "cursor-focused" if has_focus else "cursor"
        self._repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down; the cursor stays on its row."""
        event.stop()
        self._view.scroll(WHEEL_LINES)
        self._repaint()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        event.stop()
        self._view.scroll(-WHEEL_LINES)
        self._repaint()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor; a double click opens the row, a click on a title sorts."""
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
        """Move the cursor by pages."""
        self._move_cursor(self._view.move_pages(pages))

    def action_go(self, index: int) -> None:
        """Move the cursor to a row; -1 is the last one."""
        self._move_cursor(self._view.move_to(index if index >= 0 else self.row_count + index))

    def action_open(self) -> None:
        """Select the row under the cursor."""
        if (key := self.cursor_key) is not None:
            self.post_message(self.RowSelected(self, key))

    def action_mark(self) -> None:
        """Mark or unmark the row under the cursor."""
        if (key := self.cursor_key) is not None:
            self._marks.toggle(key)
            self._marks_changed()

    def action_mark_range(self) -> None:
        """Mark all rows from the last marked one to the cursor."""
        if self._rows.shown:
            self._marks.extend(self._rows.shown, self._view.cursor)
            self._marks_changed()

    def action_clear_marks(self) -> None:
        """Unmark all rows."""
        if self._marks:
            self._marks.clear()
            self._marks_changed()

    def action_select_column(self, columns: int) -> None:
        """Select the next or previous column, wrapping around."""
        keys = [each.key for each in self.columns] if self.is_wide else self._layout.visible_keys
        if not keys:
            return
        was = self._lines.header.selected or self._lines.header.sorted_by
        selected = keys[(keys.index(was) + columns if was in keys else 0) % len(keys)]
        self._write_header(selected)
        self._layout.reveal(selected)
        self._show_layout()

    def action_sort_selected(self) -> None:
        """Sort by the selected column; without one, reverse the order."""
        first = next(iter(self._layout.visible_keys), None)
        self.action_sort(self._lines.header.selected or self._lines.header.sorted_by or first)

    def action_sort(self, column: str | None) -> None:
        """Sort by a column; again reverses the order."""
        if column is not None and any(each.key == column for each in self.columns):
            was, is_reversed = self.order or ("", False)
            self._write_header(selected="")
            self.order = (column, was == column and not is_reversed)

    def action_sort_first(self, columns: Sequence[str]) -> None:
        """Sort by the first of these columns that the table has."""
        known = {each.key for each in self.columns}
        self.action_sort(next((each for each in columns if each in known), None))

    def action_toggle_wide(self) -> None:
        """Toggle natural column widths."""
        self.is_wide = not self.is_wide

    def action_scroll_columns(self, columns: int) -> None:
        """Scroll a wide table sideways."""
        self._layout.scroll(columns)
        self._show_layout()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the arrows to others unless the table is wide."""
        return action != "scroll_columns" or self.is_wide

    def _write_header(self, selected: str) -> None:
        sorted_by = self.order[0] if self.order is not None else ""
        self._lines.header = Header(sorted_by, self._rows.largest_first, selected)
        self._repaint()

    def _lay_out(self) -> None:
        rows = self._rows
        self._layout.lay_out(self.columns, rows.natural, self.size.width - GUTTER - 1, rows.empty_columns)
        self._show_layout()

    def _show_layout(self) -> None:
        if self._painter.lay_out(self.columns, self._layout.fit, self.size.width):
            self.refresh()
        self._repaint()

    def _repaint(self) -> None:
        width, height = self.size
        if (changed := self._lines.update(height, self.empty)) == [range(height)]:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, lines.start, width, len(lines)) for lines in changed))

    def render_line(self, y: int) -> Strip:
        """Render the header or one line of a row."""
        line = self._lines.lines[y] if y < len(self._lines.lines) else None
        return self._painter.draw(line) if line is not None else Strip.blank(self.size.width, self.rich_style)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render lines; without a frame, cached strips are returned unchanged."""
        self._painter.use(self.rich_style)
        if self.gutter.width or self.gutter.height or self.opacity != 1 or self.styles.tint.a:
            return super().render_lines(crop)
        strips = [self.render_line(y).crop(crop.x, crop.right) for y in crop.line_range]
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        return strips

    def _component_style(self, part: str) -> Style:
        return self.look(f"table--{part}")

    def _time_flashes(self) -> None:
        if (wait_s := self._flashes.wait_s(monotonic())) is not None and self._flash_timer is None:
            self._flash_timer = self.set_timer(wait_s, self._end_flashes)

    def _end_flashes(self) -> None:
        self._flash_timer = None
        self._flashes.end(monotonic())
        self._repaint()
        self._time_flashes()
