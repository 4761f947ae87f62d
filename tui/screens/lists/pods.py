"""The list of pods, of the user's jobs or of all."""

from __future__ import annotations

from typing import Any

from k8s.kinds import JobRef
from k8s.models import Pod
from k8s.snapshot import ClusterSnapshot, Instance, Job
from tui.screens.base.feed_view import DescribedList, ListContent, ListDescription
from tui.screens.base.list_view import progress_of
from tui.screens.lists import PODS
from tui.tables.column import Row, cells
from tui.tables.filters import filter_jobs, own_names
from tui.tables.pods import COLUMNS, PodLine, ready_text
from tui.text.empty_states import ELSEWHERE, no_cluster
from tui.text.format import Clock, plural
from tui.widgets.table.row_set import RowCache


def pods_view() -> DescribedList:
    """Return the list of pods of jobs; those of no job are not listed."""
    lines: dict[str, PodLine] = {}
    row_cache: RowCache[PodLine] = RowCache()

    def line_of(job: Job, instance: Instance, pod: Pod | None) -> PodLine:
        before, ready = lines.get(instance.pod_uid), ready_text(pod)
        if before is not None and before.instance is instance and before.ready == ready:
            return before
        return PodLine(job.ref, instance, ready, pod.metadata if pod is not None else None)

    def content(view: DescribedList, columns: Any) -> ListContent:
        nonlocal lines
        snapshot, clock = view.snapshot, Clock.ahead(view.snapshot.clock_offset_s)
        is_mine = not view.context.switches.get("pods.all_users", False)
        users = own_names(snapshot.user)
        chosen = filter_jobs(snapshot.jobs, users, clock.now, only_mine=is_mine, with_older=True)
        found = view.session.mirror.pods if view.session is not None else {}
        lines = {
            each.pod_uid: line_of(job, each, found.get(each.pod_uid))
            for job in chosen.jobs
            for each in job.instances
            if each.pod
        }
        rows = row_cache.rows(
            lines.values(),
            lambda line: Row(line.instance.pod_uid, cells(line, clock, columns)),
            drawn_for=(columns, clock.is_rough),
            now_s=clock.now.timestamp(),
            age_s=lambda line: (clock.now - (line.instance.created or clock.now)).total_seconds(),
        )
        missing = snapshot.problems.get("pods")
        is_other = is_mine and not chosen.is_mine and bool(rows)
        unknown = "none is known to be yours; showing all" if is_other else ""
        jobs = len({line.job for line in lines.values()})
        held = (each.instance for each in lines.values() if each.instance.node)
        gpus = sum(each.gpus for each in held if not each.status.is_final)
        return ListContent(
            rows=rows,
            title=[f"Pods ({'mine ' * chosen.is_mine}{{}})", unknown, *progress_of(snapshot)],
            totals=f"Σ {plural(len(rows), 'pod')} of {plural(jobs, 'job')} · {plural(gpus, 'GPU')}",
            empty=_empty(snapshot, is_refused=missing is not None and not missing.shown),
            notice=snapshot.stale or (missing.words if missing is not None else ""),
            is_complete=snapshot.is_synced,
        )

    def job_of(_view: DescribedList, key: str) -> JobRef | None:
        return lines[key].job if key in lines else None

    return DescribedList(
        ListDescription(
            view=PODS,
            columns=COLUMNS,
            content=content,
            on_enter="open_job",
            no_job="No pod is selected.",
            keeps_row=True,
            is_namespaced=True,
            job_of=job_of,
            object_of=lambda key: f"pod/{lines[key].instance.pod}" if key in lines else "",
            instance_of=lambda key: lines[key].instance.name if key in lines else "",
        )
    )


def _empty(snapshot: ClusterSnapshot, *, is_refused: bool) -> str:
    if words := no_cluster(snapshot):
        return words
    where = f"in namespace {snapshot.namespace}" if snapshot.namespace else "on this cluster"
    if is_refused:
        return f"This user may not list pods {where}.\n{ELSEWHERE}"
    more = "0 shows all namespaces · " if snapshot.namespace else ""
    return f"No job has a pod {where}.\n{more}M shows the pods of all users · tab shows the jobs"
