"""One chart as rows of text: title, legend, curves, axes, and the reading at the cursor.

Text comes in pieces, each with the name of its paint (`title`, `axis`, `note`, `alarm`,
`cursor`, `series-1`, `raw-1`, or empty), so that widgets can colour it and tests can read it.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal, NamedTuple, TypeAlias

from tui.charts.braille import Canvas
from tui.charts.series import Series, Span, downsample, value_range
from tui.charts.ticks import Tick, clock_ticks, duration_ticks, integer_ticks, log_ticks, number_ticks
from tui.text.cells import cell_len, elide_middle, head, pad
from tui.text.format import NOTHING, count, duration, number

Piece: TypeAlias = tuple[str, str]

XAxis: TypeAlias = Literal["step", "relative", "wall"]
"""Steps, time since the first point, or time of day."""

# Curves with a paint of their own; further ones start over.
PAINTS = 6


@dataclass(frozen=True, slots=True, eq=False)
class PlotCurve:
    """One curve of the chart."""

    label: str
    """Label in the legend; sanitised."""
    series: Series


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """Display options of a chart."""

    x_axis: XAxis = "step"
    is_log: bool = False
    smoothing: float = 0.0
    """Weight of the running mean, 0 to 0.999; above 0 the raw curve stays visible, dimmed."""
    cursor: int | None = None
    """Cell column to read out, from the left edge of the plot; None for no cursor."""
    ascii_only: bool = False
    zone: tzinfo | None = None
    """Time zone of the `wall` axis; None for this machine's."""


_RAW = 100
_PATTERNS = ((1, 1), (4, 6), (2, 4), (8, 10), (1, 2), (10, 14))
_SWATCH_CELLS = 3
_HUGE = 4e307
_TINY = 1e-300
_ASCII = str.maketrans({"…": "~", NOTHING: "-"})


class Picture(NamedTuple):
    """A drawn chart."""

    rows: list[list[Piece]]
    """One list of pieces per row; rows may be shorter than the width."""
    columns: int
    """Cells between the axes: the cursor may be on 0 to `columns - 1`."""


def draw(
    title: str,
    curves: Sequence[PlotCurve],
    width: int,
    height: int,
    view: PlotOptions,
    *,
    empty: str = "No points yet",
) -> Picture:
    """Draw curves on `width` by `height` cells.

    Args:
        title: The title; sanitised.
        curves: The curves; later ones are drawn on top.
        width: Cells per row.
        height: Rows.
        view: Axes, smoothing and cursor.
        empty: Text while there are no points.
    """
    drawing = _Drawing(title, curves, max(0, width), max(0, height), view, empty)
    rows = [_cropped(row, width, view.ascii_only) for row in drawing.rows()[: max(0, height)]]
    return Picture(rows, drawing.columns)


