"""Charts of all scalars of one or several jobs, updated live: loss first, then the others by name."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.events import DescendantFocus
from textual.widgets import Label

from k8s.kinds import JobRef
from k8s.text.sanitize import sanitize
from trainer.tfevents import ScalarCurve
from tui.runs.alerts import curve_alerts
from tui.runs.curve_feed import LOG_HINT, CurveFeed
from tui.runs.journal.kept_facts import SOURCE, KeptCurves, keep_curves
from tui.runs.overlay import Overlay, labels_of
from tui.runs.record import loss_tag
from tui.screens.base.view import View
from tui.screens.job import CURVES
from tui.settings.keys import CHART, Key, ViewDeclaration, unshadowed
from tui.settings.options import DEFAULT_ALERTS, AlertRule
from tui.text.filter_query import matcher
from tui.text.format import plural
from tui.text.natural_order import tag_key
from tui.widgets.curve_chart import CurveChart

# Minimum height of a readable chart, including its frame.
LEAST_ROWS = 10
# Shortest interval between two updates of the charts of several runs.
PAUSE_S = 0.5
_LOADING = "Loading…"
_READER_HINT = (
    "`:folder` searches its pod, `:folder PATH` names one; `:reader` reads the volume of a finished job."
)


class CurvesView(View):
    """Charts of one job, or of several jobs over each other."""

    CSS_PATH = "curves.tcss"
    AUTO_FOCUS: ClassVar[str] = "CurveChart"
    VIEW: ViewDeclaration = CURVES

    def __init__(
        self,
        refs: Sequence[JobRef],
        feeds: Sequence[CurveFeed | KeptCurves],
        rules: Collection[AlertRule] = DEFAULT_ALERTS,
    ) -> None:
        """Show the curves that `feeds` read for the jobs `refs`, one feed for each, judged by `rules`."""
        super().__init__()
        self._rules = rules
        self._alerts: dict[int, str] = {}
        self._refs = refs
        self._feeds = feeds
        names = [ref.name for ref in refs]
        if len(set(names)) < len(names):
            names = [f"{ref.namespace}/{ref.name}" for ref in refs]
        self._labels = labels_of(names)
        self._overlay = Overlay(self._labels)
        self._news = asyncio.Event()
        self._charts: dict[str, CurveChart] = {}
        self._uids: dict[int, str] = {}  # by number of the run, as are the points that were kept
        self._kept_points: dict[int, int] = {}
        self._current = ""  # the tag of the chart that had the focus last

    @property
    def bar_keys(self) -> tuple[Key, ...]:
        """Return the keys for the key bar, including those of a chart."""
        chart, context = self.context.keys(CHART), self.context
        return unshadowed((*unshadowed(self.keys, chart), *chart, *context.everywhere_keys))

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]]:
        """Return all points."""
        return ["RUN", "TAG", "STEP", "TIME", "VALUE"], [
            [label, curve.tag, step, f"{time:.3f}", f"{value:.9g}"]
            for _, label, curve in self._overlay.named()
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

    def choose_folder(self, folder: str) -> None:
        """Read from another folder in the pods, or search for one, of the first job if there are several."""
        self._feeds[0].choose_folder(folder)
        self._follow()

    @work(group="curves", exclusive=True)
    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for run, feed in enumerate(self._feeds):
                tasks.create_task(feed.run(partial(self._changed, run)))
            while True:
                await self._news.wait()
                self._news.clear()
                await self._show_curves()
                # Runs that write at the same time are drawn together.
                await asyncio.sleep(PAUSE_S if len(self._feeds) > 1 else 0)

    async def _changed(self, run: int) -> None:
        curves = self._feeds[run].curves()
        self._overlay.update(run, curves)
        self._judge(run, curves)
        self._news.set()
        await self._keep(run, curves)

    async def _keep(self, run: int, curves: Sequence[ScalarCurve]) -> None:
        # Of a job that has ended, because it may be gone soon.
        feed, job = self._feeds[run], self.snapshot.job(self._refs[run])
        if job is not None:
            self._uids[run] = job.uid
        points = sum(map(len, curves))
        has_ended = run in self._uids and (job is None or job.status.is_final)
        if has_ended and feed.source != SOURCE and points != self._kept_points.get(run):
            self._kept_points[run] = points
            journal, is_log = self.context.runs.journal, feed.is_from_log
            await asyncio.to_thread(keep_curves, journal, self._uids[run], curves, is_log=is_log)

    def _judge(self, run: int, curves: Sequence[ScalarCurve]) -> None:
        by_tag = {curve.tag: curve for curve in sorted(curves, key=len) if len(curve)}
        if loss := loss_tag(by_tag):
            alerts = curve_alerts(by_tag, loss, self._rules)
            self._alerts[run] = ", ".join(each.text for each in alerts)
            # NaN has its own mark, and a rate is judged by its newest points alone.
            marked = [each for each in alerts if each.rule in (AlertRule.DIVERGED, AlertRule.PLATEAU)]
            self._overlay.mark_alerts(run, by_tag[loss], [by_tag[loss].steps[each.place] for each in marked])

    async def _show_curves(self) -> None:
        tags = self._overlay.by_tag()
        await self._place(tags)
        for tag, curves in tags.items():
            self._charts[tag].set_curves(tag, curves)
        self._update_title()

    async def _place(self, tags: Iterable[str]) -> None:
        # Charts are not attached if the view was left while they were mounted.
        if set(tags) <= set(self._charts) and all(chart.is_attached for chart in self._charts.values()):
            return
        grid = self.query_one("#charts")
        await grid.remove_children()
        views = {tag: chart.view for tag, chart in self._charts.items()}
        self._charts = {
            tag: CurveChart(tag, view=views.get(tag), classes="pane") for tag in sorted(tags, key=tag_key)
        }
        await grid.mount_all(self._charts.values())
        self._apply_filter()
        if not self.is_prompt_open:
            self.focus_body()

    def on_resize(self) -> None:
        """Distribute the new height."""
        self.call_after_refresh(self._share_height)

    def _share_height(self) -> None:
        if not self.is_drawable:
            return
        grid = self.query_one("#charts")
        if self.has_class("-full"):
            grid.styles.grid_rows = "1fr"
            return
        shown = len(self._shown())
        rows = -(-shown // (1 if self.has_class("-narrow") else 2)) or 1
        # A legend of several runs takes rows of its own.
        least = LEAST_ROWS + (len(self._refs) if len(self._refs) > 1 else 0)
        grid.styles.grid_rows = str(max(min(least, grid.size.height), grid.size.height // rows))

    def _shown(self) -> list[CurveChart]:
        return [chart for chart in self._charts.values() if not chart.has_class("-filtered")]

    def _chosen(self) -> CurveChart | None:
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
        is_one = len(self._refs) == 1
        words = [f"Jobs › {self._refs[0].name if is_one else plural(len(self._refs), 'job')} › curves"]
        if any(feed.source_text for feed in self._feeds):
            amounts = f"{plural(len(self._charts), 'tag')}, {plural(self._overlay.points(), 'point')}"
            source = f"{self._feeds[0].source_text}{self._feeds[0].age_text}"
            words.append(f"{amounts} · {source}" if is_one else amounts)
        if self.filter_text:
            words.append(f"/{self.filter_text}")
        self.set_title("   ".join(words))
        self.set_line("notice", self._notice())

    def _notice(self) -> str:
        if self._charts and not self._shown():
            return f"No tag matches /{self.filter_text}; esc shows all."
        if len(self._feeds) == 1:
            problem = self._problem(0)
            if not problem or self._charts or problem == _LOADING:
                return problem
            return f"{problem}\n{LOG_HINT}\n{_READER_HINT}"
        problems = zip(self._labels, map(self._problem, range(len(self._feeds))), strict=True)
        return "\n".join(
            f"{label}: {problem.replace(chr(10), ' ')}" for label, problem in problems if problem
        )

    def _problem(self, run: int) -> str:
        feed = self._feeds[run]
        if feed.is_from_log or self._overlay.points(run):
            problem = "" if feed.is_from_log else feed.problem
            return "; ".join(filter(None, (sanitize(self._alerts.get(run, "")), problem)))
        if not feed.problem and not feed.source:
            return _LOADING
        return feed.problem or "No points yet: they appear here as the job writes them."

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
