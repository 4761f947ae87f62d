"""Charts of all scalars of a job, updated live: loss first, then the others by name."""

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
from tui.keys import CHART, Key, ViewDeclaration, unshadowed
from tui.screens.base.view import View
from tui.screens.job import CURVES
from tui.text.filter_query import matcher
from tui.text.format import plural
from tui.text.natural_order import tag_key
from tui.widgets.curve_chart import CurveChart, PlotCurve

# Minimum height of a readable chart, including its frame.
LEAST_ROWS = 10


class CurvesView(View):
    """Charts of one job."""

    CSS_PATH = "curves.tcss"
    AUTO_FOCUS: ClassVar[str] = "CurveChart"
    VIEW: ClassVar[ViewDeclaration] = CURVES

    def __init__(self, ref: JobRef, feed: CurveFeed) -> None:
        """Show the curves that `feed` reads for the job `ref`."""
        super().__init__()
        self._ref = ref
        self._feed = feed
        self._series: dict[tuple[str, str], Series] = {}
        self._charts: dict[str, CurveChart] = {}
        self._current = ""  # the tag of the chart that had the focus last
        self._points = 0

    @property
    def bar_keys(self) -> tuple[Key, ...]:
        """Return the keys for the key bar, including those of a chart."""
        chart, context = self.context.keys(CHART), self.context
        return unshadowed((*unshadowed(self.keys, chart), *chart, *context.everywhere_keys))

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]]:
        """Return all points."""
        return ["RUN", "TAG", "STEP", "TIME", "VALUE"], [
            [curve.run, curve.tag, step, f"{time:.3f}", f"{value:.9g}"]
            for curve in self._feed.curves()
            for step, time, value in zip(curve.steps, curve.wall_times, curve.values, strict=True)
        ]

    def compose_body(self) -> ComposeResult:
        """Lay out an empty grid."""
        yield Label("", id="notice", markup=False)
        yield VerticalScroll(id="charts", can_focus=False)

    def on_mount(self) -> None:
        """Set the title."""
        self._update_title()

    def resume_feeds(self) -> None:
        """Start reading."""
        self._follow()

    def pause_feeds(self) -> None:
        """Stop reading."""
        self.workers.cancel_group(self, "curves")

    @work(group="curves", exclusive=True)
    async def _follow(self) -> None:
        await self._feed.run(self._changed)

    async def _changed(self) -> None:
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
        self._update_title()

    async def _place(self, tags: Mapping[str, list[PlotCurve]]) -> None:
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
        """Distribute the new height."""
        self.call_after_refresh(self._share_height)

    def _share_height(self) -> None:
        """Fit all charts on the screen if they stay readable; otherwise scroll."""
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
        """Return the last focused chart, or the first one if the filter hides it."""
        shown, last = self._shown(), self._charts.get(self._current)
        return last if last in shown else shown[0] if shown else None

    def focus_body(self) -> None:
        """Focus the last focused chart, or the first visible one."""
        self._choose(self._chosen())

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Remember the focused chart."""
        self._current = next(
            (tag for tag, chart in self._charts.items() if chart is event.widget), self._current
        )

    def _choose(self, target: CurveChart | None) -> None:
        self._current = next((tag for tag, chart in self._charts.items() if chart is target), self._current)
        self.set_focus(target)
        self._show_alone(target)

    def _update_title(self) -> None:
        words = [f"Jobs › {self._ref.name} › curves"]
        if source := self._feed.source_text:
            words.append(f"{plural(len(self._charts), 'tag')}, {plural(self._points, 'point')} · {source}")
        if self.filter_text:
            words.append(f"/{self.filter_text}")
        self.set_title("   ".join(words))
        self.set_line("notice", self._notice())

    def _notice(self) -> str:
        if self._charts:
            hidden = "" if self._shown() else f"No tag matches /{self.filter_text}; esc shows all."
            return hidden or ("" if self._feed.is_from_log else self._feed.problem)
        if not self._feed.problem and not self._feed.source:
            return "Loading…"
        problem = self._feed.problem or "No points yet: they appear here as the job writes them."
        return f"{problem}\n{LOG_HINT}"

    def watch_filter_text(self, text: str) -> None:
        """Show the matching tags."""
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
        self._update_title()

    def action_move(self, charts: int) -> None:
        """Focus another chart."""
        shown = self._shown()
        if not shown:
            return
        # A chart learns later that it has the focus: each key of a burst has to count.
        focused = next((index for index, chart in enumerate(shown) if chart is self.focused), 0)
        self._choose(shown[(focused + charts) % len(shown)])

    def action_full(self) -> None:
        """Toggle full screen for the focused chart."""
        chosen = self._chosen()
        if chosen is None:
            return
        self.toggle_class("-full")
        self._choose(chosen)
        self._share_height()

    def _show_alone(self, target: CurveChart | None) -> None:
        for chart in self._charts.values():
            chart.set_class(chart is target, "-alone")

    def step_back(self) -> bool:
        """Leave full screen, or clear the filter."""
        if self.has_class("-full"):
            self.action_full()
            return True
        return super().step_back()
