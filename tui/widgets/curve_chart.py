"""Interactive charts of curves, and the loss of the job under the cursor."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from msgspec import structs
from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip

from k8s.logs import Item, LogLine
from k8s.text.sanitize import sanitize
from trainer.tfevents import Restart, ScalarCurve, ScalarSeries
from tui.runs.log_points import LogPoints
from tui.runs.picture import X_AXES, Drawing, Picture, Piece, PlotCurve, PlotOptions, XAxis
from tui.runs.series import Series
from tui.settings.keys import CHART
from tui.terminal.line_filters import lets_out_only_ascii
from tui.text.natural_order import tag_rank
from tui.widgets.bindings import bindings
from tui.widgets.painted import PaintedWidget, palette_of

__all__ = ["CurveChart", "PlotCurve", "PlotOptions"]

SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)

# The smallest part of the x axis that can be zoomed to.
LEAST_ZOOM = 1e-6


class CurveChart(PaintedWidget, can_focus=True):
    """Chart of one or several curves, drawn again when points, size or options change.

    Moving the cursor updates only its column, the title and the legend.
    """

    DEFAULT_CSS = """
    CurveChart { width: 1fr; height: 1fr; }
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings(CHART)

    view: reactive[PlotOptions] = reactive(PlotOptions(), repaint=False)
    """Plot options; assign a new value to change them."""

    def __init__(
        self,
        title: str = "",
        curves: Sequence[PlotCurve] = (),
        *,
        view: PlotOptions | None = None,
        empty: str = "No points yet",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Create a chart.

        Args:
            title: Title, such as the tag `train/loss`.
            curves: The curves; a single one shows its last value in the title, several get a legend.
            view: Initial plot options.
            empty: Text without points.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self.set_reactive(CurveChart.view, view or PlotOptions())
        self._title, self._curves = _cleaned(title, curves)
        self._empty = empty
        self._drawn_as: tuple[object, ...] = ()
        self._drawing: Drawing | None = None
        self._drawn = Picture([], 0, (0.0, 1.0), (0.0, 1.0))
        self._drawn_cursor: int | None = None
        self._drawn_width = 0
        self._base = Style()
        self._styles: dict[str, Style] = {}
        self._rendered: Picture | None = None  # while rows are rendered
        # The row, its strip without the cursor, and the first cell of each segment.
        self._strips: dict[int, tuple[list[Piece], Strip, list[int]]] = {}

    def on_mount(self) -> None:
        """Use ASCII marks if the terminal filter lets only those pass."""
        # The filter would replace all of braille by one character.
        self.view = replace(self.view, ascii_only=lets_out_only_ascii(self.app))

    def set_curves(self, title: str, curves: Sequence[PlotCurve], *, empty: str = "No points yet") -> None:
        """Replace the curves."""
        self._title, self._curves = _cleaned(title, curves)
        self._empty = empty
        self.show_new_points()

    def watch_view(self, before: PlotOptions, after: PlotOptions) -> None:
        """Redraw; a moved cursor changes only its column, the title and the legend."""
        if replace(before, cursor=after.cursor) != after:
            self.refresh()
        else:
            self.show_new_points()

    def show_new_points(self) -> None:
        """Redraw the rows that new points or another cursor have changed."""
        before, after = self._drawn, self._picture()
        if before is after:
            return
        for y in range(max(len(before.still), len(after.still))):
            if before.still[y : y + 1] != after.still[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))
        for picture in (before, after):
            if picture.cursor_cells:
                self.refresh(Region(picture.cursor_x, picture.cursor_y, 1, len(picture.cursor_cells)))

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor; it first appears at the end opposite to its direction."""
        picture = self._picture()
        last = picture.columns - 1
        if last < 0:
            return
        cursor = self.view.cursor
        if cursor is None:
            cursor = last + 1 if columns < 0 else -1
        wanted = cursor + columns
        cursor = max(0, min(last, wanted))
        zoom = self.view.zoom
        if zoom is not None and last and wanted != cursor:
            zoom = _inside(picture, (wanted - cursor) * (zoom[1] - zoom[0]) / last)
        self.view = replace(self.view, cursor=cursor, zoom=zoom)

    def action_zoom(self, factor: float) -> None:
        """Show a part of the x axis around the cursor, or around its end; `factor` is the new width."""
        picture = self._picture()
        last = picture.columns - 1
        if last < 1:
            return
        cursor = self.view.cursor
        low, high = picture.x_range
        share = (last if cursor is None else cursor) / last
        at, extent = low + share * (high - low), (high - low) * factor
        first, final = picture.full_range
        if extent >= final - first:
            zoom = None
            start, extent = first, final - first
        elif extent < (final - first) * LEAST_ZOOM:
            return
        else:
            start = max(first, min(final - extent, at - share * extent))
            zoom = (start, start + extent)
        if cursor is not None:
            cursor = max(0, min(last, round((at - start) / extent * last)))
        self.view = replace(self.view, cursor=cursor, zoom=zoom)

    def action_clip(self) -> None:
        """Toggle the fit of the y axis to all but the outliers."""
        self.view = replace(self.view, clips=not self.view.clips)

    def action_smooth(self, steps: int) -> None:
        """Change the smoothing by steps."""
        nearest = min(range(len(SMOOTHINGS)), key=lambda place: abs(SMOOTHINGS[place] - self.view.smoothing))
        place = max(0, min(len(SMOOTHINGS) - 1, nearest + steps))
        self.view = replace(self.view, smoothing=SMOOTHINGS[place])

    def action_log(self) -> None:
        """Toggle the logarithmic scale."""
        self.view = replace(self.view, is_log=not self.view.is_log)

    def action_x_axis(self) -> None:
        """Cycle the x axis: step, elapsed time, time of day, and what the runs count besides."""
        place = X_AXES.index(self.view.x_axis) + 1
        following = (*X_AXES[place:], *X_AXES[:place])
        axis = next(axis for axis in following if axis in X_AXES[:3] or self._has_axis(axis))
        self.view = replace(self.view, x_axis=axis, zoom=None)

    def _has_axis(self, axis: XAxis) -> bool:
        return any(len(curve.positions(axis)) for curve in self._curves)

    def action_reset(self) -> None:
        """Reset the options: all of it by step, no smoothing, no cursor."""
        self.view = PlotOptions(ascii_only=self.view.ascii_only, zone=self.view.zone)

    def render_line(self, y: int) -> Strip:
        """Render one row."""
        picture = self._rendered or self._picture()
        row = picture.still[y] if y < len(picture.still) else []
        known = self._strips.get(y)
        if known is None or known[0] is not row:
            strip = Strip(self._segments(row)).adjust_cell_length(self.size.width, self._base)
            known = self._strips[y] = row, strip, [0, *accumulate(len(text) for text, *_ in strip)]
        _, strip, starts = known
        x, at = picture.cursor_x, y - picture.cursor_y
        if not 0 <= at < len(picture.cursor_cells):
            return strip
        # Cells of the plot are one character wide: the cursor splits a segment without measuring the others.
        place = bisect_right(starts, x) - 1
        segments = list(strip)
        text, style, _ = segments[place]
        split = x - starts[place]
        segments[place : place + 1] = [
            Segment(text[:split], style),
            *self._segments([(picture.cursor_cells[at], "cursor")]),
            Segment(text[split + 1 :], style),
        ]
        return Strip(segments, self.size.width)

    def _segments(self, row: Sequence[Piece]) -> list[Segment]:
        base, styles = self._base, self._styles
        for _, paint in row:
            if paint not in styles:
                styles[paint] = base + self._style(paint) if paint else base
        return [Segment(text, styles[paint]) for text, paint in row]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render rows, with a single lookup of the base style."""
        if self._base != self.rich_style:
            self._forget_styles()
        self._rendered = self._picture()
        strips = super().render_lines(crop)
        self._rendered = None
        return strips

    def notify_style_update(self) -> None:
        """Look up the styles again, as after a change of theme."""
        super().notify_style_update()
        self._forget_styles()

    def _forget_styles(self) -> None:
        self._base = self.rich_style
        self._styles.clear()
        self._strips.clear()

    def _style(self, paint: str) -> Style:
        style, colour = palette_of(self.app).look(f"curve-chart--{paint}")
        if colour.a == 1 or colour.ansi is not None:
            return style
        # A Rich style has no transparency: lay the colour on the background here.
        return style + Style(color=(self.background_colors[1] + colour).rich_color)

    def _picture(self) -> Picture:
        width, height = self.size
        if width != self._drawn_width:
            self._keep_cursor(width)
        points = [(curve.label, curve.version(self.view.x_axis)) for curve in self._curves]
        view = replace(self.view, cursor=None)
        wanted = (width, height, view, self._title, self._empty, *points)
        is_new = wanted != self._drawn_as or self._drawing is None
        if is_new:
            self._drawing = Drawing(self._title, self._curves, width, height, view, self._empty)
            self._drawn_as, self._drawn_width = wanted, width
            self._strips.clear()
        if self._drawing is not None and (is_new or self.view.cursor != self._drawn_cursor):
            self._drawn = self._drawing.picture(self.view.cursor)
            self._drawn_cursor = self.view.cursor
        return self._drawn

    def _keep_cursor(self, width: int) -> None:
        columns = self._drawn.columns
        if self.view.cursor is not None and columns:
            share = (columns + width - self._drawn_width) / columns
            self.set_reactive(
                CurveChart.view, replace(self.view, cursor=max(0, round(self.view.cursor * share)))
            )


