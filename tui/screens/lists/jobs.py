"""Home: every job, its status in one honest word, and why it is not running.

Above it the nodes, below it or beside it what the job under the cursor says, as far as there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Label

from k8s.snapshot import ClusterSnapshot, Job
from tui.jobs.filters import FilteredJobs, filter_jobs, own_names
from tui.keys import Key
from tui.screens.base.list_view import ListView, progress_of
from tui.screens.base.request import ActionRequest
from tui.screens.lists.home_keys import bar_keys, pane_keys
from tui.screens.lists.home_layout import HomeLayout, PaneName, has_room
from tui.screens.lists.home_light import jobs_on
from tui.screens.lists.home_panes import HomePanes
from tui.screens.lists.job_rows import COLUMNS, age_s, duration_s, job_row, missing_words, totals_words
from tui.text.empty_states import no_faults, no_jobs, only_older
from tui.text.format import Clock, count
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_strip import NodeStrip
from tui.widgets.key_bar import KeyBar
from tui.widgets.table.row_cache import RowCache
from tui.widgets.table.table import Column, Table

if TYPE_CHECKING:
    from k8s.kinds import JobRef
    from trainer.tfevents import ScalarCurve
    from tui.feeds.loss_feed import LossFeed
    from tui.screens.base.log_saves import LogSaves
    from tui.widgets.log.view import LogView


class JobsView(ListView):
    """The list of jobs."""

    NAME: ClassVar[str] = "jobs"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = ("age", False)
    ON_ENTER: ClassVar[str] = "open_job"
    KEEPS_ROW: ClassVar[bool] = True
    CSS_PATH: ClassVar[list[str | PurePath]] = [Path(__file__).with_name("jobs.tcss")]

    def __init__(self) -> None:
        """Make the view."""
        super().__init__()
        self._kept: RowCache[Job] = RowCache()
        self._by_uid: dict[str, Job] = {}
        self._only_faults = False
        self._created: JobRef | None = None
        """The job to put the cursor on once its row comes."""
        self._panes: HomePanes | None = None
        self._losses: LossFeed | None = None
        self._saves: LogSaves | None = None
        self._context_name = ""

    @property
    def panes(self) -> HomePanes:
        """The panes around the list; made when the context is known."""
        if self._panes is None:
            self._panes = HomePanes(lambda: self.context, lambda: self.query_one(Table), self._loss_of)
        return self._panes

    def compose_heading(self) -> ComposeResult:
        """Lay out the nodes above the title."""
        yield self.panes.strip
        yield from super().compose_heading()

    def compose_body(self) -> ComposeResult:
        """Lay out the list, and what the job under the cursor says."""
        yield Label("", id="notice", markup=False)
        with Container(id="home"):
            yield Table(self.COLUMNS)
            yield self.panes.job_pane

    @property
    def keys(self) -> tuple[Key, ...]:
        """Return the keys that act on what has the focus."""
        context = self.context
        of_nodes = context.keys(context.actions.keys("strip"))
        return pane_keys(self.panes.focused, super().keys, of_nodes, context.actions)

    def action_request(self, name: str) -> None:
        """Ask for what makes sense on what has the focus, otherwise say why it makes none."""
        if problem := self.panes.refusal(self.context.actions.find(name)):
            self.flash(problem, "warning")
        else:
            super().action_request(name)

    @property
    def bar_keys(self) -> tuple[Key, ...]:
        """Return the keys of the line below: those of the pane that has the focus first."""
        has_layouts = has_room(*self.app.size)
        return bar_keys(self.panes.focused, super().bar_keys, self.context.keymap, has_room=has_layouts)

    def on_mount(self) -> None:
        """Let ages grow though nothing changes."""
        for table in self.query(Table):
            self.watch(table, "is_wide", self.redraw, init=False)
        if self.route is not None and self.route.argument == "all":
            self.context.switches["older"] = True
        self.watch(self, "focused", self._show_keys, init=False)
        self.set_interval(10, self.redraw)

    def _show_keys(self) -> None:
        for bar in self.query(KeyBar):
            bar.show(self.bar_keys)
        if self.panes.focused == "nodes":  # each row of the list asks for itself
            self.ask_permissions()

    def on_resize(self) -> None:
        """Show the panes that there is room for."""
        if self.is_drawable:
            self.panes.arrange(self.app.size, self.snapshot.context)
            self._show_keys()
            self.redraw()

    def on_screen_resume(self) -> None:
        """Let the job's pane go on."""
        super().on_screen_resume()
        self.panes.job_pane.consider()
        if self.is_drawable:
            self._follow_losses(self.query_one(Table))

    def on_screen_suspend(self) -> None:
        """Ask for nothing while something covers it, be it a question."""
        super().on_screen_suspend()
        self.panes.job_pane.consider()
        self._stop_losses()

    def show_preview(self) -> None:
        """Tell the panes what is under the cursor."""
        if self.is_drawable:
            self.panes.show_soon(self.subject(self.query_one(Table).cursor_key), self.snapshot)

    def watch_snapshot(self) -> None:
        """Show the new picture; of another context with the panes that were chosen there."""
        if self._context_name != self.snapshot.context:
            self._context_name = self.snapshot.context
            self.on_resize()
        self.redraw()

    def action_preview(self) -> None:
        """Go to the next layout."""
        self.flash(self.panes.cycle(self.snapshot.context))
        self.redraw()

    def action_focus_pane(self, name: PaneName) -> None:
        """Give the keys to a pane."""
        if problem := self.panes.focus(name):
            self.flash(problem)
        self.redraw()

    def on_node_strip_node_highlighted(self, event: NodeStrip.NodeHighlighted) -> None:
        """Point at the jobs of the node."""
        event.stop()
        self.show_preview()

    def on_node_strip_node_selected(self, event: NodeStrip.NodeSelected) -> None:
        """List only the jobs of the node; where that is so already, show the node among the others."""
        event.stop()
        if self.panes.filter_to_cursor():
            self.post_message(ActionRequest("nodes", self.panes.nodes_argument))
        else:
            self.redraw()

    def on_job_pane_logs_wanted(self, event: JobPane.LogsWanted) -> None:
        """Show the log in full."""
        event.stop()
        if (job := self.current_job()) is not None:
            self.post_message(ActionRequest("logs", targets=[job], instance=event.instance))

    def on_log_view_copy(self, event: LogView.Copy) -> None:
        """Have the lines of the job's pane copied."""
        event.stop()
        self.post_message(ActionRequest("copy", event.text))

    def on_log_view_save(self, event: LogView.Save) -> None:
        """Save all of the log that is shown in part."""
        from tui.screens.base.log_saves import LogSaves

        event.stop()
        folder, shown, job = self.context.log_folder, self.panes.job_pane.shown_log, self.current_job()
        if folder is not None and shown is not None and job is not None:
            self._saves = self._saves or LogSaves()
            self._saves.begin(self.app, folder, job.name, *shown, event.view)

    def step_back(self) -> bool:
        """List the jobs of all nodes again, go back to the list, or clear the filter."""
        if self.panes.clear_filter():
            self.redraw()
        elif self.panes.strip.has_focus or self.panes.job_pane.holds_focus:
            self.focus_body()
        else:
            return super().step_back()
        return True

    def draw(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""
        snapshot = self.snapshot
        clock = Clock.ahead(snapshot.clock_offset_s)
        chosen = self._choose(snapshot, clock.now)
        self._by_uid = {job.uid: job for job in snapshot.jobs}
        table.empty = self._empty(snapshot, chosen)
        left_out = {"namespace"} if snapshot.namespace else set[str]()
        if not table.is_wide:
            left_out.add("reason")
        losses = self._follow_losses(table)
        if losses is None:
            left_out.add("loss")
        columns = tuple(column for column in self.COLUMNS if column.key not in left_out)
        rows = self._kept.rows(
            chosen.jobs,
            lambda job: job_row(job, columns, clock, losses or {}, has_detail=not table.is_wide),
            drawn_for=(columns, clock.is_rough),
            now_s=clock.now.timestamp(),
            age_s=lambda job: age_s(job, clock.now),
        )
        if columns == table.columns:
            table.set_rows(rows)
        else:
            table.set_columns(columns, rows)
        self._go_to_created(table)
        self._say(chosen)

    def _follow_losses(self, table: Table) -> Mapping[str, Sequence[float]] | None:
        """Have the loss of the jobs in sight read; return what is known, None where nobody wants to know."""
        if not self.context.switches.get("loss", self.context.has_loss):
            self._stop_losses()
            return None
        client = self.context.client()
        is_other = self._losses is not None and self._losses.client is not client
        if (self._losses is None or is_other) and client is not None and self.is_shown:
            from tui.feeds.loss_feed import LossFeed

            self._stop_losses()
            self._losses = LossFeed(client, self.context.permissions(), self._take_loss)
        if self._losses is None:
            return {}
        jobs = (self._by_uid.get(row.key) for row in table.rows_in_sight)
        self._losses.want([job for job in jobs if job is not None])
        is_read = any(each.group == "losses" and not each.is_finished for each in self.workers)
        if self.app.screen is self and not is_read:
            self._read_losses(self._losses)
        return self._losses.values

    @work(group="losses", exclusive=True)
    async def _read_losses(self, losses: LossFeed) -> None:
        await losses.run()

    def _loss_of(self, uid: str) -> ScalarCurve | None:
        return self._losses.curves.get(uid) if self._losses is not None else None

    def _take_loss(self, job: Job) -> None:
        self._kept.renew(self._by_uid.get(job.uid, job))
        self.redraw()

    def _stop_losses(self) -> None:
        self.workers.cancel_group(self, "losses")

    def action_loss(self) -> None:
        """Show the loss of running jobs, or not."""
        self._turn("loss", self.context.has_loss)

    def go_to_created(self, ref: JobRef) -> None:
        """Put the cursor on a job that was created, as soon as the cluster lists it."""
        self._created = ref
        self.redraw()

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
            only_mine=switches.get("mine", False),
            only_faults=self._only_faults,
            with_older=switches.get("older", False),
            finished_days=self.context.finished_days,
        )

    def _empty(self, snapshot: ClusterSnapshot, chosen: FilteredJobs) -> str:
        if not snapshot.jobs:
            return no_jobs(snapshot, is_read_only=self.context.is_read_only)
        if self.panes.nodes and not chosen.older and not self._only_faults:
            return f"No job has a pod on {self.panes.nodes_words}.\nesc shows all jobs."
        if chosen.older:
            return only_older(chosen.older, self.context.finished_days)
        return no_faults(len(snapshot.jobs))

    def _say(self, chosen: FilteredJobs) -> None:
        table, snapshot = self.query_one(Table), self.snapshot
        shown, total = count(table.row_count), count(len(snapshot.jobs))
        which = ", ".join(filter(None, ("mine" * chosen.is_mine, "faults" * self._only_faults)))
        amount = total if not which and shown == total else f"{shown} of {total}"
        number = "" if self.panes.layout is HomeLayout.LIST else "2 "
        shown_words = f"{which} {amount}" if which else amount
        parts = [f"{number}Jobs ({shown_words})", *progress_of(snapshot)]
        if self.context.switches.get("mine") and not chosen.is_mine and snapshot.jobs:
            parts.append("none is known to be yours, so all are shown")
        if chosen.older:
            parts.append(f"{count(chosen.older)} older hidden")
        if self.panes.nodes:
            parts.append(f"on {self.panes.nodes_words} (esc: all)")
        if self.filter_text:
            parts.append(f"/{self.filter_text}")
        if table.marks:
            hidden = f", {table.hidden_marks} hidden by the filter" if table.hidden_marks else ""
            parts.append(f"{len(table.marks)} marked{hidden}")
        self.set_title("  ".join(parts))
        self.put("totals", totals_words(snapshot.jobs))
        self.put("notice", snapshot.stale or missing_words(snapshot.missing_jobs, self.size.width - 2))

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Read the loss of what came into sight; go to no job that was created after that."""
        self._created = None
        self._follow_losses(event.table)

    def labels_of(self, key: str) -> Mapping[str, str]:
        """Return a job's labels."""
        job = self._by_uid.get(key)
        return job.labels if job is not None else {}

    def export_rows(self) -> tuple[list[str], list[list[str | int | None]]]:
        """Return what the table shows; how long a job runs or ran is a column of its own, in seconds."""
        titles, rows = super().export_rows()
        place = titles.index("STATUS")
        now = Clock.ahead(self.snapshot.clock_offset_s).now
        for row, shown in zip(rows, self.query_one(Table).shown_rows, strict=True):
            job = self._by_uid[shown.key]
            row[place : place + 1] = [str(job.status), duration_s(job, now)]
        return [*titles[: place + 1], "DURATION", *titles[place + 1 :]], rows

    def subject(self, key: str | None) -> Job | None:
        """Return the job of a row."""
        return self._by_uid.get(key or "")

    def current_job(self) -> JobRef | None:
        """Return the job under the cursor; none while the cursor that is seen is on a node."""
        job = self.subject(self.selected_row()) if self.panes.focused != "nodes" else None
        return job.ref if job is not None else None

    def selected_object(self) -> str:
        """Return the node that has the focus."""
        return self.panes.node

    def targets(self) -> Sequence[JobRef]:
        """Return the marked jobs while the list has the focus, otherwise the one that has it."""
        marks = self.query_one(Table).marks if self.panes.focused == "list" else ()
        return [self._by_uid[key].ref for key in marks if key in self._by_uid] or super().targets()

    def hidden_targets(self) -> int:
        """Return how many of the marked jobs the filter hides."""
        return self.query_one(Table).hidden_marks if self.panes.focused == "list" else 0

    def copy_text(self) -> str:
        """Return the names of what has the focus."""
        words = self.panes.copy_text()
        return super().copy_text() if words is None else words

    def on_table_row_marked(self, event: Table.RowMarked) -> None:
        """Count the marks."""
        event.stop()
        self.redraw()

    def action_mine(self) -> None:
        """Show my jobs only, or all, for as long as the console runs."""
        self._turn("mine")

    def action_older(self) -> None:
        """Show also the jobs that finished long ago, or not."""
        self._turn("older")

    def _turn(self, switch: str, by_default: bool = False) -> None:
        self.context.switches[switch] = not self.context.switches.get(switch, by_default)
        self.redraw()

    def action_faults(self) -> None:
        """Show only the jobs that need somebody, or all."""
        self._only_faults = not self._only_faults
        self.redraw()