class _Drawing:
    def __init__(
        self, title: str, curves: Sequence[PlotCurve], width: int, height: int, view: PlotOptions, empty: str
    ) -> None:
        self.title = title
        self.empty = empty
        self.curves = curves
        self.width = width
        self.view = view
        self.has_legend = len(curves) > 1
        self.height = max(0, height - 2 - self.has_legend)
        self.filled = [curve for curve in curves if len(curve.series)]
        self.columns = 0
        self.x_range = self._find_x_range()
        self.y_range = self._find_y_range()
        self.y_ticks: list[Tick] = []
        if self.y_range:
            make = log_ticks if view.is_log else number_ticks
            self.y_ticks = make(*self.y_range, max(2, min(8, self.height // 2)))
        self.margin = max((len(tick.text) for tick in self.y_ticks), default=0) + 1
        self.columns = max(0, width - self.margin - 1)

    def rows(self) -> list[list[Piece]]:
        top = [self._title_row(), *([self._legend_row()] if self.has_legend else [])]
        if self.y_range is None or self.columns < 2 or self.height < 1:
            return [*top, *self._placeholder()]
        canvas = Canvas(self.columns, self.height, ascii_only=self.view.ascii_only)
        for index, curve in enumerate(self.curves):
            self._draw_curve(canvas, index, curve)
        return [*top, *self._plot_rows(canvas), self._x_axis_row()]

    # Ranges

    def _xs(self, series: Series) -> array[int] | array[float]:
        return series.steps if self.view.x_axis == "step" else series.wall_times

    def _offset(self, series: Series) -> float:
        return series.wall_times[0] if self.view.x_axis == "relative" else 0.0

    def _find_x_range(self) -> tuple[float, float]:
        ends = [
            (self._xs(curve.series)[end] - self._offset(curve.series))
            for curve in self.filled
            for end in (0, -1)
        ]
        low, high = min(ends, default=0.0), max(ends, default=1.0)
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def _find_y_range(self) -> tuple[float, float] | None:
        if self.view.is_log:
            spans = [span for curve in self.filled for span in self._spans(curve.series, 2 * self.width + 2)]
            found = value_range(spans, above_zero=True)
        else:
            bands = [curve.series.bands.between(0, len(curve.series)) for curve in self.filled]
            finite = [band for band in bands if band[0] <= band[1]]
            found = (min(low for low, _ in finite), max(high for _, high in finite)) if finite else None
        if found is None:
            return None
        least = _TINY if self.view.is_log else -_HUGE
        low, high = (max(least, min(_HUGE, value)) for value in found)
        if self._scaled(low) < self._scaled(high):
            return low, high
        around = abs(low) / 2 or 1.0
        return (low / 2, low * 2) if self.view.is_log else (low - around, low + around)

    def _spans(self, series: Series, columns: int, *, smoothing: float = 0.0) -> list[Span]:
        offset = self._offset(series)
        source = series.smoothed(smoothing) if smoothing else series
        low, high = self.x_range
        return downsample(
            self._xs(series),
            source.values,
            source.bands,
            low=low + offset,
            high=high + offset,
            columns=max(2, columns),
        )

    # Curves

    def _draw_curve(self, canvas: Canvas, index: int, curve: PlotCurve) -> None:
        if not len(curve.series):
            return
        canvas.pattern = (1, 1)
        smoothing = self.view.smoothing
        if smoothing:
            self._draw_spans(canvas, self._spans(curve.series, canvas.dots_x), _RAW + index % PAINTS + 1)
        if index and not self.view.ascii_only:
            canvas.pattern = _PATTERNS[index % PAINTS]
        spans = self._spans(curve.series, canvas.dots_x, smoothing=smoothing)
        self._draw_spans(canvas, spans, index % PAINTS + 1)

    def _draw_spans(self, canvas: Canvas, spans: Sequence[Span], owner: int) -> None:
        dot = self._dots(canvas)
        before: tuple[int, int] | None = None
        for span in spans:
            if span.low > span.high or (self.view.is_log and span.high <= 0):
                before = None
                continue
            top, bottom = dot(span.high), dot(span.low)
            if before and self._can_show(span.first):
                first = dot(span.first)
                if span.x - before[0] > 1:
                    canvas.line(before, (span.x, first), owner)
                    canvas.column(span.x, top, bottom, owner)
                else:
                    canvas.reach(span.x, before[1], top, bottom, owner)
            else:
                canvas.column(span.x, top, bottom, owner)
            before = (span.x, dot(span.last)) if self._can_show(span.last) else None

    def _dots(self, canvas: Canvas) -> Callable[[float], int]:
        # Maps a value to its row of dots.
        assert self.y_range is not None
        low, high = map(self._scaled, self.y_range)
        extent, last = high - low, canvas.dots_y - 1
        return lambda value: round((high - max(low, min(high, self._scaled(value)))) / extent * last)

    def _scaled(self, value: float) -> float:
        if not self.view.is_log:
            return value
        return math.log10(value) if value > 0 else -400.0

    def _can_show(self, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not self.view.is_log)

    # Rows

    def _plot_rows(self, canvas: Canvas) -> list[list[Piece]]:
        dot, dots_in_cell = self._dots(canvas), canvas.dots_y // self.height
        labels = {dot(tick.value) // dots_in_cell: tick.text for tick in self.y_ticks}
        line, ticked = ("|", "+") if self.view.ascii_only else ("│", "┤")
        rows = []
        for y in range(self.height):
            axis = pad(labels.get(y, ""), self.margin, "right") + (ticked if y in labels else line)
            pieces = [(text, _paint(owner)) for text, owner in canvas.row(y)]
            rows.append([(axis, "axis"), *self._with_cursor(pieces)])
        return rows

    def _with_cursor(self, pieces: list[Piece]) -> list[Piece]:
        cursor = self.view.cursor
        if cursor is None or not 0 <= cursor < self.columns:
            return pieces
        split: list[Piece] = []
        start = 0
        for text, paint in pieces:
            at = cursor - start
            if 0 <= at < len(text):
                mark = text[at] if paint else "|" if self.view.ascii_only else "│"
                split += [(text[:at], paint), (mark, "cursor"), (text[at + 1 :], paint)]
            else:
                split.append((text, paint))
            start += len(text)
        return split

    def _x_axis_row(self) -> list[Piece]:
        low, high = self.x_range
        most = max(2, self.columns // 12)
        if self.view.x_axis == "step":
            ticks = integer_ticks(low, high, most)
        elif self.view.x_axis == "relative":
            ticks = duration_ticks(low, high, most)
        else:
            ticks = clock_ticks(low, high, most, self.view.zone)
        cells = ["-" if self.view.ascii_only else "─"] * self.columns
        marks = self._axis_marks()
        free_from = 0
        for tick in ticks:
            at = round((tick.value - low) / (high - low) * (self.columns - 1))
            start = min(max(0, at - len(tick.text) // 2), self.columns - len(tick.text))
            used_cells = range(start - 1, start + len(tick.text) + 1)
            if start >= free_from and not any(place in marks for place in used_cells):
                cells[start : start + len(tick.text)] = tick.text
                free_from = start + len(tick.text) + 2
        corner = "+" if self.view.ascii_only else "└"
        pieces: list[Piece] = [(" " * self.margin + corner, "axis")]
        start = 0
        for at in sorted(marks):
            mark, paint = marks[at]
            pieces += [("".join(cells[start:at]), "axis"), (mark, paint)]
            start = at + 1
        pieces.append(("".join(cells[start:]), "axis"))
        return pieces

    def _axis_marks(self) -> dict[int, Piece]:
        restart, broken = ("^", "x") if self.view.ascii_only else ("↻", "✕")
        marks: dict[int, Piece] = {}
        for curve in self.filled:
            series = curve.series
            for step in series.restarts:
                marks[self._cell_of(series, bisect_left(series.steps, step))] = (restart, "note")
            for column in range(self.columns) if series.broken else ():
                start = bisect_left(self._xs(series), self._value_at(series, column - 0.5))
                end = bisect_left(self._xs(series), self._value_at(series, column + 0.5))
                if series.broken_between(start, end):
                    marks[column] = (broken, "alarm")
        return marks

    def _cell_of(self, series: Series, index: int) -> int:
        low, high = self.x_range
        x = self._xs(series)[min(index, len(series) - 1)] - self._offset(series)
        return min(self.columns - 1, max(0, round((x - low) / (high - low) * (self.columns - 1))))

    def _value_at(self, series: Series, column: float) -> float:
        low, high = self.x_range
        return low + column / (self.columns - 1) * (high - low) + self._offset(series)

    # Words

    def _at_cursor(self, series: Series) -> int | None:
        # The index of the point nearest to the cursor; the last point without a cursor.
        if not len(series):
            return None
        if self.view.cursor is None or self.columns < 2:
            return len(series) - 1
        xs = self._xs(series)
        wanted = self._value_at(series, self.view.cursor)
        after = bisect_left(xs, wanted)
        near = [index for index in (after - 1, after) if 0 <= index < len(xs)]
        best = min(near, key=lambda index: abs(xs[index] - wanted))
        is_beyond = not xs[0] <= wanted <= xs[-1] and abs(self._cell_of(series, best) - self.view.cursor) > 1
        return None if is_beyond else best

    def _reading(self, series: Series) -> Piece:
        index = self._at_cursor(series)
        if index is None:
            return number(None), "note"
        value = series.values[index]
        text = number(value)
        if self.view.smoothing and math.isfinite(value) and not self.has_legend:
            text += f" ~{number(series.smoothed(self.view.smoothing).values[index])}"
        return text, "alarm" if not math.isfinite(
            value
        ) else "cursor" if self.view.cursor is not None else "value"

    def _place(self) -> str:
        for curve in self.filled:
            index = self._at_cursor(curve.series)
            if index is None:
                continue
            if self.view.x_axis == "step":
                return f"step {count(curve.series.steps[index])}"
            moment = curve.series.wall_times[index]
            if self.view.x_axis == "relative":
                return f"after {duration(moment - curve.series.wall_times[0])}"
            return f"{datetime.fromtimestamp(moment, self.view.zone):%b %d %H:%M:%S}"
        return ""

    def _title_row(self) -> list[Piece]:
        captions: list[Piece] = []
        if broken := sum(len(curve.series.broken) for curve in self.curves):
            captions.append((f"{count(broken)} nan or inf", "alarm"))
        if self.view.cursor is not None and (place := self._place()):
            captions.append((place, "cursor"))
        if self.view.smoothing:
            captions.append((f"smooth {self.view.smoothing:g}", "note"))
        if self.view.is_log:
            captions.append((self._log_caption(), "note"))
        left: list[Piece] = []
        if not self.has_legend and self.filled:
            left = [("  ", ""), self._reading(self.filled[0].series)]
        used_cells = sum(cell_len(text) for text, _ in left)
        left.insert(0, (elide_middle(self.title, max(0, self.width - used_cells - 1)), "title"))
        used = sum(cell_len(text) for text, _ in left)
        right: list[Piece] = []
        for text, paint in captions:
            if used + sum(cell_len(shown) for shown, _ in right) + len(text) + 3 <= self.width:
                right += [("  ", ""), (text, paint)]
        space = self.width - used - sum(cell_len(text) for text, _ in right)
        return [*left, (" " * space, ""), *right] if right else left

    def _log_caption(self) -> str:
        lows = [curve.series.bands.between(0, len(curve.series))[0] for curve in self.filled]
        return "log, values up to 0 left out" if any(low <= 0 for low in lows) else "log"

    def _legend_row(self) -> list[Piece]:
        readings = [self._reading(curve.series) for curve in self.curves]
        used_cells = sum(cell_len(text) + _SWATCH_CELLS + 4 for text, _ in readings) - 2
        label_cells = [cell_len(curve.label) for curve in self.curves]
        longest = min(max(label_cells), self.width)
        while longest > 4 and used_cells + sum(min(longest, cells) for cells in label_cells) > self.width:
            longest -= 1
        pieces: list[Piece] = []
        for index, (curve, reading) in enumerate(zip(self.curves, readings, strict=True)):
            swatch = Canvas(_SWATCH_CELLS, 1, ascii_only=self.view.ascii_only)
            swatch.pattern = (1, 1) if self.view.ascii_only else _PATTERNS[index % PAINTS]
            for x in range(swatch.dots_x):
                swatch.column(x, swatch.dots_y // 2, swatch.dots_y // 2, index % PAINTS + 1)
            line = "".join(text for text, _ in swatch.row(0))
            label = elide_middle(curve.label, longest)
            pieces += [
                ("  " if index else "", ""),
                (line, _paint(index % PAINTS + 1)),
                (f" {label} ", ""),
                reading,
            ]
        return pieces

    def _placeholder(self) -> list[list[Piece]]:
        if not self.filled:
            text = elide_middle(self.empty, self.width)
        elif self.y_range is None and self.view.is_log:
            text = "Nothing above zero to show on a log axis"
        elif self.y_range is None:
            text = "Every value is nan or infinite"
        else:
            text = ""
        middle = max(0, self.height // 2)
        return [[] for _ in range(middle)] + [[(text.center(self.width).rstrip(), "note")]]


def _cropped(row: list[Piece], width: int, ascii_only: bool) -> list[Piece]:
    room, pieces = width, []
    for text, paint in row:
        visible = head(text.translate(_ASCII) if ascii_only else text, room)
        room -= cell_len(visible)
        if visible:
            pieces.append((visible, paint))
    return pieces


def _paint(owner: int) -> str:
    if owner > _RAW:
        return f"raw-{owner - _RAW}"
    return f"series-{owner}" if owner else ""
