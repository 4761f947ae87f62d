"""The loss of the job under the cursor, as far as the lines of its log that are shown tell it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from k8s.logs import Item, LogLine
from tui.charts.series import Series
from tui.feeds.log_points import LogPoints
from tui.text.natural_order import tag_key
from tui.widgets.curve_chart import CurveChart, PlotCurve

RECENT = 20
"""Newest lines that are returned, for what else they say."""


class LossChart(CurveChart, can_focus=False):
    """The loss, or whatever else comes first in the lines."""

    def __init__(self) -> None:
        """Make an empty chart."""
        super().__init__()
        self._points = LogPoints()
        self._series = Series()
        self._tag = ""

    @property
    def has_points(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self._points.series)

    def clear(self) -> None:
        """Forget all points."""
        self._points, self._series, self._tag = LogPoints(), Series(), ""
        self.set_curves("", [])

    def add_lines(self, items: Sequence[Item]) -> list[bytes]:
        """Draw the points of further lines; return the newest of these lines, the last one first."""
        lines = [item for item in items if isinstance(item, LogLine)]
        # Whichever rank is chosen, its lines count: there are no others.
        if self._points.add(replace(line, rank=None) if line.rank is not None else line for line in lines):
            self._draw()
        return [line.text for line in lines[: -RECENT - 1 : -1]]

    def _draw(self) -> None:
        tag = min(self._points.series, key=tag_key)
        if tag != self._tag:
            self._tag, self._series = tag, Series()
        points = self._points.series[tag]
        restarts = [mark.step for mark in points.restarts]
        self._series.update(points.steps, points.wall_times, points.values, restarts)
        self.set_curves(tag, [PlotCurve("", self._series)])
