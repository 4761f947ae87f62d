"""The list of pods of jobs."""

from __future__ import annotations

import msgspec

from k8s.kinds import JobRef
from k8s.models import Meta, Pod
from k8s.snapshot import Instance
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.tables.column import Cell, ListColumn
from tui.text.format import NOTHING, Clock, status_run

_STATUSES = tuple(Status)


class PodLine(msgspec.Struct, frozen=True):
    """A pod of a job."""

    job: JobRef
    instance: Instance
    ready: str
    """Ready containers of all, `1/2`; empty if unknown."""
    metadata: Meta | None = None


def ready_text(pod: Pod | None) -> str:
    """Count ready containers as kubectl does, with sidecars; empty without a pod."""
    if pod is None:
        return ""
    sidecars = {each.name for each in pod.spec.init_containers or () if each.restart_policy == "Always"}
    started = [
        *(pod.status.container_statuses or ()),
        *(each for each in pod.status.init_container_statuses or () if each.name in sidecars),
    ]
    return f"{sum(each.ready for each in started)}/{len(pod.spec.containers) + len(sidecars)}"


def _status(line: PodLine, _: Clock) -> Cell:
    each = line.instance
    text, style = status_run(each.status, each.reason, each.restarts)
    return Cell(text, style, sort=float(_STATUSES.index(each.status)))


COLUMNS: tuple[ListColumn[PodLine, Clock], ...] = (
    ListColumn(
        "name", "NAME", min_width=16, good_width=24, elide="middle", max_width=60,
        cell=lambda line, _: Cell(
            sanitize(line.instance.pod), "" if line.instance.status.is_final else "bright"
        ),
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=5, elide="end", min_width=9, max_width=20,
        value=lambda line, _: line.job.namespace,
    ),
    ListColumn(
        "job", "JOB", priority=4, elide="middle", min_width=10, max_width=40,
        value=lambda line, _: line.job.name,
    ),
    ListColumn("status", "STATUS", min_width=9, flashes=True, cell=_status),
    ListColumn(
        "ready", "READY", align="right", priority=1, flashes=True, value=lambda line, _: line.ready
    ),
    ListColumn(
        "restarts", "RESTARTS", align="right", priority=2, sorts_largest_first=True, flashes=True,
        cell=lambda line, _: Cell(
            str(line.instance.restarts), "pending" if line.instance.restarts else "quiet",
            sort=float(line.instance.restarts),
        ),
    ),
    ListColumn(
        "gpus", "GPUS", align="right", sorts_largest_first=True,
        cell=lambda line, _: Cell(str(line.instance.gpus or NOTHING), sort=float(line.instance.gpus)),
    ),
    ListColumn(
        "node", "NODE", priority=3, elide="end", min_width=8, max_width=28,
        value=lambda line, _: line.instance.node,
    ),
    ListColumn(
        "age", "AGE", align="right", is_age=True,
        cell=lambda line, clock: Cell.of_age(line.instance.created, clock),
    ),
    ListColumn(
        "reason", "REASON", priority=6, elide="end", min_width=10, max_width=120,
        value=lambda line, _: line.instance.reason,
    ),
)  # fmt: skip
