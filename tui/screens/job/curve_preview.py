"""One curve of a job beside its instances: how its loss goes."""

from __future__ import annotations

from tui.charts.series import Series
from tui.feeds.curve_feed import CurveFeed
from tui.text.natural_order import tag_key
from tui.widgets.curve_chart import CurveChart, PlotCurve


class CurvePreview(CurveChart):
    """The loss, or whatever else a job writes first; not there while there is nothing to draw."""

    def __init__(self, *, id: str, classes: str) -> None:
        """Make an empty chart."""
        super().__init__(id=id, classes=classes)
        self._series_by_run: dict[tuple[str, str, str], Series] = {}
        self.has_points = False
        """Whether there is anything to draw."""

    @property
    def is_shown(self) -> bool:
        """Whether it has a place on the screen, or would have one if no other pane was alone."""
        return self.has_points and self.screen.has_class("-wide")

    def take(self, feed: CurveFeed) -> None:
        """Draw what a feed has read by now."""
        found = [curve for curve in feed.curves() if len(curve)]
        self.has_points = bool(found)
        self.screen.set_class(self.has_points, "-charted")
        if not found:
            return
        tag = min((curve.tag for curve in found), key=tag_key)
        lines = []
        for curve in found:
            if curve.tag == tag:
                key = (curve.run, curve.tag, "" if feed.is_from_log else curve.writer)
                series = self._series_by_run.setdefault(key, Series())
                restarts = [mark.step for mark in curve.restarts]
                series.update(curve.steps, curve.wall_times, curve.values, restarts)
                lines.append(PlotCurve(curve.run, series))
        self.set_curves(f"{tag} from log lines" if feed.is_from_log else tag, lines)
