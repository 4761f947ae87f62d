"""Interactive charts of curves, and the loss of the job under the cursor."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from msgspec import structs
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from k8s.logs import Item, LogLine
from k8s.text.sanitize import sanitize
from trainer.tfevents import Restart, ScalarCurve, ScalarSeries
from tui.charts.picture import PAINTS, Picture, PlotCurve, PlotOptions, XAxis, draw
from tui.charts.series import Series
from tui.feeds.log_points import LogPoints
from tui.keys import CHART
from tui.terminal.line_filters import lets_out_only_ascii
from tui.text.natural_order import tag_rank
from tui.widgets.bindings import bindings

__all__ = ["CurveChart", "PlotCurve", "PlotOptions"]

SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)

X_AXES: tuple[XAxis, ...] = ("step", "relative", "wall")


class CurveChart(Widget, can_focus=True):
    """One or several curves; recomputed only when points, size or options change."""

    DEFAULT_CSS = """
    CurveChart { width: 1fr; height: 1fr; }
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"curve-chart--{paint}"
        for paint in (
            *("title", "value", "axis", "note", "alarm", "cursor"),
            *(f"{kind}-{number}" for kind in ("series", "raw") for number in range(1, PAINTS + 1)),
        )
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings(CHART)

    view: reactive[PlotOptions] = reactive(PlotOptions())
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
        self._drawn = Picture([], 0)
        self._drawn_width = 0
        self._base = Style()

    def on_mount(self) -> None:
        """Use ASCII marks if the terminal filter lets only those pass."""
        # The filter would replace all of braille by one character.
        self.view = replace(self.view, ascii_only=lets_out_only_ascii(self.app))

    def set_curves(self, title: str, curves: Sequence[PlotCurve], *, empty: str = "No points yet") -> None:
        """Replace the curves."""
        self._title, self._curves = _cleaned(title, curves)
        self._empty = empty
        self.show_new_points()

    def show_new_points(self) -> None:
        """Redraw the rows that new points have changed."""
        before = self._drawn.rows
        after = self._picture().rows
        for y in range(max(len(before), len(after))):
            if before[y : y + 1] != after[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor; it first appears at the end opposite to its direction."""
        last = self._picture().columns - 1
        if last < 0:
            return
        cursor = self.view.cursor
        if cursor is None:
            cursor = last + 1 if columns < 0 else -1
        self.view = replace(self.view, cursor=max(0, min(last, cursor + columns)))

    def action_smooth(self, steps: int) -> None:
        """Change the smoothing by steps."""
        nearest = min(range(len(SMOOTHINGS)), key=lambda place: abs(SMOOTHINGS[place] - self.view.smoothing))
        place = max(0, min(len(SMOOTHINGS) - 1, nearest + steps))
        self.view = replace(self.view, smoothing=SMOOTHINGS[place])

    def action_log(self) -> None:
        """Toggle the logarithmic scale."""
        self.view = replace(self.view, is_log=not self.view.is_log)

    def action_x_axis(self) -> None:
        """Cycle the x axis: step, elapsed time, time of day."""
        following = X_AXES[(X_AXES.index(self.view.x_axis) + 1) % len(X_AXES)]
        self.view = replace(self.view, x_axis=following)

    def action_reset(self) -> None:
        """Reset the options: by step, no smoothing, no cursor."""
        self.view = PlotOptions(ascii_only=self.view.ascii_only, zone=self.view.zone)

    def render_line(self, y: int) -> Strip:
        """Render one row."""
        rows, base = self._picture().rows, self._base
        pieces = rows[y] if y < len(rows) else ()
        segments = [Segment(text, base + self._style(paint) if paint else base) for text, paint in pieces]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render rows, with a single lookup of the base style."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def _style(self, paint: str) -> Style:
        name = f"curve-chart--{paint}"
        style = self.get_component_rich_style(name, partial=True)
        colour = self.get_component_styles(name).color
        if colour.a == 1 or colour.ansi is not None:
            return style
        # A Rich style has no transparency: lay the colour on the background here.
        return style + Style(color=(self.background_colors[1] + colour).rich_color)

    def _picture(self) -> Picture:
        width, height = self.size
        if width != self._drawn_width:
            self._keep_cursor(width)
        points = [(curve.label, id(curve.series), curve.series.version) for curve in self._curves]
        wanted = (width, height, self.view, self._title, self._empty, *points)
        if wanted != self._drawn_as:
            self._drawn = draw(self._title, self._curves, width, height, self.view, empty=self._empty)
            self._drawn_as, self._drawn_width = wanted, width
        return self._drawn

    def _keep_cursor(self, width: int) -> None:
        columns = self._drawn.columns
        if self.view.cursor is not None and columns:
            share = (columns + width - self._drawn_width) / columns
            self.set_reactive(
                CurveChart.view, replace(self.view, cursor=max(0, round(self.view.cursor * share)))
            )


def _cleaned(title: str, curves: Sequence[PlotCurve]) -> tuple[str, list[PlotCurve]]:
    return sanitize(title), [PlotCurve(sanitize(curve.label), curve.series) for curve in curves]


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
    """Return the log's name of a tag: `loss` for `train/loss`."""
    return tag.rpartition("/")[2]
