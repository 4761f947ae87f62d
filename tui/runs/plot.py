"""Curves on a canvas between two axes: the part of a chart that no cursor changes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Literal, TypeAlias

import msgspec

from tui.runs.braille import MARKERS, Canvas
from tui.runs.series import Series, Span, downsample, value_range
from tui.runs.ticks import Tick, clock_ticks, duration_ticks, integer_ticks, log_ticks, number_ticks
from tui.text.cells import elide_end, pad

Piece: TypeAlias = tuple[str, str]

XAxis: TypeAlias = Literal["step", "relative", "wall", "epoch", "tokens"]
"""Steps, time since the first point, time of day, or another scalar of the run."""
X_AXES: tuple[XAxis, ...] = ("step", "relative", "wall", "epoch", "tokens")

# Curves with a colour of their own; further ones start over and differ by their markers.
PAINTS = 6

_RAW = 100
_HUGE = 4e307
_TINY = 1e-300
# Markers of one curve across the width, and the fewest cells between two.
_MARKERS_ACROSS, _MARKER_CELLS = 4, 10
# Outliers are the values beyond these shares of a sample; fewer values have none.
_LOWEST, _HIGHEST = 0.02, 0.98
_SAMPLE, _FEWEST = 4096, 8
_PADDING = 0.05
_LEAST_NOTE_ROWS = 4


class StepAxis:
    """Positions of a curve's points on the axis that another scalar of its run gives, such as the epoch."""

    def __init__(self, points: Series, scalar: Series) -> None:
        self._points = points
        self._scalar = scalar
        self._known = (-1, -1)
        self._positions: array[float] = array("d")

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes with the positions."""
        return self._points.version, self._scalar.version

    def positions(self) -> array[float]:
        """Return a position for each point, never decreasing; empty if the scalar has no finite value."""
        if self.version != self._known:
            self._known = self.version
            self._positions = _interpolated(self._points.steps, *_rising(self._scalar))
        return self._positions


def _rising(scalar: Series) -> tuple[array[int], array[float]]:
    # The scalar's finite values as a running maximum.
    steps, values = array("q"), array("d")
    highest = -math.inf
    for step, value in zip(scalar.steps, scalar.values, strict=True):
        if abs(value) < _HUGE:
            highest = max(highest, value)
            steps.append(step)
            values.append(highest)
    return steps, values


def _interpolated(steps: array[int], known: array[int], values: array[float]) -> array[float]:
    if not known or steps == known:
        return values
    positions = array("d")
    right, last = 0, len(known) - 1
    for step in steps:
        while right < last and known[right] < step:
            right += 1
        if step >= known[right] or right == 0:
            positions.append(values[right])
        else:
            left = right - 1
            share = (step - known[left]) / (known[right] - known[left])
            # Rounding must not exceed the next value: positions never decrease.
            positions.append(min(values[right], values[left] + share * (values[right] - values[left])))
    return positions


class PlotCurve(msgspec.Struct, frozen=True, eq=False):
    """One curve of the chart."""

    label: str
    """Label in the legend; sanitised."""
    series: Series
    axes: Mapping[XAxis, StepAxis] = msgspec.field(default_factory=dict)
    """Further axes on which the curve can be drawn."""
    is_named: bool = False
    """Show the label also if this is the only curve."""

    def version(self, axis: XAxis) -> tuple[int, ...]:
        """Return a value that changes with the points and their positions on an axis."""
        return (id(self.series), *(self.axes[axis].version if axis in self.axes else (self.series.version,)))

    def positions(self, axis: XAxis) -> array[int] | array[float]:
        """Return the position of each point; empty if the curve has no such axis."""
        if axis == "step":
            return self.series.steps
        if axis in ("relative", "wall"):
            return self.series.wall_times
        return self.axes[axis].positions() if axis in self.axes else array("d")


class PlotOptions(msgspec.Struct, frozen=True):
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
    zoom: tuple[float, float] | None = None
    """Part of the x axis to draw, in its unit; None for all of it."""
    clips: bool = False
    """Fit the y axis to all but the outliers."""


class Placed(msgspec.Struct, frozen=True, eq=False):
    """A curve with points on the chosen axis."""

    index: int
    curve: PlotCurve
    xs: array[int] | array[float]
    offset: float
    """Position at which the axis starts for this curve."""

    def between(self, low: float, high: float) -> tuple[int, int]:
        """Return the range of points from `low` to `high`."""
        return bisect_left(self.xs, low + self.offset), bisect_right(self.xs, high + self.offset)

    def at(self, index: int) -> float:
        """Return the position of one point on the axis."""
        return self.xs[index] - self.offset


class Plot:
    """Curves drawn on `width` by `height` cells, axes and labels of the y axis included."""

    def __init__(self, curves: Sequence[PlotCurve], width: int, height: int, view: PlotOptions) -> None:
        self.curves = curves
        self.view = view
        self.placed: list[Placed] = []
        for index, curve in enumerate(curves):
            if len(curve.series) and (xs := curve.positions(view.x_axis)):
                self.placed.append(Placed(index, curve, xs, xs[0] if view.x_axis == "relative" else 0.0))
        self.full_range = self._find_full_range()
        self.x_range = self._zoomed()
        self.note = self._absent()
        """The curves without points in view, as text under the x axis."""
        has_note = bool(self.note) and height - 2 >= _LEAST_NOTE_ROWS
        self.height = max(0, height - 1 - has_note)
        self.clipped = 0
        """Number of visible points beyond the y axis."""
        self.y_range = self._find_y_range(width)
        self.y_ticks: list[Tick] = []
        if self.y_range:
            make = log_ticks if view.is_log else number_ticks
            self.y_ticks = make(*self.y_range, max(2, min(8, self.height // 2)))
        self.margin = max((len(tick.text) for tick in self.y_ticks), default=0) + 1
        self.columns = max(0, width - self.margin - 1)
        """Cells between the axes."""
        self.canvas: Canvas | None = None
        """The drawn curves; None if there is nothing to draw, or no space."""
        self.rows: list[list[Piece]] = []
        if self.y_range is not None and self.columns >= 2 and self.height >= 1:
            self.canvas = Canvas(self.columns, self.height, ascii_only=view.ascii_only)
            self._draw(self.canvas)
            note: list[list[Piece]] = (
                [[(" " * (self.margin + 1), ""), (elide_end(self.note, self.columns), "note")]]
                if has_note
                else []
            )
            self.rows = [*self._canvas_rows(self.canvas), self._x_axis_row(), *note]

    # Ranges

    def _find_full_range(self) -> tuple[float, float]:
        ends = [each.at(end) for each in self.placed for end in (0, -1)]
        low, high = min(ends, default=0.0), max(ends, default=1.0)
        # Half a step around a single position, or more where floats are further apart than that.
        around = max(0.5, abs(low) * 1e-9)
        return (low, high) if high - low > abs(low) * 1e-15 else (low - around, low + around)

    def _zoomed(self) -> tuple[float, float]:
        if self.view.zoom is None:
            return self.full_range
        low, high = max(self.view.zoom[0], self.full_range[0]), min(self.view.zoom[1], self.full_range[1])
        return (low, high) if high > low else self.full_range

    def _absent(self) -> str:
        without = set(range(len(self.curves))) - {each.index for each in self.placed}
        outside = []
        for each in self.placed:
            first, last = each.between(*self.x_range)
            if first == last:
                outside.append(each.curve.label)
        parts = []
        if self.placed and without:
            has_axis = self.view.x_axis not in ("epoch", "tokens")
            what = "no points" if has_axis else f"no {self.view.x_axis}"
            parts.append(f"{what}: {', '.join(self.curves[index].label for index in sorted(without))}")
        if outside and len(self.curves) > 1:
            parts.append(f"no points here: {', '.join(outside)}")
        return "; ".join(parts)

    def _visible(self, each: Placed) -> tuple[int, int]:
        # A zoomed line goes on to the neighbours outside: they count as well.
        if self.view.zoom is None:
            return 0, len(each.xs)
        first, last = each.between(*self.x_range)
        return max(0, first - 1), min(len(each.xs), last + 1)

    def _find_y_range(self, width: int) -> tuple[float, float] | None:
        if self.view.is_log:
            spans = [span for each in self.placed for span in self._spans(each, 2 * width + 2)]
            found = value_range(spans, above_zero=True)
        else:
            bands = [each.curve.series.bands.between(*self._visible(each)) for each in self.placed]
            finite = [band for band in bands if band[0] <= band[1]]
            found = (min(low for low, _ in finite), max(high for _, high in finite)) if finite else None
        if found is None:
            return None
        least = _TINY if self.view.is_log else -_HUGE
        low, high = (max(least, min(_HUGE, value)) for value in found)
        if self.view.clips:
            low, high = self._without_outliers(low, high)
        if self._scaled(low) >= self._scaled(high):
            around = abs(low) / 2 or 1.0
            low, high = (low / 2, low * 2) if self.view.is_log else (low - around, low + around)
        if self.view.clips:
            self.clipped = self._count_outside(low, high)
        return low, high

    def _without_outliers(self, low: float, high: float) -> tuple[float, float]:
        sample: list[float] = []
        for each in self.placed:
            first, last = self._visible(each)
            # An odd stride does not fall into step with what happens every so many steps.
            stride = max(1, (last - first) // _SAMPLE) | 1
            sample += filter(self.can_show, each.curve.series.values[first:last:stride])
        if len(sample) < _FEWEST:
            return low, high
        sample.sort()
        last = len(sample) - 1
        bottom, top = (
            self._scaled(sample[math.ceil(last * _LOWEST)]),
            self._scaled(sample[int(last * _HIGHEST)]),
        )
        padding = (top - bottom) * _PADDING
        if not math.isfinite(padding):
            return low, high
        bottom, top = bottom - padding, top + padding
        if self.view.is_log:
            bottom, top = 10.0 ** max(-300.0, bottom), 10.0 ** min(307.0, top)
        return max(low, bottom), min(high, top)

    def _count_outside(self, low: float, high: float) -> int:
        above = 0.0 if self.view.is_log else -math.inf
        found = 0
        for each in self.placed:
            start, end = each.between(*self.x_range)
            found += each.curve.series.bands.count_outside(start, end, low, high, above=above)
        return found

    def _spans(self, each: Placed, columns: int, *, smoothing: float = 0.0) -> list[Span]:
        series = each.curve.series
        source = series.smoothed(smoothing) if smoothing else series
        low, high = self.x_range
        return downsample(
            each.xs,
            source.values,
            source.bands,
            low=low + each.offset,
            high=high + each.offset,
            columns=max(2, columns),
        )

    # Curves

    def _draw(self, canvas: Canvas) -> None:
        smoothing = self.view.smoothing
        for each in self.placed if smoothing else ():
            self._draw_spans(canvas, each, self._spans(each, canvas.dots_x), _RAW + each.index % PAINTS + 1)
        drawn: list[tuple[Placed, list[Span]]] = []
        for each in self.placed:
            spans = self._spans(each, canvas.dots_x, smoothing=smoothing)
            self._draw_spans(canvas, each, spans, owner_of(each.index), smoothing=smoothing)
            drawn.append((each, spans))
        # Markers come last: no curve hides them.
        if len(self.curves) > 1 and not canvas.ascii_only:
            for each, spans in drawn:
                self._draw_markers(canvas, each, spans)

    def _draw_markers(self, canvas: Canvas, each: Placed, spans: Sequence[Span]) -> None:
        dot = self._dots(canvas)
        shown = [span for span in spans if self.can_show(span.last)]
        distance = max(2 * _MARKER_CELLS, canvas.dots_x // _MARKERS_ACROSS)
        # Curves have theirs at different places, so that they rarely meet.
        start = round((each.index % len(MARKERS) + 0.5) / len(MARKERS) * distance)
        for wanted in range(start, canvas.dots_x, distance):
            place = bisect_left(shown, wanted, key=lambda span: span.x)
            near = min(
                shown[max(0, place - 1) : place + 1], key=lambda span: abs(span.x - wanted), default=None
            )
            if near is not None and abs(near.x - wanted) <= distance // 2:
                canvas.marker(near.x, dot(near.last), owner_of(each.index))

    def _draw_spans(
        self, canvas: Canvas, each: Placed, spans: Sequence[Span], owner: int, *, smoothing: float = 0.0
    ) -> None:
        dot = self._dots(canvas)
        before: tuple[int, int] | None = None
        for span in self._with_edges(canvas, each, spans, smoothing) if self.view.zoom else spans:
            if span.low > span.high or (self.view.is_log and span.high <= 0):
                before = None
                continue
            top, bottom = dot(span.high), dot(span.low)
            if before and self.can_show(span.first):
                first = dot(span.first)
                if span.x - before[0] > 1:
                    canvas.line(before, (span.x, first), owner)
                    canvas.column(span.x, top, bottom, owner)
                else:
                    canvas.reach(span.x, before[1], top, bottom, owner)
            else:
                canvas.column(span.x, top, bottom, owner)
            before = (span.x, dot(span.last)) if self.can_show(span.last) else None

    def _with_edges(
        self, canvas: Canvas, each: Placed, spans: Sequence[Span], smoothing: float
    ) -> Sequence[Span]:
        # Lines that leave the zoomed part end at its edges.
        series = each.curve.series
        values = series.smoothed(smoothing).values if smoothing else series.values
        edges = []
        for x, position in ((0, self.x_range[0]), (canvas.dots_x - 1, self.x_range[1])):
            right = bisect_left(each.xs, position + each.offset)
            if any(span.x == x for span in (*spans[:1], *spans[-1:])) or not 0 < right < len(values):
                continue
            ends = values[right - 1], values[right]
            extent = each.at(right) - each.at(right - 1)
            if not all(map(self.can_show, ends)) or extent <= 0:
                continue
            share = (position - each.at(right - 1)) / extent
            value = self._unscaled(self._scaled(ends[0]) * (1 - share) + self._scaled(ends[1]) * share)
            edges.append(Span(x, value, value, value, value))
        return sorted((*spans, *edges), key=lambda span: span.x)

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

    def _unscaled(self, value: float) -> float:
        return 10.0 ** min(308.0, value) if self.view.is_log else value

    def can_show(self, value: float) -> bool:
        """Return True if the y axis can show the value."""
        return math.isfinite(value) and (value > 0 or not self.view.is_log)

    # Rows

    def _canvas_rows(self, canvas: Canvas) -> list[list[Piece]]:
        dot, dots_in_cell = self._dots(canvas), canvas.dots_y // self.height
        labels = {dot(tick.value) // dots_in_cell: tick.text for tick in self.y_ticks}
        line, ticked = ("|", "+") if self.view.ascii_only else ("│", "┤")
        rows = []
        for y in range(self.height):
            axis = pad(labels.get(y, ""), self.margin, "right") + (ticked if y in labels else line)
            pieces = [(text, paint_of(owner)) for text, owner in canvas.row(y)]
            rows.append([(axis, "axis"), *pieces])
        return rows

    def cursor_cells(self, column: int) -> str:
        """Return the characters of one column of cells, from the top, with a line where it is empty."""
        if self.canvas is None:
            return ""
        line = "|" if self.view.ascii_only else "│"
        cells = (self.canvas.cell(column, row) for row in range(self.height))
        return "".join(text if owner else line for text, owner in cells)

    def _x_ticks(self) -> list[Tick]:
        most = max(2, self.columns // 12)
        match self.view.x_axis:
            case "step":
                return integer_ticks(*self.x_range, most)
            case "relative":
                return duration_ticks(*self.x_range, most)
            case "wall":
                return clock_ticks(*self.x_range, most, self.view.zone)
            case _:
                return number_ticks(*self.x_range, most)

    def _x_axis_row(self) -> list[Piece]:
        low, high = self.x_range
        cells = ["-" if self.view.ascii_only else "─"] * self.columns
        marks = self._axis_marks()
        free_from = 0
        for tick in self._x_ticks():
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
        low, high = self.x_range
        marks: dict[int, Piece] = {}
        for each in self.placed:
            series = each.curve.series
            begins = [(step, (restart, "note")) for step in series.restarts]
            for step, mark in (*begins, *((step, ("!", "alarm")) for step in series.alerts)):
                index = min(bisect_left(series.steps, step), len(series) - 1)
                if low <= each.at(index) <= high:
                    marks[self.cell_of(each, index)] = mark
        for each in self.placed:
            series = each.curve.series
            for column in range(self.columns) if series.broken else ():
                start = bisect_left(each.xs, self.value_at(each, column - 0.5))
                end = bisect_left(each.xs, self.value_at(each, column + 0.5))
                if series.broken_between(start, end):
                    marks[column] = (broken, "alarm")
        return marks

    def cell_of(self, each: Placed, index: int) -> int:
        """Return the nearest column of cells to a point."""
        low, high = self.x_range
        share = (each.at(index) - low) / (high - low)
        return min(self.columns - 1, max(0, round(max(-1.0, min(2.0, share)) * (self.columns - 1))))

    def value_at(self, each: Placed, column: float) -> float:
        """Return the position of a column of cells among the curve's own positions."""
        low, high = self.x_range
        return low + column / (self.columns - 1) * (high - low) + each.offset


def owner_of(index: int) -> int:
    """Return the canvas owner of a curve."""
    return index % len(MARKERS) + 1


def paint_of(owner: int) -> str:
    """Return the name of the paint of an owner: `series-1`, `raw-1`, or nothing."""
    if owner > _RAW:
        return f"raw-{owner - _RAW}"
    return f"series-{(owner - 1) % PAINTS + 1}" if owner else ""
