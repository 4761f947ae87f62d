"""The loss of the job under the cursor: from its event files, as far as they were read, then from its log."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from msgspec.structs import replace

from k8s.logs import Item, LogLine
from trainer.tfevents import Restart, ScalarCurve, ScalarSeries
from tui.charts.series import Series
from tui.feeds.log_points import LogPoints
from tui.text.natural_order import tag_key
from tui.widgets.curve_chart import CurveChart, PlotCurve


class LossChart(CurveChart, can_focus=False):
    """The loss, or whatever else comes first in the lines."""

    def __init__(self) -> None:
        """Make an empty chart."""
        super().__init__()
        self._history: ScalarCurve | None = None
        self._points = LogPoints()
        self._series = Series()
        self._tag = ""

    @property
    def has_points(self) -> bool:
        """Whether there is anything to draw."""
        return self._history is not None or bool(self._points.series)

    def clear(self, history: ScalarCurve | None) -> None:
        """Forget all points but those of a curve from event files, if there is one."""
        self._points, self._series, self._tag = LogPoints(), Series(), ""
        self._history = history
        if self.has_points:
            self.draw()
        else:
            self.set_curves("", [])

    def set_history(self, curve: ScalarCurve | None) -> None:
        """Begin with a curve from event files; lines count only from where it ends."""
        if curve is not self._history:
            self._history = curve
            self.draw()

    def add_lines(self, items: Sequence[Item]) -> list[bytes]:
        """Take the points of further lines, see `draw`; return these lines, the last one first."""
        lines = [item for item in items if isinstance(item, LogLine)]
        # Whichever rank is chosen, its lines count: there are no others.
        self._points.add(replace(line, rank=None) if line.rank is not None else line for line in lines)
        return [line.text for line in reversed(lines)]

    def draw(self) -> None:
        """Draw the points that there are now."""
        if not self.has_points:
            return
        history, lines = self._history, self._points.series
        if history is None:
            tag = min(lines, key=tag_key)
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


_Drawn = tuple["array[int]", "array[float]", "array[float]", Sequence[Restart]]
"""Steps, wall times, values, and where the steps went back."""


def _continued(curve: ScalarCurve, lines: ScalarSeries) -> _Drawn:
    """Return the points of a curve from event files, and those after them that the log tells."""
    first = bisect_right(lines.steps, curve.steps[-1])
    steps = curve.steps + lines.steps[first:]
    wall_times = curve.wall_times + lines.wall_times[first:]
    return steps, wall_times, curve.values + lines.values[first:], curve.restarts


def _name_of(tag: str) -> str:
    """Return what a log calls a tag of event files: `loss` for `train/loss`."""
    return tag.rpartition("/")[2]
