"""Home: every job, its status in one honest word, and why it is not running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from k8s.snapshot import ClusterSnapshot, Job, Missing
from k8s.status import Status
from tui.feeds.preview_text import status_words
from tui.jobs.filters import FilteredJobs, filter_jobs, gpu_totals, is_loud, own_names, silent_ranks
from tui.screens.base.list_view import ListView, progress_of
from tui.text.empty_states import no_faults, no_jobs, only_older
from tui.text.format import NOTHING, Clock, Run, compact_ranges, count, plural
from tui.widgets.table.row_cache import RowCache
from tui.widgets.table.table import Cell, Column, Row, Table

if TYPE_CHECKING:
    from k8s.kinds import JobRef

COLUMNS = (
    Column("name", "NAME", min_width=16, elide="middle", max_width=48),
    Column("namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20),
    Column("kind", "KIND", priority=3, elide="end", min_width=10),
    Column("status", "STATUS", min_width=11, flashes=True),
    Column("gpus", "GPUS", align="right", sorts_largest_first=True, flashes=True),
    Column("pods", "PODS", align="right", priority=1, sorts_largest_first=True, flashes=True),
    Column("ranks", "RANKS", align="right", priority=5, sorts_largest_first=True),
    Column("nodes", "NODES", priority=6, elide="end", min_width=10, max_width=28),
    Column("user", "USER", priority=7, elide="end", min_width=4, max_width=14),
    Column("age", "AGE", align="right", is_age=True),
    Column("reason", "REASON", elide="end", min_width=10, max_width=120),
)
_STATUSES = tuple(Status)


class JobsView(ListView):
    """The list of jobs."""

    NAME: ClassVar[str] = "jobs"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = ("age", False)
    ON_ENTER: ClassVar[str] = "open_job"
    PREVIEWS: ClassVar[bool] = True

    def __init__(self) -> None:
        """Make the view."""
        super().__init__()
        self._kept: RowCache[Job] = RowCache()
        self._by_uid: dict[str, Job] = {}
        self._only_faults = False
        self._created: JobRef | None = None
        """The job to put the cursor on once its row comes."""

    def on_mount(self) -> None:
        """Let ages grow though nothing changes."""
        for table in self.query(Table):
            self.watch(table, "is_wide", self.redraw, init=False)
        if self.route is not None and self.route.argument == "all":
            self.context.switches["older"] = True
        self.set_interval(10, self.redraw)

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
        columns = tuple(column for column in self.COLUMNS if column.key not in left_out)
        rows = self._kept.rows(
            chosen.jobs,
            lambda job: _row(job, columns, clock, has_detail=not table.is_wide),
            drawn_for=(columns, clock.is_rough),
            now_s=clock.now.timestamp(),
            age_s=lambda job: _age_s(job, clock.now),
        )
        if columns == table.columns:
            table.set_rows(rows)
        else:
            table.set_columns(columns, rows)
        self._go_to_created(table)
        self._say(chosen)

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
        return filter_jobs(
            snapshot.jobs,
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
        if chosen.older:
            return only_older(chosen.older, self.context.finished_days)
        return no_faults(len(snapshot.jobs))

    def _say(self, chosen: FilteredJobs) -> None:
        table, snapshot = self.query_one(Table), self.snapshot
        shown, total = count(table.row_count), count(len(snapshot.jobs))
        which = ", ".join(filter(None, ("mine" * chosen.is_mine, "faults" * self._only_faults)))
        amount = total if not which and shown == total else f"{shown} of {total}"
        parts = [f"Jobs ({which} {amount})" if which else f"Jobs ({amount})", *progress_of(snapshot)]
        if self.context.switches.get("mine") and not chosen.is_mine and snapshot.jobs:
            parts.append("none is known to be yours, so all are shown")
        if chosen.older:
            parts.append(f"{count(chosen.older)} older hidden")
        if self.filter_text:
            parts.append(f"/{self.filter_text}")
        if table.marks:
            hidden = f", {table.hidden_marks} hidden by the filter" if table.hidden_marks else ""
            parts.append(f"{len(table.marks)} marked{hidden}")
        self.set_title("  ".join(parts))
        held, waiting = gpu_totals(snapshot.jobs)
        self.put(
            "totals",
            f"Σ {plural(len(snapshot.jobs), 'job')} · {plural(held, 'GPU')} held"
            f" · {waiting} requested and waiting",
        )
        self.put("notice", snapshot.stale or _missing_words(snapshot.missing_jobs))

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Tell of the row; whoever moves the cursor is not taken elsewhere after that."""
        self._created = None
        super().on_table_row_highlighted(event)

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
            row[place : place + 1] = [str(job.status), _duration_s(job, now)]
        return [*titles[: place + 1], "DURATION", *titles[place + 1 :]], rows

    def subject(self, key: str | None) -> Job | None:
        """Return the job of a row."""
        return self._by_uid.get(key or "")

    def current_job(self) -> JobRef | None:
        """Return the job under the cursor."""
        job = self.subject(self.selected_row())
        return job.ref if job is not None else None

    def targets(self) -> Sequence[JobRef]:
        """Return the marked jobs, or the one under the cursor."""
        marks = self.query_one(Table).marks
        return [self._by_uid[key].ref for key in marks if key in self._by_uid] or super().targets()

    def hidden_targets(self) -> int:
        """Return how many of the marked jobs the filter hides."""
        return self.query_one(Table).hidden_marks

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

    def _turn(self, switch: str) -> None:
        self.context.switches[switch] = not self.context.switches.get(switch, False)
        self.redraw()

    def action_faults(self) -> None:
        """Show only the jobs that need somebody, or all."""
        self._only_faults = not self._only_faults
        self.redraw()


