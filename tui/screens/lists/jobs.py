"""Home: the job list, with the node bar above and the job pane below or beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.timer import Timer
from textual.widgets import Label

from k8s.snapshot import ClusterSnapshot, Job, LifeSigns, Missing, held_shares
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.screens.base.list_view import ListView, progress_of
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.screens.lists import JOBS
from tui.screens.lists.home_panes import (
    HomeLayout,
    HomePanes,
    PaneName,
    bar_keys,
    has_room,
    jobs_on,
    pane_keys,
)
from tui.settings.keys import Key, ViewDeclaration
from tui.tables.column import ListColumn, console_columns
from tui.tables.filters import FilteredJobs, filter_jobs, gpu_totals, own_names
from tui.tables.jobs import COLUMNS, JobsNow, duration_s, job_row, queued_s
from tui.text.cells import wrapped
from tui.text.empty_states import no_faults, no_jobs, only_older
from tui.text.format import Clock, count, devices, plural
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.status_line import KeyBar
from tui.widgets.table.row_set import RowCache
from tui.widgets.table.table import Table

if TYPE_CHECKING:
    from k8s.kinds import JobRef
    from tui.widgets.log.view import LogSaves, LogView

# Lines of the notice about missing data.
NOTICE_LINES = 4
# Losses that come within this time are painted at once.
LOSSES_S = 0.25
# Lists everything that is not readable.
_ALL = ":info"


class JobsView(ListView):
    """The job list with its panes."""

    VIEW: ViewDeclaration = JOBS
    COLUMNS: tuple[ListColumn[Job, JobsNow], ...] = console_columns(COLUMNS)
    ORDER: tuple[str, bool] | None = ("age", False)
    ON_ENTER: str = "open_job"
    KEEPS_ROW: bool = True
    CSS_PATH: ClassVar = "jobs.tcss"

    def __init__(self) -> None:
        super().__init__()
        self._row_cache: RowCache[Job] = RowCache()
        self._by_uid: dict[str, Job] = {}
        self._life: Mapping[str, LifeSigns] = {}
        self._only_faults = False
        self._created: JobRef | None = None
        self._panes: HomePanes | None = None
        self._saves: LogSaves | None = None
        self._context_name = ""
        self._losses_timer: Timer | None = None

    @property
    def panes(self) -> HomePanes:
        """Panes around the list; created once the context is set."""
        if self._panes is None:
            self._panes = HomePanes(lambda: self.context, lambda: self.query_one(Table))
        return self._panes

    @property
    def is_idle(self) -> bool:
        """True if the list and its panes are idle."""
        return super().is_idle and (not self.is_shown or self.panes.is_idle)

    def compose_heading(self) -> ComposeResult:
        """Lay out the node bar above the title."""
        yield self.panes.node_bar
        yield from super().compose_heading()

    def compose_body(self) -> ComposeResult:
        """Lay out the list and the job pane."""
        yield Label("", id="notice", markup=False)
        with Container(id="home"):
            yield Table(self.COLUMNS)
            yield self.panes.job_pane.data_bind(View.session)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Return the keys for the focused pane."""
        context = self.context
        of_nodes = context.keys(context.actions.keys("strip"))
        return pane_keys(self.panes.focused, super().keys, of_nodes, context.actions)

    def action_request(self, name: str) -> None:
        """Request an action, or explain why it does not apply to the focused pane."""
        action, marked = self.context.actions.find(name), len(self.targets())
        problem = self.panes.refusal(action)
        if action is not None and action.changes_cluster and action.acts_on_job and not action.takes_many:
            problem = problem or f"{marked} jobs are marked, and this takes one; U unmarks." * (marked > 1)
        if problem:
            self.flash(problem, "warning")
        else:
            super().action_request(name)

    @property
    def bar_keys(self) -> tuple[Key, ...]:
        """Return the keys for the key bar, those of the focused pane first."""
        has_layouts = has_room(*self.app.size)
        return bar_keys(self.panes.focused, super().bar_keys, self.context, has_room=has_layouts)

    def on_mount(self) -> None:
        """Watch the width and the focus."""
        for table in self.query(Table):
            self.watch(table, "is_wide", self.refresh_view, init=False)
        if self.route is not None and self.route.argument == "all":
            self.context.switches["older"] = True
        self.watch(self, "focused", self._show_keys, init=False)

    def _show_keys(self) -> None:
        for bar in self.query(KeyBar):
            bar.show(self.bar_keys)
        if self.panes.focused == "nodes":  # each row of the list asks for itself
            self.check_permissions()

    def on_resize(self) -> None:
        """Lay out the panes."""
        if self.is_drawable:
            notice = self.panes.arrange(self.app.size, self.snapshot.context)
            self._show_keys()
            self.refresh_view()
            if notice:
                self.flash(notice, "warning")

    def on_screen_resume(self) -> None:
        """Resume the job pane and the losses."""
        super().on_screen_resume()
        self.panes.job_pane.consider()
        if self.is_drawable:
            self._follow_visible(self.query_one(Table))

    def on_screen_suspend(self) -> None:
        """Stop all polling while a view or dialog covers home."""
        super().on_screen_suspend()
        self.panes.job_pane.consider()
        if self.session is not None:
            self.session.reasons.visible_jobs = tuple
            self.session.life.leave(self)

    def render_view(self) -> None:
        """Draw the table and the panes."""
        super().render_view()
        self._show_panes()

    def _show_panes(self) -> None:
        if self.is_drawable:
            self.panes.show_soon(self._job_of(self.query_one(Table).cursor_key), self.snapshot)

    def watch_snapshot(self) -> None:
        """Redraw; after a context switch, with the layout stored for it."""
        if self._context_name != self.snapshot.context:
            self._context_name = self.snapshot.context
            self.on_resize()
        self.refresh_view()

    def action_layout(self) -> None:
        """Switch to the next layout."""
        self.flash(self.panes.cycle(self.snapshot.context))
        self.refresh_view()

    def action_focus_pane(self, name: PaneName) -> None:
        """Focus a pane."""
        if problem := self.panes.focus(name):
            self.flash(problem)
        self.refresh_view()

    def on_node_bar_node_highlighted(self, event: NodeBar.NodeHighlighted) -> None:
        """Highlight the jobs of the node."""
        event.stop()
        self._show_panes()

    def on_node_bar_node_selected(self, event: NodeBar.NodeSelected) -> None:
        """List only the node's jobs; if they already are, open the list of nodes."""
        event.stop()
        if self.panes.filter_to_cursor():
            self.post_message(ActionRequest("nodes", self.panes.nodes_argument))
        else:
            self.refresh_view()

    def on_job_pane_logs_wanted(self, event: JobPane.LogsWanted) -> None:
        """Open the logs."""
        event.stop()
        if (job := self.current_job()) is not None:
            self.post_message(ActionRequest("logs", targets=[job], instance=event.instance))

    def on_log_view_copy(self, event: LogView.Copy) -> None:
        """Copy the lines of the job pane."""
        event.stop()
        self.post_message(ActionRequest("copy", event.text))

    def on_log_view_save(self, event: LogView.Save) -> None:
        """Save the whole log of the job pane."""
        from tui.widgets.log.view import LogSaves

        event.stop()
        folder, shown, job = self.context.log_folder, self.panes.job_pane.shown_log, self.current_job()
        if folder is not None and shown is not None and job is not None:
            self._saves = self._saves or LogSaves()
            self._saves.begin(self.app, folder, job.name, *shown, event.view)

    def step_back(self) -> bool:
        """List all jobs again, return to the list, or clear the filter."""
        if self.panes.clear_filter():
            self.refresh_view()
        elif self.panes.node_bar.has_focus or self.panes.job_pane.holds_focus:
            self.focus_body()
        else:
            return super().step_back()
        return True

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""
        snapshot = self.snapshot
        self._by_uid = {job.uid: job for job in snapshot.jobs}
        before, self._life = self._life, snapshot.life
        for uid in (snapshot.life.keys() | before.keys()) & self._by_uid.keys():
            if snapshot.life.get(uid) != before.get(uid):
                self._row_cache.renew(self._by_uid[uid])
        self._follow_visible(table)
        chosen, columns, how = self._drawing(snapshot, table)
        table.empty = self._empty(snapshot, chosen)
        table.set_columns(columns, self._row_cache.rows(chosen.jobs, **how))
        self._go_to_created(table)
        self._update_title(chosen)

    def row_steps(self, snapshot: ClusterSnapshot) -> Iterator[None]:
        """Make the rows of a snapshot that is shown next; other tasks may run between the steps."""
        if self.is_drawable:
            chosen, _, how = self._drawing(snapshot, self.query_one(Table))
            yield from self._row_cache.steps(chosen.jobs, **how)

    def _drawing(
        self, snapshot: ClusterSnapshot, table: Table
    ) -> tuple[FilteredJobs, tuple[Any, ...], dict[str, Any]]:
        clock = Clock.ahead(snapshot.clock_offset_s)
        chosen = self._choose(snapshot, clock.now)
        left_out = {"namespace"} if snapshot.namespace else set[str]()
        if not table.is_wide:
            left_out |= {"reason", "best_loss"}
        if not self._has_loss:
            left_out |= {"loss", "best_loss"}
        columns = self.columns_of(COLUMNS, left_out)
        losses = self.session.life.losses if self.session is not None else {}
        now = JobsNow(clock, losses, self.context.runs.get, snapshot.signs)
        how = {
            "make": lambda job: job_row(job, columns, now, has_detail=not table.is_wide),
            "drawn_for": (columns, clock.is_rough),
            "now_s": clock.now.timestamp(),
            "age_s": lambda job: _age_s(job, now.signs(job), clock.now),
        }
        return chosen, columns, how

    @property
    def _has_loss(self) -> bool:
        return self.context.switches.get("loss", self.context.has_loss)

    def _follow_visible(self, table: Table) -> None:

        def visible() -> list[Job]:
            return [self._by_uid[row.key] for row in table.visible_rows if row.key in self._by_uid]

        if self.session is not None and self.app.screen is self:
            self.session.reasons.visible_jobs = visible
            self.session.life.watch(self, visible if self._has_loss else tuple, self._receive_loss)

    def _receive_loss(self, job: Job) -> None:
        self._row_cache.renew(self._by_uid.get(job.uid, job))
        if self.is_shown and self._losses_timer is None:
            self._losses_timer = self.set_timer(LOSSES_S, self._show_losses)

    def _show_losses(self) -> None:
        self._losses_timer = None
        self.refresh_view()

    def action_loss(self) -> None:
        """Toggle the loss column."""
        self.action_turn("loss", self.context.has_loss)

    def go_to_created(self, ref: JobRef) -> None:
        """Select a created job as soon as it is listed."""
        self._created = ref
        self.refresh_view()

    def _go_to_created(self, table: Table) -> None:
        if self._created is not None and (job := self.snapshot.job(self._created)) is not None:
            table.move_to(job.uid)
            self._created = None

    def _choose(self, snapshot: ClusterSnapshot, now: datetime) -> FilteredJobs:
        switches = self.context.switches
        nodes = self.panes.nodes
        return filter_jobs(
            jobs_on(nodes, snapshot) if nodes else snapshot.jobs,
            own_names(snapshot.user),
            now,
            signs=snapshot.signs,
            only_mine=switches.get("mine", False),
            only_faults=self._only_faults,
            with_older=switches.get("older", False),
            finished_days=self.context.finished_days,
        )

    def _empty(self, snapshot: ClusterSnapshot, chosen: FilteredJobs) -> str:
        if not snapshot.jobs:
            return no_jobs(snapshot, is_read_only=self.context.is_read_only)
        if self.panes.nodes and not chosen.older and not self._only_faults:
            return f"No job has a pod on {self.panes.nodes_text}.\nesc shows all jobs."
        if chosen.older:
            return only_older(chosen.older, self.context.finished_days)
        return no_faults(len(snapshot.jobs))

    def _update_title(self, chosen: FilteredJobs) -> None:
        table, snapshot = self.query_one(Table), self.snapshot
        shown, total = count(table.row_count), count(len(snapshot.jobs))
        which = ", ".join(filter(None, ("mine" * chosen.is_mine, "faults" * self._only_faults)))
        amount = total if not which and shown == total else f"{shown} of {total}"
        number = "" if self.panes.layout is HomeLayout.LIST else "2 "
        shown_words = f"{which} {amount}" if which else amount
        parts = [f"{number}Jobs ({shown_words})", *progress_of(snapshot)]
        if self.context.switches.get("mine") and not chosen.is_mine and snapshot.jobs:
            parts.append("none is known to be yours; showing all")
        if chosen.older:
            parts.append(f"{count(chosen.older)} older hidden")
        if self.panes.nodes:
            parts.append(f"on {self.panes.nodes_text} (esc: all)")
        if self.filter_text:
            parts.append(f"/{self.filter_text}")
        if table.marks:
            hidden = f", {table.hidden_marks} hidden by the filter" if table.hidden_marks else ""
            parts.append(f"{len(table.marks)} marked{hidden}")
        self.set_title("  ".join(parts))
        self.set_line("totals", format_totals(snapshot))
        self.set_line("notice", snapshot.stale or missing_text(snapshot.missing_jobs, self.size.width - 2))

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Read the losses of rows that became visible; select no created job any more."""
        self._created = None
        self._show_panes()
        self._follow_visible(event.table)

    def labels_of(self, key: str) -> Mapping[str, str]:
        """Return a job's labels."""
        job = self._by_uid.get(key)
        return job.labels if job is not None else {}

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]]:
        """Return the table with queue and run time in seconds as additional columns."""
        titles, rows = super().export_rows()
        place = titles.index("STATUS")
        now = Clock.ahead(self.snapshot.clock_offset_s).now
        for row, shown in zip(rows, self.query_one(Table).shown_rows, strict=True):
            job = self._by_uid[shown.key]
            row[place : place + 1] = [str(job.status), queued_s(job, now), duration_s(job, now)]
        return [*titles[: place + 1], "QUEUED", "DURATION", *titles[place + 1 :]], rows

    def _job_of(self, key: str | None) -> Job | None:
        return self._by_uid.get(key or "")

    def current_job(self) -> JobRef | None:
        """Return the job under the cursor; None while the node bar is focused."""
        job = self._job_of(self.selected_row()) if self.panes.focused != "nodes" else None
        return job.ref if job is not None else None

    def selected_object(self) -> str:
        """Return the selected node while the node bar is focused."""
        return self.panes.node

    def targets(self) -> Sequence[JobRef]:
        """Return the marked jobs while the list is focused, otherwise the current one."""
        marks = self.query_one(Table).marks if self.panes.focused == "list" else ()
        return [self._by_uid[key].ref for key in marks if key in self._by_uid] or super().targets()

    def hidden_targets(self) -> int:
        """Return the number of marked jobs hidden by the filter."""
        return self.query_one(Table).hidden_marks if self.panes.focused == "list" else 0

    def copy_text(self) -> str:
        """Return the names of the focused rows or nodes."""
        words = self.panes.copy_text()
        return super().copy_text() if words is None else words

    def action_faults(self) -> None:
        """Toggle showing only jobs with faults."""
        self._only_faults = not self._only_faults
        self.refresh_view()


