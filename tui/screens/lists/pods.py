"""The list of pods, of the user's jobs or of all."""

from __future__ import annotations

from typing import ClassVar

from k8s.kinds import JobRef
from k8s.models import Pod
from k8s.snapshot import Instance, Job
from tui.screens.base.feed_view import AGES_S
from tui.screens.base.list_view import ListView, progress_of
from tui.screens.lists import PODS
from tui.settings.keys import ViewDeclaration
from tui.tables.column import ListColumn, Row, cells
from tui.tables.filters import filter_jobs, own_names
from tui.tables.pods import COLUMNS, PodLine, ready_text
from tui.text.empty_states import ELSEWHERE, no_cluster
from tui.text.format import Clock, count, plural
from tui.widgets.table.row_set import RowCache
from tui.widgets.table.table import Table

# Toggle of this session, as long as the console is open.
ALL_USERS = "pods.all_users"


class PodsView(ListView):
    """Pods of jobs; those of no job are not listed."""

    VIEW: ClassVar[ViewDeclaration] = PODS
    ON_ENTER: ClassVar[str] = "open_job"
    COLUMNS: ClassVar[tuple[ListColumn[PodLine, Clock], ...]] = COLUMNS
    KEEPS_ROW: ClassVar[bool] = True
    NO_JOB: ClassVar[str] = "No pod is selected."

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, PodLine] = {}
        self._row_cache: RowCache[PodLine] = RowCache()

    def on_mount(self) -> None:
        """Refresh the ages."""
        self.set_interval(AGES_S, self.refresh_view)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        snapshot, clock = self.snapshot, Clock.ahead(self.snapshot.clock_offset_s)
        is_mine = not self.context.switches.get(ALL_USERS, False)
        users = own_names(snapshot.user)
        chosen = filter_jobs(snapshot.jobs, users, clock.now, only_mine=is_mine, with_older=True)
        pods = self.session.mirror.pods if self.session is not None else {}
        self._lines = {
            each.pod_uid: self._line(job, each, pods.get(each.pod_uid))
            for job in chosen.jobs
            for each in job.instances
            if each.pod
        }
        columns = self.columns_of(COLUMNS, ("namespace",) if snapshot.namespace else ())
        rows = self._row_cache.rows(
            self._lines.values(),
            lambda line: Row(line.instance.pod_uid, cells(line, clock, columns)),
            drawn_for=(columns, clock.is_rough),
            now_s=clock.now.timestamp(),
            age_s=lambda line: (clock.now - (line.instance.created or clock.now)).total_seconds(),
        )
        missing = snapshot.problems.get("pods")
        table.empty = self._empty(is_refused=missing is not None and not missing.shown)
        table.set_columns(columns, rows)
        self._write_lines(len(rows), table.row_count, is_mine=is_mine, has_mine=chosen.is_mine)
        self.set_line("notice", snapshot.stale or (missing.words if missing is not None else ""))

    def _line(self, job: Job, instance: Instance, pod: Pod | None) -> PodLine:
        before, ready = self._lines.get(instance.pod_uid), ready_text(pod)
        if before is not None and before.instance is instance and before.ready == ready:
            return before
        return PodLine(job.ref, instance, ready, pod.metadata if pod is not None else None)

    def _empty(self, *, is_refused: bool) -> str:
        if words := no_cluster(self.snapshot):
            return words
        place = self.snapshot.namespace
        where = f"in namespace {place}" if place else "on this cluster"
        if is_refused:
            return f"This user may not list pods {where}.\n{ELSEWHERE}"
        more = "0 shows all namespaces · " if place else ""
        return f"No job has a pod {where}.\n{more}M shows the pods of all users · tab shows the jobs"

    def _write_lines(self, total: int, shown: int, *, is_mine: bool, has_mine: bool) -> None:
        which = "mine " * has_mine
        amount = count(total) if shown == total else f"{count(shown)} of {count(total)}"
        unknown = "none is known to be yours; showing all" if is_mine and not has_mine and total else ""
        self.set_list_title(f"Pods ({which}{amount})", unknown, *progress_of(self.snapshot))
        jobs = len({line.job for line in self._lines.values()})
        held = (each.instance for each in self._lines.values() if each.instance.node)
        gpus = sum(each.gpus for each in held if not each.status.is_final)
        self.set_line("totals", f"Σ {plural(total, 'pod')} of {plural(jobs, 'job')} · {plural(gpus, 'GPU')}")

    def action_mine(self) -> None:
        """Toggle between the pods of the user's jobs and those of all."""
        self.context.switches[ALL_USERS] = not self.context.switches.get(ALL_USERS, False)
        self.refresh_view()

    def current_job(self) -> JobRef | None:
        """Return the job of the pod under the cursor."""
        line = self._lines.get(self.selected_row())
        return line.job if line is not None else None

    def selected_instance(self) -> str:
        """Return the instance of the pod under the cursor."""
        line = self._lines.get(self.selected_row())
        return line.instance.name if line is not None else ""

    def selected_object(self) -> str:
        """Return the pod under the cursor as `pod/NAME`."""
        line = self._lines.get(self.selected_row())
        return f"pod/{line.instance.pod}" if line is not None else ""