def _missing_words(missing: Sequence[Missing]) -> str:
    """Say what is missing in one line or two: of many kinds refused for one reason, the first."""
    if not missing:
        return ""
    first = min(missing, key=lambda each: bool(each.shown))
    others = [
        each.resource for each in missing if each is not first and bool(each.shown) == bool(first.shown)
    ]
    return first.words + (f" The same for {', '.join(others)}." if others else "")


def _row(job: Job, columns: Sequence[Column], clock: Clock, *, has_detail: bool) -> Row:
    is_told = is_loud(job)
    requested, allocated = job.gpus_requested, job.gpus_allocated
    running, pods = job.instances_running, len(job.instances)
    cells = {
        "name": Cell(job.ref.name, "bright" if not job.status.is_final else ""),
        "namespace": Cell(job.ref.namespace, "quiet"),
        "kind": Cell(job.ref.kind, "quiet"),
        "status": Cell(*status_words(job, clock), sort=float(_STATUSES.index(job.status))),
        "gpus": Cell(
            f"{allocated}/{requested}" if requested or allocated else NOTHING, sort=float(requested)
        ),
        "pods": Cell(f"{running}/{pods}", sort=float(pods)),
        "ranks": _ranks(job),
        "nodes": Cell(compact_ranges(job.nodes) or NOTHING, "quiet"),
        "user": Cell(job.user or NOTHING, "quiet"),
        "age": Cell(clock.age(job.created), "quiet", sort=-job.created.timestamp() if job.created else None),
        "reason": Cell(job.reason or NOTHING, "" if is_told else "quiet"),
    }
    detail = f"└ {job.reason}" if is_told and has_detail else None
    return Row(job.uid, tuple(cells[column.key] for column in columns), detail)


def _ranks(job: Job) -> Cell:
    """Count a job's ranks, and those that are silent: `8 !1`."""
    silent, total = silent_ranks(job), job.ranks_total
    runs: tuple[Run, ...] = ((str(total) if total else NOTHING, "quiet"),)
    return Cell.of(*runs, *(((f" !{silent}", "failed"),) if silent else ()), sort=float(total))


def _age_s(job: Job, now: datetime) -> float:
    """Return the smallest of the ages that a job's row tells and that still grow."""
    since = job.started if job.status is Status.RUNNING else None
    return (now - (since or job.created or now)).total_seconds()


def _duration_s(job: Job, now: datetime) -> int | None:
    """Return how long a job runs or ran; None when it has not started."""
    return None if job.started is None else max(0, int(((job.finished or now) - job.started).total_seconds()))
