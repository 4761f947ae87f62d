"""The view of one job: instances, loss curve, conditions and events."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.widgets import Label

from k8s.gpus.readings import NoReadingsCause
from k8s.kinds import JobRef
from k8s.logs import targets_of
from k8s.logs.last import LastLines
from k8s.models.event import Event
from k8s.models.resources import EVENTS
from k8s.reasons.failures import CAUSES
from k8s.reasons.gather import answer_why
from k8s.snapshot import Job
from k8s.status import Status
from k8s.text.errors import KubeError
from k8s.text.sanitize import log_text, sanitize
from tui.runs.curve_feed import CurveFeed
from tui.screens.base.telemetry_list import TelemetryWatch
from tui.screens.base.view import View
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.job import JOB
from tui.screens.job.panes import (
    AGE_STEP_S,
    INSTANCE_COLUMNS,
    LINE_COLUMN,
    JobPanes,
    condition_rows,
    event_row,
    instance_rows,
    job_title,
    rows_with_usage,
    with_usage,
)
from tui.session.list_feed import ListFeed, follow
from tui.session.session import Session
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Column
from tui.tables.events import FoldedEvent, JobEventFilter, fold_job_events, full_text
from tui.tables.jobs import JobsNow
from tui.text.cells import elide_end
from tui.text.format import Clock, duration, plural
from tui.text.gpu_words import missing_text
from tui.text.progress import progress_in
from tui.widgets.table.table import Table

DIAGNOSIS_INTERVAL_S = 10.0
# Terminal width from which the newest log lines are shown.
LINE_COLUMN_MIN_WIDTH = 140


class JobView(View):
    """Instances, curve, conditions and events of one job. Polls only while it is shown."""

    CSS_PATH = "job.tcss"
    AUTO_FOCUS: ClassVar[str] = ""
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    VIEW: ViewDeclaration = JOB

    def __init__(
        self, session: Session, ref: JobRef, *, diagnosis_interval_s: float = DIAGNOSIS_INTERVAL_S
    ) -> None:
        """Show the job `ref` of a cluster.

        A waiting job is diagnosed at most every `diagnosis_interval_s`.
        """
        super().__init__()
        self.ref = ref
        self.why = ""
        """Diagnosis of a waiting job, in one sentence; empty if there is nothing to explain."""
        self._diagnosed_for: tuple[str, ...] = ()
        self._diagnosis_interval_s = diagnosis_interval_s
        self._retry_at_s = 0.0
        # The one it was opened in; a switch of the context closes the view.
        self._opened_in = session
        client, probe = session.client, session.mirror.probe
        self._panes = JobPanes()
        self._telemetry = TelemetryWatch(self, self._gpu_nodes)
        self._lines = LastLines(session.logs, probe, on_change=self.refresh_view)
        self._feed = CurveFeed(client, ref, lambda: self.snapshot.job(ref), hub=session.logs)
        self._events: ListFeed[Event] = ListFeed(EVENTS, Event)
        self._events_changed = asyncio.Event()
        self._events.aim_at(client, (ref.namespace,), probe, self._events_changed.set)
        self._folded_events: dict[str, FoldedEvent] = {}
        self._folded_from: tuple[object, object] = (None, None)
        self._progress = ""
        self._last: Job | None = None
        self._seen: tuple[object, ...] = ()

    def compose_body(self) -> ComposeResult:
        """Lay out the diagnosis, the notice and the panes."""
        yield Label("", id="why", markup=False)
        yield Label("", id="notice", markup=False)
        yield self._panes

    def on_mount(self) -> None:
        """Restore the panes, and refresh the ages."""
        self._panes.restore()
        self.set_interval(AGE_STEP_S, self.refresh_view)

    @property
    def is_idle(self) -> bool:
        """True if the events have been listed or refused, and the widgets are idle."""
        is_read = self._events.state.is_synced or self._events.is_refused or not self.is_shown
        return is_read and super().is_idle

    def resume_feeds(self) -> None:
        """Start polling."""
        self._opened_in.life.watch(self, lambda: [self._last] if self._last is not None else [])
        self._follow_events()
        self._follow_lines()
        self._telemetry.follow()
        self._update_curve_worker()

    def pause_feeds(self) -> None:
        """Stop polling."""
        self._opened_in.life.leave(self)
        for group in ("events", "lines", "curve"):
            self.workers.cancel_group(self, group)
        self._telemetry.stop()

    def refresh_feeds(self) -> None:
        """Poll the telemetry now."""
        self._telemetry.refresh()

    def _gpu_nodes(self) -> tuple[str, ...]:
        instances = self._last.instances if self._last is not None else ()
        return tuple(dict.fromkeys(each.node for each in instances if each.node and each.gpus))

    def on_resize(self) -> None:
        """Adapt the columns and the curve to the new size."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        if not self.is_drawable:
            return
        self._update_curve_worker()
        self.refresh_view()

    def _update_curve_worker(self) -> None:
        is_read = any(each.group == "curve" and not each.is_finished for each in self.workers)
        if self.is_shown and self.has_class("-wide") and not is_read:
            self._follow_curve()
        elif is_read and not self.has_class("-wide"):
            self.workers.cancel_group(self, "curve")

    @work(group="events", exclusive=True)
    async def _follow_events(self) -> None:
        await follow([self._events], self._events_changed, self.refresh_view)

    @work(group="lines", exclusive=True)
    async def _follow_lines(self) -> None:
        await self._lines.run()

    @work(group="curve", exclusive=True)
    async def _follow_curve(self) -> None:
        await self._feed.run(self._receive_curve)

    async def _receive_curve(self) -> None:
        if self.is_drawable:
            self._panes.curve.show_feed(self._feed)

    def watch_snapshot(self) -> None:
        """Redraw if anything about this job has changed."""
        snapshot, found = self.snapshot, self.snapshot.job(self.ref)
        seen = (found, snapshot.signs(found), snapshot.is_synced, snapshot.stale, snapshot.clock_offset_s)
        if seen != self._seen:
            self._seen = seen
            self.refresh_view()

    @property
    def is_drawable(self) -> bool:
        """True if the panes are mounted."""
        return super().is_drawable and self._panes.is_mounted

    def watch_filter_text(self, text: str) -> None:
        """Filter the tables."""
        if self.is_drawable:
            self.filter_tables(text)
            self.refresh_view()

    def current_job(self) -> JobRef:
        """Return the job."""
        return self.ref

    def render_view(self) -> None:
        """Draw all panes and lines."""
        found = self.snapshot.job(self.ref)
        is_gone = found is None and self.snapshot.is_synced
        job = found or self._last
        self._last = job
        now = JobsNow(Clock.ahead(self.snapshot.clock_offset_s), signs=self.snapshot.signs)
        if job is not None:
            if not is_gone:
                self._lines.set_targets(targets_of(job))
            self._draw_panes(job, now)
        title = job_title(self.ref, job, now, self.size.width - 2, progress=self._progress, is_gone=is_gone)
        self.set_title(f"{title}   /{sanitize(self.filter_text)}" if self.filter_text else title)
        self._diagnose(None if is_gone else job)
        reason = "" if job is None or is_gone or self.why else job.reason
        self.set_line("why", self.why)
        self.set_line("notice", "\n".join(map(sanitize, (self.snapshot.stale or reason).split("\n"))))
        address = self.context.forwarded.get(self.ref, "")
        below = (
            f"TensorBoard: {address}" if address else self._format_line_count() or self._missing_gpu_text()
        )
        self.set_line("totals", below)

    def _format_line_count(self) -> str:
        if self._lines.problem:
            return elide_end(sanitize(f"No last lines. {self._lines.problem}"), self.size.width - 2)
        if self._lines.is_polled:
            return f"Last lines are polled every {duration(self._lines.round_s)}."
        return ""

    def _missing_gpu_text(self) -> str:
        if self.snapshot.is_simulated:
            return ""
        read = [each for name in self._gpu_nodes() if (each := self._telemetry.of_node(name)) is not None]
        for each in read:
            missing = each.missing
            if missing is not None and missing.cause is not NoReadingsCause.UNREACHABLE and not each.gpus:
                return elide_end(sanitize(f"{each.node}: {missing_text(missing)}"), self.size.width - 2)
        return ""

    def _draw_panes(self, job: Job, now: JobsNow) -> None:
        panes, clock = self._panes, now.clock
        shows_lines = self.size.width >= LINE_COLUMN_MIN_WIDTH
        refusal = "may not read pods/log" if self._lines.problem else ""
        rows = instance_rows(job, self._lines.newest, now, shows_lines=shows_lines, refusal=refusal)
        columns: tuple[Column, ...] = (*INSTANCE_COLUMNS, *((LINE_COLUMN,) if shows_lines else ()))
        ranks = self._telemetry.ranks(job)
        if any(each.gpu is not None for each in ranks):
            columns = with_usage(columns)
            rows = rows_with_usage(rows, ranks, self._telemetry.job_warnings(ranks))
        self._telemetry.follow()
        panes.instances.set_columns(columns, rows)
        panes.set_pane_title(panes.instances, f"instances {len(rows)}" if rows else "instances")
        self._progress = self._progress_of(job)
        panes.conditions.set_rows(condition_rows(job.conditions, clock))
        panes.set_pane_title(panes.conditions, "conditions")
        if self._folded_from != (self._events.changes, job):
            self._folded_from = (self._events.changes, job)
            relatives = JobEventFilter(job, self._opened_in.mirror.pods, self.snapshot.jobs)
            found = fold_job_events(self._events.objects.values(), relatives, job.created)
            self._folded_events = {event_row(each, clock).key: each for each in found}
        folded = list(self._folded_events.values())
        problem = self._events.state.problem
        panes.events.empty = (problem and problem.why) or "No events; clusters forget them after an hour."
        panes.events.set_rows([event_row(each, clock) for each in folded])
        warnings = sum(each.is_warning for each in folded)
        title = f"events {len(folded)}" + (f" ({plural(warnings, 'warning')})" if warnings else "")
        hidden = f"tab: {plural(len(job.conditions), 'condition')}"
        is_cramped = self.has_class("-narrow") and self.has_class("-short")
        panes.set_pane_title(panes.events, title, hidden if is_cramped else "")
        panes.set_pane_title(panes.conditions, "conditions", f"tab: {title}" if is_cramped else "")

    def _progress_of(self, job: Job) -> str:
        if job.progress or job.status is not Status.RUNNING:
            return sanitize(job.progress)
        chief = next((each.pod for each in job.instances if each.is_chief), "")
        line = self._lines.newest.get(chief)
        return (progress_in(log_text(line.raw)) if line is not None else "") or self._progress

    def _diagnose(self, job: Job | None) -> None:
        if job is None or not _is_waiting(job):
            self._diagnosed_for, self.why = (), ""
            return
        # The reason of a failed job changes when its log has been read in the background.
        about = (str(job.status), str(job.restarts) if job.status.has_failed else job.reason)
        if self.snapshot.is_synced and not self.snapshot.stale and about != self._diagnosed_for:
            self._diagnosed_for = about
            self._explain_jobs(job)

    @work(group="why", exclusive=True)
    async def _explain_jobs(self, job: Job) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._retry_at_s - clock()))
        self._retry_at_s = clock() + self._diagnosis_interval_s
        try:
            client, causes = self._opened_in.client, self._opened_in.reasons.causes or CAUSES
            answer = await answer_why(client, job, self.snapshot, causes=causes)
        except KubeError:
            return  # an unreachable cluster is reported elsewhere; the reason stays visible
        self.why = sanitize(answer.sentence)
        self.refresh_view()

    def selected_instance(self) -> str:
        """Return the instance under the cursor."""
        return self._panes.instances.cursor_key or ""

    def selected_object(self) -> str:
        """Return the pod of the selected instance while the instances are focused."""
        if self._last is None or self._panes.focused is not self._panes.instances:
            return ""
        name = self.selected_instance()
        return next((f"pod/{each.pod}" for each in self._last.instances if each.name == name), "")

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Open the logs of an instance, or the whole event or condition."""
        event.stop()
        if event.table is self._panes.instances:
            self.action_request("logs")
        elif event.table is self._panes.events and (found := self._folded_events.get(event.key)) is not None:
            self.app.push_screen(DetailScreen(f"{found.newest.reason or 'event'}", full_text(found)))
        elif event.table is self._panes.conditions:
            words = [
                f"{title.lower():<11} {text}" for title, text in self._cells_by_title(event.table).items()
            ]
            self.app.push_screen(DetailScreen("condition", "\n".join(words)))

    def copy_text(self) -> str:
        """Return the pod name or event message under the cursor."""
        focused = self._panes.focused
        cells = self._cells_by_title(focused) if isinstance(focused, Table) else {}
        return cells.get("POD") or cells.get("MESSAGE") or self.ref.name

    @staticmethod
    def _cells_by_title(table: Table) -> dict[str, str]:
        row = next((row for row in table.shown_rows if row.key == table.cursor_key), None)
        cells = row.cells if row is not None else ()
        return {column.title: cell.text for column, cell in zip(table.columns, cells, strict=bool(cells))}

    def action_next_pane(self, panes: int = 1) -> None:
        """Focus the next or the previous pane."""
        self._panes.step(panes)

    def action_full(self) -> None:
        """Toggle full screen for the focused pane."""
        self._panes.toggle_full()

    def show_events(self) -> None:
        """Focus the events."""
        self._panes.go_to(self._panes.events)

    def action_only_events(self) -> None:
        """Toggle full screen for the events."""
        panes = self._panes
        if panes.focused is panes.events and panes.is_full:
            panes.toggle_full()
            panes.go_to(panes.instances)
        else:
            panes.go_to(panes.events)
            if not panes.is_full:
                panes.toggle_full()

    def step_back(self) -> bool:
        """Leave full screen, or clear the filter."""
        if self._panes.is_full and not self.filter_text:
            self._panes.toggle_full()
            return True
        return super().step_back()

    def focus_body(self) -> None:
        """Focus the last focused pane."""
        self._panes.go_to(self._panes.focused)


def _is_waiting(job: Job) -> bool:
    if job.status is Status.RUNNING:
        return job.instances_running < len([each for each in job.instances if not each.status.is_final])
    return job.status is not Status.SUCCEEDED
