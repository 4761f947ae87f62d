"""A chart of curves that is read and steered by keyboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from k8s.text.sanitize import sanitize
from tui.charts.picture import Picture, draw
from tui.charts.plot_options import PAINTS, PlotCurve, PlotOptions, XAxis
from tui.keys import CHART
from tui.terminal.line_filters import lets_out_only_ascii
from tui.widgets.bindings import bindings

__all__ = ["CurveChart", "PlotCurve", "PlotOptions"]

SMOOTHINGS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""The weights that `+` and `-` step through."""

X_AXES: tuple[XAxis, ...] = ("step", "relative", "wall")
"""The axes that `x` goes round."""


class CurveChart(Widget, can_focus=True):
    """One or several curves over each other; drawn anew only when points, size or view changed."""

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
    """How the curves are looked at; assign another to change it."""

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
        """Make a chart.

        Args:
            title: What is drawn, such as the tag `train/loss`.
            curves: The lines; one alone has its last value in the title, several have a legend.
            view: How to look at them at first.
            empty: What to say while there is no point.
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
        """Draw with ASCII marks where nothing else is let out: all of braille would become one of them."""
        self.view = replace(self.view, ascii_only=lets_out_only_ascii(self.app))

    def set_curves(self, title: str, curves: Sequence[PlotCurve], *, empty: str = "No points yet") -> None:
        """Show other curves."""
        self._title, self._curves = _cleaned(title, curves)
        self._empty = empty
        self.show_new_points()

    def show_new_points(self) -> None:
        """Draw what was added to the series; rows that look the same are not sent again."""
        before = self._drawn.rows
        after = self._picture().rows
        for y in range(max(len(before), len(after))):
            if before[y : y + 1] != after[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor; at first it appears at the end it comes from."""
        last = self._picture().columns - 1
        if last < 0:
            return
        cursor = self.view.cursor
        if cursor is None:
            cursor = last + 1 if columns < 0 else -1
        self.view = replace(self.view, cursor=max(0, min(last, cursor + columns)))

    def action_smooth(self, steps: int) -> None:
        """Go to the next stronger or weaker smoothing."""
        nearest = min(range(len(SMOOTHINGS)), key=lambda place: abs(SMOOTHINGS[place] - self.view.smoothing))
        place = max(0, min(len(SMOOTHINGS) - 1, nearest + steps))
        self.view = replace(self.view, smoothing=SMOOTHINGS[place])

    def action_log(self) -> None:
        """Count the vertical axis in powers of ten, or no longer."""
        self.view = replace(self.view, is_log=not self.view.is_log)

    def action_x_axis(self) -> None:
        """Count steps, then time since the start, then the time of day."""
        following = X_AXES[(X_AXES.index(self.view.x_axis) + 1) % len(X_AXES)]
        self.view = replace(self.view, x_axis=following)

    def action_reset(self) -> None:
        """Look at the curves as at first: by step, unsmoothed, without cursor."""
        self.view = PlotOptions(ascii_only=self.view.ascii_only, zone=self.view.zone)

    def render_line(self, y: int) -> Strip:
        """Give one row of the chart in the colours of the theme."""
        rows, base = self._picture().rows, self._base
        pieces = rows[y] if y < len(rows) else ()
        segments = [Segment(text, base + self._style(paint) if paint else base) for text, paint in pieces]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw some rows, looking up the style below them all only once."""
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
        """Move the cursor to where its place in the curve will be at another width."""
        columns = self._drawn.columns
        if self.view.cursor is not None and columns:
            share = (columns + width - self._drawn_width) / columns
            self.set_reactive(
                CurveChart.view, replace(self.view, cursor=max(0, round(self.view.cursor * share)))
            )


def _cleaned(title: str, curves: Sequence[PlotCurve]) -> tuple[str, list[PlotCurve]]:
    return sanitize(title), [PlotCurve(sanitize(curve.label), curve.series) for curve in curves]
