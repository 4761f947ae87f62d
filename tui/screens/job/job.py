"""One job: its instances with their ranks, what its object says, what happened to it, how its loss goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.widgets import Label

from k8s.client.client import Client
from k8s.diagnosis.gather import answer_why
from k8s.errors import KubeError
from k8s.kinds import JobRef
from k8s.logs import targets_of
from k8s.logs.last import LastLines
from k8s.models import Event, Pod
from k8s.models.resources import EVENTS
from k8s.snapshot import Job
from k8s.status import Status
from k8s.telemetry.readings import NoReadingsCause
from k8s.text.sanitize import log_text, sanitize
from k8s.watch.backoff import ServerProbe
from tui.feeds.curve_feed import CurveFeed
from tui.feeds.list_feed import ListFeed, follow
from tui.jobs.events import FoldedEvent, JobEventFilter, fold_job_events, full_text
from tui.screens.base.telemetry_watch import TelemetryWatch
from tui.screens.base.view import View
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.job.instance_usage import rows_with_usage, with_usage
from tui.screens.job.panes import JobPanes
from tui.screens.job.rows import (
    AGE_STEP_S,
    INSTANCE_COLUMNS,
    SAID_COLUMN,
    condition_rows,
    event_row,
    instance_rows,
    job_title,
)
from tui.text.cells import elide_end
from tui.text.format import Clock, duration, plural
from tui.text.gpu_words import missing_words
from tui.text.progress import progress_in
from tui.widgets.table.table import Column, Table

WHY_REST_S = 10.0
"""Shortest time between two looks for why it waits."""
SAYS_FROM = 140
"""From so many columns on, the newest line of each instance is shown."""


class JobView(View):
    """Instances, curve, conditions and events of one job. It asks for nothing while it is not shown."""

    CSS_PATH = "job.tcss"
    AUTO_FOCUS: ClassVar[str] = ""
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    NAME: ClassVar[str] = "job"

    def __init__(
        self,
        client: Client,
        ref: JobRef,
        *,
        probe: ServerProbe | None = None,
        pods: Callable[[], Mapping[str, Pod]] = dict,
        why_rest_s: float = WHY_REST_S,
    ) -> None:
        """Show the job `ref`; `client` is asked for its events, its logs' last lines, and why it waits.

        Args:
            client: The job's cluster.
            ref: The job.
            probe: Where to wait while the cluster is away.
            pods: Returns the pods that are known, by uid.
            why_rest_s: Shortest time between two looks for why it waits.
        """
        super().__init__()
        self.ref = ref
        """The job that is shown."""
        self.why = ""
        """Why it waits, in a sentence; empty where there is nothing to explain."""
        self._client = client
        self._asked_about: tuple[str, ...] = ()
        self._why_rest_s = why_rest_s
        self._ask_again_at_s = 0.0
        self._probe = probe or ServerProbe(client)
        self._pods = pods
        self._panes = JobPanes()
        self._telemetry = TelemetryWatch(self, self._gpu_nodes)
        self._lines = LastLines(client, self._probe, on_change=self.redraw)
        self._feed = CurveFeed(client, ref, lambda: self.snapshot.job(ref))
        self._events: ListFeed[Event] = ListFeed(EVENTS, Event)
        self._events_changed = asyncio.Event()
        self._events.aim_at(client, (ref.namespace,), self._probe, self._events_changed.set)
        self._happened: dict[str, FoldedEvent] = {}
        self._happened_from: tuple[object, object] = (None, None)
        self._progress = ""
        self._last: Job | None = None
        self._seen: tuple[object, ...] = ()

    def compose_body(self) -> ComposeResult:
        """Lay out why it waits, what went wrong, and the panes."""
        yield Label("", id="why", markup=False)
        yield Label("", id="notice", markup=False)
        yield self._panes

    def on_mount(self) -> None:
        """Show the panes as they were left; let ages grow though nothing changes."""
        self._panes.restore()
        self.set_interval(AGE_STEP_S, self.redraw)

    def uncovered(self) -> None:
        """Begin to ask the cluster, or go on."""
        self._follow_events()
        self._follow_lines()
        self._telemetry.look()
        self._consider_curve()

    def covered(self) -> None:
        """Ask for nothing."""
        for group in ("events", "lines", "curve"):
            self.workers.cancel_group(self, group)
        self._telemetry.stop()

    def refresh_feeds(self) -> None:
        """Ask again now what its GPUs do."""
        self._telemetry.refresh()

    def _gpu_nodes(self) -> tuple[str, ...]:
        """Return the nodes of which its instances hold GPUs."""
        instances = self._last.instances if self._last is not None else ()
        return tuple(dict.fromkeys(each.node for each in instances if each.node and each.gpus))

    def on_resize(self) -> None:
        """Show more or fewer columns, and the curve where there is room for it."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        if not self.is_drawable:
            return
        self._consider_curve()
        self.redraw()

    def _consider_curve(self) -> None:
        """Read the curve only while there is a place for it."""
        is_read = any(each.group == "curve" and not each.is_finished for each in self.workers)
        if self.is_shown and self.has_class("-wide") and not is_read:
            self._follow_curve()
        elif is_read and not self.has_class("-wide"):
            self.workers.cancel_group(self, "curve")

    @work(group="events", exclusive=True)
    async def _follow_events(self) -> None:
        await follow([self._events], self._events_changed, self.redraw)

    @work(group="lines", exclusive=True)
    async def _follow_lines(self) -> None:
        await self._lines.run()

    @work(group="curve", exclusive=True)
    async def _follow_curve(self) -> None:
        await self._feed.run(self._take_curve)

    async def _take_curve(self) -> None:
        if self.is_drawable:
            self._panes.curve.take(self._feed)

    def watch_snapshot(self) -> None:
        """Show the new picture, where it tells anything new of this job."""
        snapshot, found = self.snapshot, self.snapshot.job(self.ref)
        seen = (found, snapshot.is_synced, snapshot.stale, snapshot.clock_offset_s)
        if seen != self._seen:
            self._seen = seen
            self.redraw()

    @property
    def is_drawable(self) -> bool:
        """Tell whether its parts are there."""
        return super().is_drawable and self._panes.is_mounted

    def watch_filter_text(self, text: str) -> None:
        """Filter the tables."""
        if self.is_drawable:
            self.filter_tables(text)
            self.redraw()

    def current_job(self) -> JobRef:
        """Return the job."""
        return self.ref

    def paint(self) -> None:
        """Draw all panes and lines."""
        found = self.snapshot.job(self.ref)
        is_gone = found is None and self.snapshot.is_synced
        job = found or self._last
        self._last = job
        clock = Clock.ahead(self.snapshot.clock_offset_s)
        if job is not None:
            if not is_gone:
                self._lines.set_targets(targets_of(job))
            self._draw_panes(job, clock)
        title = job_title(self.ref, job, clock, self.size.width - 2, progress=self._progress, is_gone=is_gone)
        self.set_title(f"{title}   /{sanitize(self.filter_text)}" if self.filter_text else title)
        self._consider_why(None if is_gone else job)
        reason = "" if job is None or is_gone or self.why else job.reason
        self.put("why", self.why)
        self.put("notice", "\n".join(map(sanitize, (self.snapshot.stale or reason).split("\n"))))
        address = self.context.forwarded.get(self.ref, "")
        below = f"TensorBoard: {address}" if address else self._lines_words() or self._no_gpu_numbers()
        self.put("totals", below)

    def _lines_words(self) -> str:
        if self._lines.problem:
            return elide_end(sanitize(f"No last lines. {self._lines.problem}"), self.size.width - 2)
        if self._lines.is_polled:
            return f"Each log is asked for its last line every {duration(self._lines.round_s)}."
        return ""

    def _no_gpu_numbers(self) -> str:
        """Say why nothing tells what its GPUs do, and what would; simulated ones are called so above."""
        if self.snapshot.is_simulated:
            return ""
        read = [each for name in self._gpu_nodes() if (each := self._telemetry.of_node(name)) is not None]
        for each in read:
            missing = each.missing
            if missing is not None and missing.cause is not NoReadingsCause.UNREACHABLE and not each.gpus:
                return elide_end(sanitize(f"{each.node}: {missing_words(missing)}"), self.size.width - 2)
        return ""

    def _draw_panes(self, job: Job, clock: Clock) -> None:
        panes = self._panes
        shows_lines = self.size.width >= SAYS_FROM
        refusal = "may not read pods/log" if self._lines.problem else ""
        rows = instance_rows(
            job.instances, self._lines.newest, clock, shows_lines=shows_lines, refusal=refusal
        )
        columns: tuple[Column, ...] = (*INSTANCE_COLUMNS, *((SAID_COLUMN,) if shows_lines else ()))
        ranks = self._telemetry.ranks(job)
        if any(each.gpu is not None for each in ranks):
            columns = with_usage(columns)
            rows = rows_with_usage(rows, ranks, self._telemetry.job_warnings(ranks))
        self._telemetry.look()
        if columns == panes.instances.columns:
            panes.instances.set_rows(rows)
        else:
            panes.instances.set_columns(columns, rows)
        panes.say(panes.instances, f"instances {len(rows)}" if rows else "instances")
        self._progress = self._progress_of(job)
        panes.conditions.set_rows(condition_rows(job.conditions, clock))
        panes.say(panes.conditions, "conditions")
        if self._happened_from != (self._events.changes, job):
            self._happened_from = (self._events.changes, job)
            relatives = JobEventFilter(job, self._pods(), self.snapshot.jobs)
            found = fold_job_events(self._events.objects.values(), relatives, job.created)
            self._happened = {event_row(each, clock).key: each for each in found}
        happened = list(self._happened.values())
        problem = self._events.state.problem
        panes.events.empty = (problem and problem.why) or "No events; clusters forget them after an hour."
        panes.events.set_rows([event_row(each, clock) for each in happened])
        warnings = sum(each.is_warning for each in happened)
        title = f"events {len(happened)}" + (f" ({plural(warnings, 'warning')})" if warnings else "")
        hidden = f"tab: {plural(len(job.conditions), 'condition')}"
        is_cramped = self.has_class("-narrow") and self.has_class("-short")
        panes.say(panes.events, title, hidden if is_cramped else "")
        panes.say(panes.conditions, "conditions", f"tab: {title}" if is_cramped else "")

    def _progress_of(self, job: Job) -> str:
        """Return how far the job says it is; what a line once told holds until another tells otherwise."""
        if job.progress or job.status is not Status.RUNNING:
            return sanitize(job.progress)
        chief = next((each.pod for each in job.instances if each.is_chief), "")
        line = self._lines.newest.get(chief)
        return (progress_in(log_text(line.raw)) if line is not None else "") or self._progress

    def _consider_why(self, job: Job | None) -> None:
        """Ask why it waits when that is not known yet; what is known is dropped when it is no longer so."""
        if job is None or not _waits(job):
            self._asked_about, self.why = (), ""
            return
        about = (str(job.status), job.reason)
        if self.snapshot.is_synced and not self.snapshot.stale and about != self._asked_about:
            self._asked_about = about
            self._ask_why(job)

    @work(group="why", exclusive=True)
    async def _ask_why(self, job: Job) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._ask_again_at_s - clock()))
        self._ask_again_at_s = clock() + self._why_rest_s
        try:
            answer = await answer_why(self._client, job, self.snapshot)
        except KubeError:
            return  # that the cluster is away is said elsewhere; the reason stays where this would be
        self.why = sanitize(answer.sentence)
        self.redraw()

    def selected_instance(self) -> str:
        """Return the instance under the cursor."""
        return self._panes.instances.cursor_key or ""

    def selected_object(self) -> str:
        """Return the pod of the instance under the cursor while the instances have the focus."""
        if self._last is None or self._panes.focused is not self._panes.instances:
            return ""
        name = self.selected_instance()
        return next((f"pod/{each.pod}" for each in self._last.instances if each.name == name), "")

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Show the logs of an instance, an event in full, or the whole of a condition."""
        event.stop()
        if event.table is self._panes.instances:
            self.action_request("logs")
        elif event.table is self._panes.events and (found := self._happened.get(event.key)) is not None:
            self.app.push_screen(DetailScreen(f"{found.newest.reason or 'event'}", full_text(found)))
        elif event.table is self._panes.conditions:
            words = [f"{title.lower():<11} {text}" for title, text in self._said(event.table).items()]
            self.app.push_screen(DetailScreen("condition", "\n".join(words)))

    def copy_text(self) -> str:
        """Return what the row under the cursor is about: a pod's name, an event's message."""
        focused = self._panes.focused
        said = self._said(focused) if isinstance(focused, Table) else {}
        return said.get("POD") or said.get("MESSAGE") or self.ref.name

    @staticmethod
    def _said(table: Table) -> dict[str, str]:
        """Return what the row under the cursor says, by the titles of its columns."""
        row = next((row for row in table.shown_rows if row.key == table.cursor_key), None)
        cells = row.cells if row is not None else ()
        return {column.title: cell.text for column, cell in zip(table.columns, cells, strict=bool(cells))}

    def action_next_pane(self, panes: int = 1) -> None:
        """Give the focus to the next pane, or to the one before."""
        self._panes.step(panes)

    def action_full(self) -> None:
        """Show the pane with the focus alone, or all of them again."""
        self._panes.toggle_full()

    def show_events(self) -> None:
        """Begin with the events, among the other panes."""
        self._panes.go_to(self._panes.events)

    def action_only_events(self) -> None:
        """Show the events alone; from there, all panes again."""
        panes = self._panes
        if panes.focused is panes.events and panes.is_full:
            panes.toggle_full()
            panes.go_to(panes.instances)
        else:
            panes.go_to(panes.events)
            if not panes.is_full:
                panes.toggle_full()

    def step_back(self) -> bool:
        """Show all panes again, or clear the filter."""
        if self._panes.is_full and not self.filter_text:
            self._panes.toggle_full()
            return True
        return super().step_back()

    def focus_body(self) -> None:
        """Give the focus back to the pane that had it."""
        self._panes.go_to(self._panes.focused)


def _waits(job: Job) -> bool:
    """Tell whether there is something to explain: it has not ended well, nor do all of its pods run."""
    if job.status is Status.RUNNING:
        return job.instances_running < len([each for each in job.instances if not each.status.is_final])
    return job.status is not Status.SUCCEEDED
