"""Every scalar that a job writes, drawn as it grows: `loss` first, other losses, then the rest by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.events import DescendantFocus
from textual.widgets import Label

from k8s.kinds import JobRef
from tui.charts.series import Series
from tui.feeds.curve_feed import LOG_HINT, CurveFeed
from tui.screens.base.view import View
from tui.text.filter_query import matcher
from tui.text.format import plural
from tui.text.natural_order import tag_key
from tui.widgets.curve_chart import CurveChart, PlotCurve

LEAST_ROWS = 10
"""Lines that a chart needs, with its frame, to say anything."""


class CurvesView(View):
    """The charts of one job."""

    CSS_PATH = "curves.tcss"
    AUTO_FOCUS: ClassVar[str] = "CurveChart"
    NAME: ClassVar[str] = "curves"

    def __init__(self, ref: JobRef, feed: CurveFeed) -> None:
        """Show what `feed` reads of the job `ref`."""
        super().__init__()
        self._ref = ref
        self._feed = feed
        self._series: dict[tuple[str, str], Series] = {}
        self._charts: dict[str, CurveChart] = {}
        self._current = ""  # the tag of the chart that had the focus last
        self._points = 0

    def compose_body(self) -> ComposeResult:
        """Lay out an empty grid."""
        yield Label("", id="notice", markup=False)
        yield VerticalScroll(id="charts", can_focus=False)

    def on_mount(self) -> None:
        """Say what is shown."""
        self._say()

    def uncovered(self) -> None:
        """Follow the files."""
        self._follow()

    def covered(self) -> None:
        """Read nothing."""
        self.workers.cancel_group(self, "curves")

    @work(group="curves", exclusive=True)
    async def _follow(self) -> None:
        await self._feed.run(self._changed)

    async def _changed(self) -> None:
        """Bring the charts up to date with what was read, tag by tag."""
        tags: dict[str, list[PlotCurve]] = {}
        self._points = 0
        for curve in self._feed.curves():
            series = self._series.setdefault((curve.run, curve.tag), Series())
            series.update(curve.steps, curve.wall_times, curve.values, [mark.step for mark in curve.restarts])
            tags.setdefault(curve.tag, []).append(PlotCurve(curve.run, series))
            self._points += len(curve)
        await self._place(tags)
        for tag, curves in tags.items():
            self._charts[tag].set_curves(tag, curves)
        self._say()

    async def _place(self, tags: Mapping[str, list[PlotCurve]]) -> None:
        """Add charts for tags that are new, in their order."""
        if set(tags) <= set(self._charts):
            return
        grid = self.query_one("#charts")
        await grid.remove_children()
        self._charts = {tag: CurveChart(tag, classes="pane") for tag in sorted(tags, key=tag_key)}
        await grid.mount_all(self._charts.values())
        self._apply_filter()
        if not self.is_prompt_open:
            self.focus_body()

    def on_resize(self) -> None:
        """Share the new height out."""
        self.call_after_refresh(self._share_height)

    def _share_height(self) -> None:
        """Let all charts be seen at once if they can be, else scroll."""
        if not self.is_drawable:
            return
        grid = self.query_one("#charts")
        if self.has_class("-full"):
            grid.styles.grid_rows = "1fr"
            return
        shown = len(self._shown())
        rows = -(-shown // (1 if self.has_class("-narrow") else 2)) or 1
        grid.styles.grid_rows = str(max(LEAST_ROWS, grid.size.height // rows))

    def _shown(self) -> list[CurveChart]:
        return [chart for chart in self._charts.values() if not chart.has_class("-filtered")]

    def _chosen(self) -> CurveChart | None:
        """Return the chart that had the focus last, or the first where the filter hides that one."""
        shown, last = self._shown(), self._charts.get(self._current)
        return last if last in shown else shown[0] if shown else None

    def focus_body(self) -> None:
        """Give the focus back to the chart that had it, or to the first in sight."""
        self._choose(self._chosen())

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Remember which chart has the focus."""
        self._current = next(
            (tag for tag, chart in self._charts.items() if chart is event.widget), self._current
        )

    def _choose(self, target: CurveChart | None) -> None:
        """Give a chart the focus, and the whole view where one is shown alone."""
        self._current = next((tag for tag, chart in self._charts.items() if chart is target), self._current)
        self.set_focus(target)
        self._show_alone(target)

    def _say(self) -> None:
        words = [f"Jobs › {self._ref.name} › curves"]
        if source := self._feed.source_words:
            words.append(f"{plural(len(self._charts), 'tag')}, {plural(self._points, 'point')} · {source}")
        if self.filter_text:
            words.append(f"/{self.filter_text}")
        self.set_title("   ".join(words))
        self.put("notice", self._notice())

    def _notice(self) -> str:
        """Say why nothing is drawn, and what would be."""
        if self._charts:
            hidden = "" if self._shown() else f"No tag matches /{self.filter_text}; esc shows all."
            return hidden or ("" if self._feed.is_from_log else self._feed.problem)
        if not self._feed.problem and not self._feed.source:
            return "Looking…"
        problem = self._feed.problem or "No points yet: they appear here as the job writes them."
        return f"{problem}\n{LOG_HINT}"

    def watch_filter_text(self, text: str) -> None:
        """Show the tags that match."""
        if self.is_drawable:
            self._apply_filter()
            if self.is_prompt_open:
                self._show_alone(self._chosen())
            else:
                self.focus_body()

    def _apply_filter(self) -> None:
        matches = matcher(self.filter_text)
        for tag, chart in self._charts.items():
            chart.set_class(matches is not None and not matches(tag), "-filtered")
        self._share_height()
        self._say()

    def action_move(self, charts: int) -> None:
        """Go to another chart."""
        shown = self._shown()
        if not shown:
            return
        # A chart learns later that it has the focus: each key of a burst has to count.
        focused = next((index for index, chart in enumerate(shown) if chart is self.focused), 0)
        self._choose(shown[(focused + charts) % len(shown)])

    def action_full(self) -> None:
        """Show the chart with the focus alone, or all again."""
        chosen = self._chosen()
        if chosen is None:
            return
        self.toggle_class("-full")
        self._choose(chosen)
        self._share_height()

    def _show_alone(self, target: CurveChart | None) -> None:
        """Mark the one chart that is in sight where one is shown alone."""
        for chart in self._charts.values():
            chart.set_class(chart is target, "-alone")

    def step_back(self) -> bool:
        """Show all charts again, or clear the filter."""
        if self.has_class("-full"):
            self.action_full()
            return True
        return super().step_back()