def _cleaned(title: str, curves: Sequence[PlotCurve]) -> tuple[str, list[PlotCurve]]:
    return sanitize(title), [replace(curve, label=sanitize(curve.label)) for curve in curves]


def _inside(picture: Picture, moved: float) -> tuple[float, float]:
    # The visible part of the x axis moved, but not over its ends.
    (low, high), (first, last) = picture.x_range, picture.full_range
    moved = max(first - low, min(last - high, moved))
    return low + moved, high + moved


class LossChart(CurveChart, can_focus=False):
    """The loss, or the first other scalar in the log."""

    def __init__(self) -> None:
        super().__init__()
        self._history: ScalarCurve | None = None
        self._points = LogPoints()
        self._series = Series()
        self._tag = ""

    @property
    def has_points(self) -> bool:
        """True if there is anything to draw."""
        return self._history is not None or bool(self._points.series)

    def clear(self, history: ScalarCurve | None) -> None:
        """Drop all points except the given history."""
        self._points, self._series, self._tag = LogPoints(), Series(), ""
        self._history = history
        if self.has_points:
            self.draw()
        else:
            self.set_curves("", [])

    def set_history(self, curve: ScalarCurve | None) -> None:
        """Set the curve from event files; log points count only after its end."""
        if curve is not self._history:
            self._history = curve
            self.draw()

    def add_lines(self, items: Sequence[Item]) -> list[bytes]:
        """Parse more log lines; return their texts, newest first. Call `draw` afterwards."""
        lines = [item for item in items if isinstance(item, LogLine)]
        # Whichever rank is chosen, its lines count: there are no others.
        self._points.add(
            structs.replace(line, rank=None) if line.rank is not None else line for line in lines
        )
        return [line.text for line in reversed(lines)]

    def draw(self) -> None:
        """Draw the current points."""
        if not self.has_points:
            return
        history, lines = self._history, self._points.series
        if history is None:
            tag = min(lines, key=tag_rank)
            points = lines[tag]
            drawn: _Drawn = points.steps, points.wall_times, points.values, points.restarts
        else:
            tag = history.tag
            drawn = _continued(history, lines.get(_name_of(tag), ScalarSeries()))
        if tag != self._tag:
            self._tag, self._series = tag, Series()
        steps, wall_times, values, restarts = drawn
        self._series.update(steps, wall_times, values, [mark.step for mark in restarts])
        self.set_curves(tag, [PlotCurve("", self._series)])


# Steps, wall times, values and restarts.
_Drawn = tuple["array[int]", "array[float]", "array[float]", Sequence[Restart]]


def _continued(curve: ScalarCurve, lines: ScalarSeries) -> _Drawn:
    first = bisect_right(lines.steps, curve.steps[-1])
    steps = curve.steps + lines.steps[first:]
    wall_times = curve.wall_times + lines.wall_times[first:]
    return steps, wall_times, curve.values + lines.values[first:], curve.restarts


def _name_of(tag: str) -> str:
    return tag.rpartition("/")[2]
