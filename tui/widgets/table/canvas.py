"""Shows rows under a header: scrolls them, keeps their places, and has drawn again only what changed.

Rows are scrolled here: a `ScrollView` has the whole screen composed anew for it. What is in sight
belongs to row keys, so it stays while a live list is replaced, sorted or filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from time import monotonic
from typing import ClassVar, get_args

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from tui.text.format import Look, count
from tui.widgets.table.columns import GAP, Column, Fit, Row, fit_columns, fit_wide
from tui.widgets.table.flashes import Flashes
from tui.widgets.table.paint import GUTTER, Header, Line, RowLine, RowPainter, Words
from tui.widgets.table.row_set import RowSet, survivor

WHEEL_LINES = 3
"""Lines that one notch of the mouse wheel scrolls."""
_PARTS = ("header", "picked", "detail", "empty", "mark", "cursor", "cursor-mark", "flash", "thumb")

LEAST_S = 0.01
"""The shortest time for a timer: Textual divides by it when it is late."""


class TableCanvas(Widget):
    """Rows, one of them under the cursor, and some of them in sight."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"table--{part}" for part in (*_PARTS, *filter(None, get_args(Look)))
    }

    empty: reactive[str] = reactive("Nothing here", init=False, repaint=False)
    """What the table says where there is no row."""
    is_wide: reactive[bool] = reactive(False, init=False, repaint=False)
    """Whether all columns have their natural width, and are scrolled sideways."""

    flashes = True
    """Whether changes are pointed at, in columns that flash."""

    def __init__(self, columns: Iterable[Column], empty: str, *, id: str | None, classes: str | None) -> None:
        """Make an empty canvas."""
        super().__init__(id=id, classes=classes)
        self.set_reactive(TableCanvas.empty, empty)
        self._rows = RowSet(columns)
        self._header = Header("", False, "")
        self._cursor = 0
        self._top = 0
        self._fit = Fit()
        self._skipped_columns = 0
        self._marks: set[str] = set()
        self._painter = RowPainter(self._look)
        self._painted: list[Line | None] = []
        self._flashes = Flashes()
        self._flash_timer: Timer | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, left to right; replaced by `set_columns`."""
        return self._rows.columns

    @property
    def row_count(self) -> int:
        """How many rows the filter lets through."""
        return len(self._rows.shown)

    @property
    def top(self) -> int:
        """How many lines are scrolled away above."""
        return self._top

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor."""
        return self._rows.shown[self._cursor].key if self._rows.shown else None

    def cursor_moved(self) -> None:
        """Tell whoever wants to know that the cursor is on another row."""

    def marks_changed(self) -> None:
        """Tell whoever wants to know that other rows are marked."""

    def set_columns(self, columns: Iterable[Column], rows: Sequence[Row]) -> None:
        """Replace the columns, and the rows that have a cell for each of them."""
        with self._keeping_place():
            self._rows.set_columns(columns, rows)
            self._flashes.clear()
        self._drop_marks()

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replace all rows, each with a key of its own; lines that say the same are not drawn again."""
        before = self._rows_painted()
        with self._keeping_place():
            self._rows.replace(rows)
        if before and self.flashes and self.screen.is_current:
            self._flashes.note(self.columns, before, self._rows_painted().values(), monotonic())
            self._repaint()
            self._time_flashes()
        self._drop_marks()

    def set_filter(self, wanted: Callable[[Row], bool] | None) -> None:
        """Show only rows that `wanted` accepts; None shows all."""
        with self._keeping_place():
            self._rows.filter(wanted)

    def move_to(self, key: str) -> bool:
        """Put the cursor on the row with this key; say whether it is shown."""
        if (index := self._rows.find(key)) is not None:
            self._set_cursor(index)
        return index is not None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Take a line for the header, and one for each line of the rows."""
        return len(self._rows.lines.rows) + 1

    def notify_style_update(self) -> None:
        """Draw all anew: there is another theme, or the focus came or went."""
        super().notify_style_update()
        self._painter.forget()

    def watch_empty(self) -> None:
        """Say it."""
        self._repaint()

    def watch_is_wide(self) -> None:
        """Lay the columns out anew."""
        self._skipped_columns = 0
        self._lay_out()
        self._repaint()

    def on_resize(self) -> None:
        """Lay the columns out for the new width, and keep the cursor in sight."""
        self._lay_out()
        self._reveal_cursor()
        self._repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show what is below; the cursor stays on its row."""
        event.stop()
        self._scroll(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show what is above."""
        event.stop()
        self._scroll(-WHEEL_LINES)

    def render_line(self, y: int) -> Strip:
        """Draw the header, or the line of a row that is scrolled to `y`."""
        line = self._painted[y] if y < len(self._painted) else None
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

    def _look(self, part: str) -> Style:
        return self.get_component_rich_style(f"table--{part}", partial=True)

    @contextmanager
    def _keeping_place(self) -> Iterator[None]:
        """Change rows so that the cursor, and what is in sight, stay where they are.

        At the top of the list it is the top that stays, so that what comes above is seen.
        """
        before, lines, key = self._rows.shown, self._rows.lines, self.cursor_key
        in_view = self._rows_in_view()
        anchor = self._cursor if self._cursor in in_view else in_view.start
        y = lines.first[anchor] - self._top if in_view else 0
        yield
        self._cursor, was_at = survivor(before, self._cursor, self._rows) or 0, self._cursor
        if self._top:
            found = self._cursor if anchor == was_at else survivor(before, anchor, self._rows)
            self._top = self._rows.lines.first[found] - y if self._rows.shown and found is not None else 0
        self._lay_out()
        if was_at in in_view:
            self._reveal_cursor()
        self._repaint()
        if self.styles.is_auto_height and len(lines.rows) != len(self._rows.lines.rows):
            self.refresh(layout=True)
        if self.cursor_key != key:
            self.cursor_moved()

    def _lay_out(self) -> None:
        """Give each column its width, and scroll no further than there are rows."""
        self._top = max(0, min(self._top, len(self._rows.lines.rows) - self._height))
        room = self.size.width - GUTTER - 1
        if self.is_wide:
            self._fit = fit_wide(self.columns, self._rows.natural, room, self._skipped_columns)
            self._skipped_columns = self._fit.before
        else:
            self._fit = fit_columns(self.columns, self._rows.natural, room)
        if self._painter.lay_out(self.columns, self._fit, self.size.width):
            self.refresh()

    def _drop_marks(self) -> None:
        """Forget the marks of rows that are gone."""
        if self._marks and not self._marks <= (keys := {row.key for row in self._rows.rows}):
            self._marks &= keys
            self.marks_changed()

    @property
    def _shown_columns(self) -> list[str]:
        """Return the keys of the columns that are in sight."""
        return [self.columns[index].key for index, _ in self._fit.widths]

    def _column_at(self, x: int) -> str | None:
        """Return the key of the column that a place of the header belongs to."""
        ends = accumulate((cells + GAP for _, cells in self._fit.widths), initial=GUTTER)
        return next(
            (key for key, end in zip(self._shown_columns, list(ends)[1:], strict=True) if x < end), None
        )

    def _skip_columns(self, columns: int) -> None:
        """Scroll so many columns of a wide table away to the left, but none that stays."""
        self._skipped_columns = max(0, columns)
        self._lay_out()
        self._repaint()

    def _reveal_column(self, key: str) -> None:
        """Scroll a wide table until a column is in sight."""
        index = next(place for place, column in enumerate(self.columns) if column.key == key)
        if 0 < index <= self._skipped_columns:
            self._skip_columns(index - 1)
        while key not in self._shown_columns and self._fit.hidden:
            self._skip_columns(self._skipped_columns + 1)

    @property
    def _height(self) -> int:
        """How many lines there are for rows."""
        return max(0, self.size.height - 1)

    def _rows_in_view(self) -> range:
        """Return the places of the rows of which any line is in sight."""
        rows = self._rows.lines.rows[self._top : self._top + self._height]
        return range(rows[0], rows[-1] + 1) if rows else range(0)

    def _reveal_cursor(self) -> None:
        """Scroll no further than it takes to see the cursor's row whole."""
        if not self._rows.shown or not self._height:
            return
        first = self._rows.lines.first[self._cursor]
        last = first + bool(self._rows.shown[self._cursor].detail)
        self._top = min(first, max(self._top, last - self._height + 1))

    def _set_cursor(self, index: int) -> None:
        index = max(0, min(index, len(self._rows.shown) - 1))
        if not self._rows.shown or index == self._cursor:
            return
        self._cursor = index
        self._reveal_cursor()
        self._repaint()
        self.cursor_moved()

    def _scroll(self, lines: int) -> None:
        self._top += lines
        self._lay_out()
        self._repaint()

    def _repaint(self) -> None:
        """Have those lines drawn again that say something else than when they were last drawn."""
        thumb = self._thumb()
        before, self._painted = self._painted, [self._line_at(y, thumb) for y in range(self.size.height)]
        if len(before) != len(self._painted):
            self.refresh()
            return
        regions, start, end = [], 0, len(before)
        for y in range(end + 1):
            if y == end or before[y] == self._painted[y]:
                if y > start:
                    regions.append(Region(0, start, self.size.width, y - start))
                start = y + 1
        if regions:
            self.refresh(*regions)

    def _rows_painted(self) -> dict[str, Row]:
        """Return the rows in sight, as they were painted last."""
        return {line.row.key: line.row for line in self._painted if isinstance(line, RowLine)}

    def _line_at(self, y: int, thumb: range) -> Line | None:
        """Return what is said at a line of the table; None for nothing."""
        if y == 0:
            return self._header
        if not self._rows.shown:
            return self._empty_words(y)
        lines, line = self._rows.lines, self._top + y - 1
        if line >= len(lines.rows):
            return None
        place = lines.rows[line]
        row = self._rows.shown[place]
        is_marked, flashing = row.key in self._marks, self._flashes.of(row.key)
        is_detail, at_cursor = lines.first[place] != line, place == self._cursor
        return RowLine(row, is_detail, at_cursor, is_marked, flashing, y in thumb)

    def _empty_words(self, y: int) -> Words | None:
        hidden = len(self._rows.rows)
        lines = (f"Nothing matches; {count(hidden)} hidden" if hidden else self.empty).split("\n")
        index = y - max(1, min(2, self.size.height - len(lines)))
        return Words(lines[index]) if 0 <= index < len(lines) else None

    def _thumb(self) -> range:
        """Return the lines at whose end a bar shows where the view is; none where all is in sight."""
        height, lines = self._height, len(self._rows.lines.rows)
        if lines <= height:
            return range(0)
        length = max(1, height * height // lines)
        start = 1 + round((height - length) * self._top / (lines - height))
        return range(start, start + length)

    def _time_flashes(self) -> None:
        """Wait for the end of what flashes; where nothing does, nothing waits."""
        end_s = self._flashes.next_end_s
        if end_s is not None and self._flash_timer is None:
            self._flash_timer = self.set_timer(max(LEAST_S, end_s - monotonic()), self._end_flashes)

    def _end_flashes(self) -> None:
        self._flash_timer = None
        self._flashes.end(monotonic())
        self._repaint()
        self._time_flashes()