def missing_text(missing: Sequence[Missing], width: int) -> str:
    """Describe missing data in at most `NOTICE_LINES` lines.

    Of several resources refused for one reason, the first is described and as many others named as fit.

    Args:
        missing: Data that could not be read.
        width: Line width in cells.
    """
    if not missing:
        return ""
    first = min(missing, key=lambda each: (bool(each.shown), each.verb != "read"))
    others = [
        each.resource
        for each in missing
        if each is not first and (bool(each.shown), each.verb) == (bool(first.shown), first.verb)
    ]
    text = " ".join(sanitize(first.words).split())
    for named in range(len(others), -1, -1):
        words = f"{text}{_same_for(others, named)}"
        if _fits(words, width):
            return words
    # The server's words alone are too long.
    tail = f"…{_same_for(others, 0) or f' More: {_ALL}'}"
    text = text[: NOTICE_LINES * max(width, 1)]
    while text and not _fits(text + tail, width):
        text = text[:-1]
    return text + tail


def _same_for(others: Sequence[str], named: int) -> str:
    if not others:
        return ""
    left = len(others) - named
    names = ", ".join(others[:named])
    more = f"{' … and ' * bool(named)}{left} more: {_ALL}" if left else "."
    return f" The same for {names}{more}"


def _fits(text: str, width: int) -> bool:
    return len(wrapped(text, max(width, 1))) <= NOTICE_LINES


def format_totals(snapshot: ClusterSnapshot) -> str:
    """Summarise all jobs."""
    jobs = snapshot.jobs
    held, waiting = gpu_totals(jobs)
    gpus = devices(held, held_shares(snapshot.nodes, jobs))
    return f"Σ {plural(len(jobs), 'job')} · {gpus} held · {waiting} requested and waiting"


def _age_s(job: Job, signs: LifeSigns, now: datetime) -> float:
    since = job.started if job.status is Status.RUNNING else None
    if signs.silence is not None:
        since = max(signs.silence.since, since or signs.silence.since)
    return (now - (since or job.created or now)).total_seconds()
