"""Home: every job, its status in one honest word, and why it is not running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from textual.binding import BindingType

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Job, Missing
from k8s.status import Status
from tui.format import NOTHING, STATUS_LOOKS, Clock, count, plural
from tui.keys import JOBS, Key
from tui.screens.kept_rows import KeptRows
from tui.screens.list_view import ListView, progress_of
from tui.screens.view import bindings
from tui.widgets.table import Cell, Column, Row, Table

COLUMNS = (
    Column("name", "NAME", min_width=16, elide="middle", max_width=48),
    Column("namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20),
    Column("kind", "KIND", priority=3, elide="end", min_width=6),
    Column("status", "STATUS", min_width=11),
    Column("gpus", "GPUS", align="right"),
    Column("pods", "PODS", align="right", priority=1),
    Column("ranks", "RANKS", align="right", priority=5),
    Column("nodes", "NODES", priority=6, elide="end", min_width=10, max_width=28),
    Column("user", "USER", priority=7, elide="end", min_width=4, max_width=14),
    Column("age", "AGE", align="right"),
)
_QUIET_REASONS = (Status.SUCCEEDED, Status.SUSPENDED)


class JobsView(ListView):
    """The list of jobs."""

    KEYS: ClassVar[tuple[Key, ...]] = JOBS
    BINDINGS: ClassVar[list[BindingType]] = bindings(JOBS)
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS

    def __init__(self, *, ascii_only: bool = False) -> None:
        """Make the view: the newest jobs first."""
        super().__init__(ascii_only=ascii_only)
        self.set_reactive(ListView.order, ("age", False))
        self._kept: KeptRows[Job] = KeptRows()
        self._labels: dict[str, Mapping[str, str]] = {}

    def on_mount(self) -> None:
        """Let ages grow though nothing changes."""
        self.set_interval(10, self.redraw)

    def draw(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""
        snapshot = self.snapshot
        clock = Clock.ahead(snapshot.clock_offset_s)
        by, is_turned = self.order
        jobs = sorted(snapshot.jobs, key=_SORTS[by], reverse=is_turned)
        table.set_sort_mark(by, descending=is_turned)
        table.empty = _empty(snapshot)
        is_one = bool(snapshot.namespace)
        columns = [column for column in self.COLUMNS if column.key != "namespace" or not is_one]
        rows = self._kept.rows(
            jobs,
            lambda job: _row(job, clock, is_one_namespace=is_one, ascii_only=self.ascii_only),
            drawn_for=(is_one, self.ascii_only, clock.is_rough),
            now_s=clock.now.timestamp(),
            age_s=lambda job: _age_s(job, clock.now),
        )
        if len(columns) == len(table.columns):
            table.set_rows(rows)
        else:
            table.set_columns(columns, rows)
        self._labels = {job.uid: job.labels for job in snapshot.jobs if job.labels}
        self._say(snapshot)

    def _say(self, snapshot: ClusterSnapshot) -> None:
        table = self.query_one(Table)
        parts = [f"Jobs ({count(table.row_count)} of {count(len(snapshot.jobs))})", *progress_of(snapshot)]
        if self.filter_text:
            parts.append(f"/{self.filter_text}")
        if table.marks:
            hidden = f", {table.hidden_marks} hidden by the filter" if table.hidden_marks else ""
            parts.append(f"{len(table.marks)} marked{hidden}")
        self.set_title("  ".join(parts))
        waiting = sum(
            job.gpus_requested - job.gpus_allocated for job in snapshot.jobs if not job.status.is_final
        )
        self.put(
            "totals",
            f"Σ {plural(len(snapshot.jobs), 'job')} · {snapshot.gpus_allocated} GPUs held"
            f" · {waiting} requested and waiting",
        )
        self.put("notice", snapshot.stale or _missing_words(snapshot.missing_jobs))

    def labels_of(self, key: str) -> Mapping[str, str]:
        """Return a job's labels."""
        return self._labels.get(key, {})

    def _chosen(self) -> list[JobRef]:
        """Return the marked jobs, or the one under the cursor."""
        table = self.query_one(Table)
        keys = table.marks or ((table.cursor_key,) if table.cursor_key else ())
        by_uid = {job.uid: job.ref for job in self.snapshot.jobs}
        return [by_uid[key] for key in keys if key in by_uid]

    def _under_cursor(self) -> list[JobRef]:
        key = self.query_one(Table).cursor_key
        return [job.ref for job in self.snapshot.jobs if job.uid == key]

    def _go(self, where: str, refs: list[JobRef]) -> None:
        if refs:
            self.post_message(self.Go(where, refs=refs))

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Open the job."""
        event.stop()
        self._go("open", self._under_cursor())

    def on_table_marked(self, event: Table.Marked) -> None:
        """Count the marks."""
        event.stop()
        self._say(self.snapshot)

    def action_logs(self) -> None:
        """Show the logs of the job under the cursor."""
        self._go("logs", self._under_cursor())

    def action_curves(self) -> None:
        """Show the curves of the job under the cursor."""
        self._go("curves", self._under_cursor())

    def action_open(self) -> None:
        """Open the job under the cursor."""
        self._go("open", self._under_cursor())

    def action_why(self) -> None:
        """Show why the job under the cursor is as it is."""
        self._go("why", self._under_cursor())

    def action_yaml(self) -> None:
        """Show the object of the job under the cursor."""
        self._go("yaml", self._under_cursor())

    def action_new_job(self) -> None:
        """Fill in a new job."""
        self.post_message(self.Go("new"))

    def action_delete(self) -> None:
        """Ask whether to delete what is marked, or the job under the cursor."""
        self._go("delete", self._chosen())

    def action_all_namespaces(self) -> None:
        """Show all namespaces, or again only ours."""
        self.post_message(self.Go("ns", "" if not self.snapshot.namespace else "all"))

    def action_next_view(self) -> None:
        """Go to the nodes."""
        self.post_message(self.Go("nodes"))


def _empty(snapshot: ClusterSnapshot) -> str:
    if not snapshot.is_synced:
        return snapshot.progress or "Reading the cluster…"
    where = f"in namespace {snapshot.namespace}" if snapshot.namespace else "on this cluster"
    return f"No jobs {where}.\nPress n for a new one, 0 for all namespaces."


def _missing_words(missing: Sequence[Missing]) -> str:
    """Say what is missing in one line or two: of many kinds refused for one reason, the first."""
    if not missing:
        return ""
    first = min(missing, key=lambda each: bool(each.shown))
    others = [
        each.resource for each in missing if each is not first and bool(each.shown) == bool(first.shown)
    ]
    return first.words + (f" The same for {', '.join(others)}." if others else "")


def _row(job: Job, clock: Clock, *, is_one_namespace: bool, ascii_only: bool) -> Row:
    gpus = (
        f"{job.gpus_allocated}/{job.gpus_requested}" if job.gpus_requested or job.gpus_allocated else NOTHING
    )
    pods = f"{job.instances_running}/{len(job.instances)}"
    is_loud = bool(job.reason) and job.status not in _QUIET_REASONS
    elbow = "`-" if ascii_only else "└"
    return Row(
        job.uid,
        (
            Cell(job.ref.name, "bright" if not job.status.is_final else ""),
            *(() if is_one_namespace else (Cell(job.ref.namespace, "quiet"),)),
            Cell(job.ref.kind, "quiet"),
            Cell(_status_words(job, clock), STATUS_LOOKS[job.status]),
            Cell(gpus),
            Cell(pods),
            Cell(str(job.ranks_total) if job.ranks_total else NOTHING, "quiet"),
            Cell(", ".join(job.nodes) or NOTHING, "quiet"),
            Cell(job.user or NOTHING, "quiet"),
            Cell(clock.age(job.created), "quiet"),
        ),
        f"{elbow} {job.reason}" if is_loud else None,
    )


def _age_s(job: Job, now: datetime) -> float:
    """Return the smallest of the ages that a job's row tells and that still grow."""
    since = job.started if job.status is Status.RUNNING else None
    return (now - (since or job.created or now)).total_seconds()


def _status_words(job: Job, clock: Clock) -> str:
    """Return the status, and for how long it runs or ran."""
    if job.started is None or job.status not in (Status.RUNNING, Status.SUCCEEDED):
        return str(job.status)
    return f"{job.status} {clock.age(job.started, job.finished)}"


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_SORTS = {
    "name": lambda job: (job.ref.name, job.ref.namespace),
    "age": lambda job: -(job.created or _LONG_AGO).timestamp() if job.created else 0.0,
    "status": lambda job: (list(Status).index(job.status), job.ref.name),
}
