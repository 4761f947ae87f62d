"""One chart as rows of text: title, legend, curves, axes, and the reading at the cursor.

Text comes in pieces, each with the name of its paint (`title`, `axis`, `note`, `alarm`,
`cursor`, `series-1`, `raw-1`, or empty), so that widgets can colour it and tests can read it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tui.runs.braille import MARKERS, Canvas
from tui.runs.plot import (
    X_AXES,
    Piece,
    Placed,
    Plot,
    PlotCurve,
    PlotOptions,
    StepAxis,
    XAxis,
    owner_of,
    paint_of,
)
from tui.text.cells import cell_len, elide_middle, head
from tui.text.format import NOTHING, count, duration, number, plural, si
from tui.text.natural_order import tell_apart

__all__ = [
    "X_AXES", "Drawing", "Picture", "Piece", "PlotCurve", "PlotOptions", "StepAxis", "XAxis",
    "draw",
]  # fmt: skip

_ASCII = str.maketrans({"…": "~", NOTHING: "-"})
_SWATCH_CELLS = 3
# Cells of a value in the legend; a longer one takes them from its label.
_VALUE_CELLS = 6
# Swatch, label and value, with a space between them.
_ENTRY_CELLS = _SWATCH_CELLS + _VALUE_CELLS + 2
_LEAST_LABEL_CELLS = 4
_COUNTED: dict[XAxis, str] = {"epoch": "epochs", "tokens": "tokens"}
_GAP = 2


class Picture(msgspec.Struct, frozen=True):
    """A drawn chart."""

    still: list[list[Piece]]
    """One list of pieces per row, without the cursor; rows may be shorter than the width."""
    columns: int
    """Cells between the axes: the cursor may be on 0 to `columns - 1`."""
    x_range: tuple[float, float]
    full_range: tuple[float, float]
    cursor_x: int = 0
    cursor_y: int = 0
    cursor_cells: str = ""
    """One character per row of the cursor; empty for no cursor."""

    @property
    def rows(self) -> list[list[Piece]]:
        """Return the rows with the cursor."""
        rows = list(self.still)
        for y, mark in enumerate(self.cursor_cells, self.cursor_y):
            if y < len(rows):
                rows[y] = _with_mark(rows[y], self.cursor_x, mark)
        return rows


def _with_mark(row: list[Piece], x: int, mark: str) -> list[Piece]:
    split: list[Piece] = []
    start = 0
    for text, paint in row:
        at = x - start
        if 0 <= at < len(text):
            split += [(text[:at], paint), (mark, "cursor"), (text[at + 1 :], paint)]
        else:
            split.append((text, paint))
        start += len(text)
    return split


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
    return Drawing(title, curves, width, height, view, empty).picture(view.cursor)


class Drawing:
    """A chart drawn once, from which a picture with any cursor follows without reading all points again."""

    def __init__(
        self, title: str, curves: Sequence[PlotCurve], width: int, height: int, view: PlotOptions, empty: str
    ) -> None:
        """Draw all but the cursor; the arguments are those of `draw`."""
        self._title = title
        self._empty = empty
        self._curves = curves
        self._width = max(0, width)
        self._height = max(0, height)
        self._view = view
        has_legend = len(curves) > 1 or any(curve.is_named for curve in curves)
        self._legend = _Legend(curves, self._width, self._height) if has_legend else None
        used_rows = 1 + (self._legend.rows if self._legend else 0)
        self._plot = Plot(curves, self._width, max(0, self._height - used_rows), view)
        self._placed = {each.index: each for each in self._plot.placed}
        self._captions = self._still_captions()
        self._below = [self._cropped(row) for row in self._plot.rows or self._placeholder()]

    def picture(self, cursor: int | None) -> Picture:
        """Return the chart read at a column of cells; None reads the last points."""
        plot, width = self._plot, self._width
        if plot.canvas is None:
            cursor = None
        readings = [self._reading(index, cursor) for index in range(len(self._curves))]
        top = [self._title_row(readings, cursor)]
        if self._legend is not None:
            top += self._legend.draw(readings, ascii_only=self._view.ascii_only)
        still = [*(self._cropped(row) for row in top), *self._below][: self._height]
        picture = Picture(still, plot.columns, plot.x_range, plot.full_range)
        x = plot.margin + 1 + (cursor or 0)
        if cursor is None or not 0 <= cursor < plot.columns or x >= width:
            return picture
        return Picture(
            still, plot.columns, plot.x_range, plot.full_range, x, len(top), plot.cursor_cells(cursor)
        )

    def _cropped(self, row: list[Piece]) -> list[Piece]:
        left, pieces = self._width, []
        for text, paint in row:
            visible = head(text.translate(_ASCII) if self._view.ascii_only else text, left)
            left -= cell_len(visible)
            if visible:
                pieces.append((visible, paint))
        return pieces

    def _placeholder(self) -> list[list[Piece]]:
        plot = self._plot
        if not any(len(curve.series) for curve in self._curves):
            text = elide_middle(self._empty, self._width)
        elif not plot.placed:
            text = f"No run counts its {_COUNTED.get(self._view.x_axis, 'steps')}"
        elif plot.y_range is None and self._view.is_log:
            text = "Nothing above zero to show on a log axis"
        elif plot.y_range is None:
            is_zoomed = plot.x_range != plot.full_range
            text = (
                "No finite value in this part; 0 shows all" if is_zoomed else "Every value is nan or infinite"
            )
        else:
            text = ""
        middle = max(0, plot.height // 2)
        return [[] for _ in range(middle)] + [[(text.center(self._width).rstrip(), "note")]]

    # Words

    def _nearest(self, placed: Placed, cursor: int | None) -> int | None:
        # The index of the point nearest to the cursor; the last point without a cursor.
        plot, xs = self._plot, placed.xs
        if cursor is None or plot.columns < 2:
            return len(xs) - 1
        wanted = plot.value_at(placed, cursor)
        after = bisect_left(xs, wanted)
        near = [index for index in (after - 1, after) if 0 <= index < len(xs)]
        best = min(near, key=lambda index: abs(xs[index] - wanted))
        is_beyond = not xs[0] <= wanted <= xs[-1] and abs(plot.cell_of(placed, best) - cursor) > 1
        return None if is_beyond else best

    def _reading(self, index: int, cursor: int | None) -> Piece:
        placed = self._placed.get(index)
        point = self._nearest(placed, cursor) if placed is not None else None
        if placed is None or point is None:
            return number(None), "note"
        series, smoothing = placed.curve.series, self._view.smoothing
        value = series.values[point]
        text = number(value)
        if smoothing and math.isfinite(value) and self._legend is None:
            text += f" ~{number(series.smoothed(smoothing).values[point])}"
        if not math.isfinite(value):
            return text, "alarm"
        return text, "cursor" if cursor is not None else "value"

    def _place(self, cursor: int) -> str:
        for placed in self._plot.placed:
            point = self._nearest(placed, cursor)
            if point is None:
                continue
            match self._view.x_axis:
                case "step":
                    return f"step {count(placed.curve.series.steps[point])}"
                case "relative":
                    return f"after {duration(placed.at(point))}"
                case "wall":
                    return f"{datetime.fromtimestamp(placed.at(point), self._view.zone):%b %d %H:%M:%S}"
                case "epoch":
                    return f"epoch {placed.at(point):.4g}"
                case _:
                    return f"{si(placed.at(point))} tokens"
        return ""

    def _still_captions(self) -> list[Piece]:
        view, plot = self._view, self._plot
        captions: list[Piece] = []
        if plot.clipped:
            captions.append((f"{count(plot.clipped)} outliers beyond the axis", "alarm"))
        elif view.clips:
            captions.append(("no outliers", "note"))
        if view.x_axis in ("epoch", "tokens"):
            captions.append((f"by {view.x_axis}", "note"))
        if plot.x_range != plot.full_range:
            captions.append(("zoom", "note"))
        if view.smoothing:
            captions.append((f"smooth {view.smoothing:g}", "note"))
        if view.is_log:
            captions.append((self._log_caption(), "note"))
        return captions

    def _log_caption(self) -> str:
        bands = [each.curve.series.bands.between(0, len(each.curve.series)) for each in self._plot.placed]
        return "log, values up to 0 left out" if any(low <= 0 for low, _ in bands) else "log"

    def _broken_caption(self) -> list[Piece]:
        broken = [curve for curve in self._curves if len(curve.series.broken)]
        if not broken:
            return []
        text = f"{count(sum(len(curve.series.broken) for curve in broken))} nan or inf"
        if len(self._curves) > 1:
            text += f" in {broken[0].label}" if len(broken) == 1 else f" in {plural(len(broken), 'run')}"
        return [(text, "alarm")]

    def _title_row(self, readings: Sequence[Piece], cursor: int | None) -> list[Piece]:
        captions = self._broken_caption()
        if cursor is not None and (place := self._place(cursor)):
            captions.append((place, "cursor"))
        captions += self._captions
        left: list[Piece] = []
        if self._legend is None and self._placed:
            left = [("  ", ""), readings[0]]
        used_cells = sum(cell_len(text) for text, _ in left)
        left.insert(0, (elide_middle(self._title, max(0, self._width - used_cells - 1)), "title"))
        used = sum(cell_len(text) for text, _ in left)
        right: list[Piece] = []
        for text, paint in captions:
            if used + sum(cell_len(shown) for shown, _ in right) + cell_len(text) + 3 <= self._width:
                right += [("  ", ""), (text, paint)]
        space = self._width - used - sum(cell_len(text) for text, _ in right)
        return [*left, (" " * space, ""), *right] if right else left


class _Legend:
    """Labels and values of all curves, on as few rows as show the labels in full, or else shortened."""

    def __init__(self, curves: Sequence[PlotCurve], width: int, height: int) -> None:
        self._labels = [curve.label for curve in curves]
        entries = [_ENTRY_CELLS + cell_len(label) for label in self._labels]
        self._shown = amount = len(curves)
        self.rows = 1
        if sum(entries) + _GAP * (amount - 1) <= width:
            self._slots = entries
            self._columns = amount
            return
        # Rows of the legend that leave most of the chart to the curves; beyond them labels shrink first.
        few, most = max(1, height // 4), max(1, height // 2)
        self.rows = next(
            (rows for rows in range(1, few + 1) if self._slot(rows, width) >= max(entries)),
            next(
                (
                    rows
                    for rows in range(few, most + 1)
                    if self._slot(rows, width) >= _ENTRY_CELLS + _LEAST_LABEL_CELLS
                ),
                0,
            ),
        )
        if self.rows:
            self._columns = -(-amount // self.rows)
            slot = self._slot(self.rows, width)
        else:
            slot = min(width, _ENTRY_CELLS + _LEAST_LABEL_CELLS)
            self._columns = max(1, (width + _GAP) // (slot + _GAP))
            self.rows = most
            # The last slot counts those that are not shown.
            self._shown = max(0, self.rows * self._columns - 1)
        self.rows = min(self.rows, -(-amount // self._columns))
        self._slots = [min(slot, max(entries))] * amount
        if max(entries) > slot:
            self._labels = tell_apart(self._labels)

    def _slot(self, rows: int, width: int) -> int:
        columns = -(-len(self._labels) // rows)
        return (width + _GAP) // columns - _GAP

    def draw(self, readings: Sequence[Piece], *, ascii_only: bool) -> list[list[Piece]]:
        """Return the rows; `readings` are the values of the curves."""
        rows: list[list[Piece]] = [[] for _ in range(self.rows)]
        shown = list(enumerate(zip(self._labels, readings, self._slots, strict=True)))[: self._shown]
        for index, (label, reading, slot) in shown:
            label_cells = max(0, slot - _SWATCH_CELLS - 2 - max(_VALUE_CELLS, cell_len(reading[0])))
            text = f" {elide_middle(label, label_cells)} "
            used_cells = _SWATCH_CELLS + cell_len(text) + cell_len(reading[0])
            rows[index // self._columns] += [
                ("  " if index % self._columns else "", ""),
                (_swatch(index, ascii_only=ascii_only), paint_of(owner_of(index))),
                (text, ""),
                reading,
                (" " * (slot - used_cells), ""),
            ]
        if hidden := len(self._labels) - len(shown):
            rows[-1] += [(f"{'  ' if rows[-1] else ''}+{hidden} more", "note")]
        return rows


def _swatch(index: int, *, ascii_only: bool) -> str:
    swatch = Canvas(_SWATCH_CELLS, 1, ascii_only=ascii_only)
    for x in range(swatch.dots_x):
        swatch.column(x, swatch.dots_y // 2, swatch.dots_y // 2, owner_of(index))
    if not ascii_only:
        swatch.marker(2 * (_SWATCH_CELLS // 2), 0, index % len(MARKERS) + 1)
    return "".join(text for text, _ in swatch.row(0))
