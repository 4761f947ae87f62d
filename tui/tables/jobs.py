"""The list of jobs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from k8s.snapshot import NO_SIGNS, Job, LifeSigns
from k8s.status import BEING_READ, Status
from tui.tables.column import Cell, ListColumn, Row, Values, cells
from tui.tables.filters import is_loud, silent_ranks
from tui.text.format import (
    NOTHING,
    CellStyle,
    Clock,
    Run,
    age,
    compact_ranges,
    duration,
    number,
    reason_text,
    seconds_since,
    status_run,
    timestamp,
)

if TYPE_CHECKING:
    from k8s.reasons.failures import Triage
    from tui.runs.record import RunRecord

# Width of the number, so that the bars of all jobs are aligned.
NUMBER_CELLS = 6
_STATUSES = tuple(Status)


class JobsNow(msgspec.Struct, frozen=True):
    """State shared by all jobs of the list."""

    clock: Clock
    losses: Mapping[str, Sequence[float]] = msgspec.field(default_factory=dict)
    """Loss history by job uid."""
    run: Callable[[str], RunRecord | None] = lambda _uid: None
    """Returns the record of an ended job by its uid."""
    signs: Callable[[Job], LifeSigns] = lambda _job: NO_SIGNS
    """Returns the trouble in the output of a job."""

    def reason(self, job: Job) -> str:
        """Return the reason of a job and the trouble in its output."""
        return reason_text(job, self.signs(job), self.clock)


def status_text(job: Job, now: JobsNow) -> Run:
    """Return a job's status with its duration, and the style."""
    if job.reason == BEING_READ:
        return "reading…", "quiet"
    words, look = status_run(job.status, job.reason, _restarts(job))
    if now.signs(job).is_trouble and look in ("running", "done"):
        words, look = f"! {words}", "pending"
    if job.started is None or job.status not in (Status.RUNNING, Status.SUCCEEDED):
        return words, look
    return f"{words} {now.clock.age(job.started, job.finished)}", look


def _restarts(job: Job) -> int:
    """Return the restarts of the job, or the most restarts of one of its pods."""
    return max([job.restarts, *(each.restarts for each in job.instances)])


def duration_s(job: Job, now: datetime) -> int | None:
    """Return a job's run time so far; None before its first container starts, or if its end is unknown."""
    end = job.finished if job.status.is_final else now
    return None if job.started is None or end is None else seconds_since(job.started, end)


def queued_s(job: Job, now: datetime) -> int | None:
    """Return the time from a job's creation to the start of its first container, or until now.

    None if unknown: for owners of pods that are not jobs, whose first pods may be long gone, and while
    a job is suspended or restarts with new pods.
    """
    if job.created is None or not (job.replicas or job.ref.kind == "Pod"):
        return None
    if job.started is None and (job.restarts or job.status is Status.SUSPENDED):
        return None
    end = job.started or (job.finished if job.status.is_final else now)
    return None if end is None else seconds_since(job.created, end)


def duration_text(job: Job, now: datetime) -> str:
    """Format a job's run time in whole seconds, the API's resolution."""
    return span_text(duration_s(job, now))


def span_text(seconds: int | None) -> str:
    """Format a number of seconds."""
    return age(seconds) if seconds is not None and seconds < 10 else duration(seconds)


def loss_cell(values_by_uid: Mapping[str, Sequence[float]], uid: str) -> Cell:
    """Return a job's last loss and its trend."""
    values = values_by_uid.get(uid, ())
    if not values:
        return Cell(NOTHING, "quiet")
    from tui.text.sparkline import BROKEN, trend

    last = values[-1]
    is_broken = not math.isfinite(last)
    style: CellStyle = "failed" if is_broken else ""
    bars = BROKEN if is_broken else trend(values)
    words = _short(last).ljust(NUMBER_CELLS if bars else 0)
    return Cell.of((words, style), (f" {bars}" if bars else "", style or "quiet"), sort=last)


def _recorded(job: Job, now: JobsNow) -> RunRecord | None:
    run = now.run(job.uid) if job.status.is_final else None
    return None if run is None or run.is_partial else run


def _loss(job: Job, now: JobsNow) -> Cell:
    run = _recorded(job, now) if job.uid not in now.losses else None
    if run is not None and run.loss is not None:
        return loss_cell({job.uid: (run.loss,)}, job.uid)
    return loss_cell(now.losses, job.uid)


def _last_loss(job: Job, now: JobsNow) -> float | None:
    values, run = now.losses.get(job.uid, ()), _recorded(job, now)
    return values[-1] if values else run.loss if run is not None else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None  # JSON has no other numbers


def _best_loss(job: Job, now: JobsNow) -> float | None:
    run = _recorded(job, now)
    found = [value for value in now.losses.get(job.uid, ()) if math.isfinite(value)]
    if run is not None and (best := run.best_of(run.loss_tag)) is not None:
        found.append(best)
    return min(found, default=None)


def _best(job: Job, now: JobsNow) -> Cell:
    best = _best_loss(job, now)
    return Cell(NOTHING, "quiet") if best is None else Cell(_short(best), sort=best)


def silent_s(job: Job, now: JobsNow) -> int | None:
    """Return the age of the newest line or metric of a silent job or of its silent ranks; else None."""
    silence = now.signs(job).silence
    return seconds_since(silence.since, now.clock.now) if silence is not None else None


def _short(value: float) -> str:
    ways = (number(value), f"{value:.2g}", f"{value:.0e}")
    return next((words for words in ways if len(words) <= NUMBER_CELLS), ways[-1])


def _kind(job: Job, _now: JobsNow) -> Cell:
    """Return a kind in two runs; a narrow column drops the second: `PyTorch`, `TrainingJob`."""
    kind = job.ref.kind
    short = re.sub(r"(?<=.)(Training)?Job$", "", kind)
    return Cell.of((short, "quiet"), (kind[len(short) :], "quiet"))


def _short_kind(kind: str) -> str:
    from tui.text.kind_words import short_kind  # kinds are not imported before the first frame

    return short_kind(kind)


def _gpus(job: Job, _now: JobsNow) -> Cell:
    requested, allocated = job.gpus_requested, job.gpus_allocated
    if job.reason == BEING_READ:
        return _open(requested if job.replicas else 0)
    part = f"{job.gpu_fraction:g}" if job.gpu_fraction else NOTHING
    return Cell(f"{allocated}/{requested}" if requested or allocated else part, sort=float(requested))


def _pods(job: Job, _now: JobsNow) -> Cell:
    if job.reason == BEING_READ:
        return _open(len(job.replicas))
    return Cell(f"{job.instances_running}/{len(job.instances)}", sort=float(len(job.instances)))


def _open(total: int) -> Cell:
    return Cell(f"…/{total}" if total else "…", "quiet", sort=float(total))


def _ranks(job: Job, _now: JobsNow) -> Cell:
    silent, total = silent_ranks(job), job.ranks_total
    runs: tuple[Run, ...] = ((str(total) if total else NOTHING, "quiet"),)
    return Cell.of(*runs, *(((f" !{silent}", "failed"),) if silent else ()), sort=float(total))


# In the order of the console; commands print the namespace first.
COLUMNS: tuple[ListColumn[Job, JobsNow], ...] = (
    ListColumn(
        "name", "NAME", min_width=16, good_width=24, elide="middle", max_width=48,
        cell=lambda job, _: Cell(job.ref.name, "bright" if not job.status.is_final else ""),
        value=lambda job, _: job.ref.name, printed="table",
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=2, elide="end", min_width=9, max_width=20,
        value=lambda job, _: job.ref.namespace, printed="table",
    ),
    ListColumn(
        "kind", "KIND", priority=4, elide="runs", min_width=8, json="kind api_version",
        values=lambda job, _: {"kind": job.ref.kind, "api_version": job.ref.api_version},
        cell=_kind, printed="table", narrow_cell=_short_kind, is_optional=True,
    ),
    ListColumn(
        "status", "STATUS", min_width=11, flashes=True,
        cell=lambda job, now: Cell(*status_text(job, now), sort=float(_STATUSES.index(job.status))),
        value=lambda job, _: str(job.status), printed="table", text=lambda job, _: str(job.status),
    ),
    ListColumn(
        "gpus", "GPUS", align="right", sorts_largest_first=True, flashes=True, cell=_gpus,
    ),
    ListColumn(
        "pods", "PODS", align="right", priority=1, sorts_largest_first=True, flashes=True,
        cell=_pods,
        printed="table", json="instances_running instances_total gpu_fraction",
        values=lambda job, _: {
            "instances_running": job.instances_running, "instances_total": len(job.instances),
            "gpu_fraction": job.gpu_fraction,
        },
    ),
    ListColumn(
        "gpus_requested", "GPU(Requested)", align="right", in_console=False,
        value=lambda job, _: job.gpus_requested, printed="table", narrow_title="GPU",
    ),
    ListColumn(
        "gpus_allocated", "GPU(Allocated)", align="right", in_console=False,
        value=lambda job, _: job.gpus_allocated, printed="table", narrow_title="HELD",
    ),
    ListColumn(
        "duration", "DURATION", align="right", in_console=False,
        cell=lambda job, now: Cell(duration_text(job, now.clock.now)),
        value=lambda job, now: duration_s(job, now.clock.now), json="duration_s",
        printed="table", narrow_title="TIME",
    ),
    ListColumn(
        "queued", "QUEUED", align="right", in_console=False,
        cell=lambda job, now: Cell(span_text(queued_s(job, now.clock.now))),
        value=lambda job, now: queued_s(job, now.clock.now), json="queued_s", printed="wide",
    ),
    ListColumn("ranks", "RANKS", align="right", priority=5, sorts_largest_first=True, cell=_ranks),
    ListColumn(
        "loss", "LOSS", priority=3, elide="runs", min_width=NUMBER_CELLS, good_width=16, max_width=16,
        cell=_loss, value=lambda job, now: _finite(_last_loss(job, now)), printed="wide",
        text=lambda job, now: number(_last_loss(job, now)),
    ),
    ListColumn(
        "best_loss", "BEST", align="right", priority=8, min_width=NUMBER_CELLS,
        cell=_best, value=_best_loss, printed="wide", text=lambda job, now: number(_best_loss(job, now)),
    ),
    ListColumn(
        "silent_s", "SILENT", align="right", in_console=False, printed="wide", json="silent silent_s",
        cell=lambda job, now: Cell(age(silent_s(job, now))),
        values=lambda job, now: {"silent": silent_s(job, now) is not None, "silent_s": silent_s(job, now)},
    ),
    ListColumn(
        "nodes", "NODES", priority=6, elide="end", min_width=10, max_width=28,
        cell=lambda job, _: Cell(compact_ranges(job.nodes) or NOTHING, "quiet"),
        value=lambda job, _: list(job.nodes),
        printed="table", is_optional=True, text=lambda job, _: ",".join(job.nodes) or NOTHING,
    ),
    ListColumn(
        "user", "USER", priority=7, elide="end", min_width=4, max_width=14,
        value=lambda job, _: job.user, printed="wide",
    ),
    ListColumn("priority", "PRIORITY", in_console=False, value=lambda job, _: job.priority, printed="wide"),
    ListColumn(
        "age", "AGE", align="right", is_age=True,
        cell=lambda job, now: Cell.of_age(job.created, now.clock),
        printed="wide", json="age_s created",
        values=lambda job, now: {
            "age_s": seconds_since(job.created, now.clock.now), "created": timestamp(job.created),
        },
    ),
    ListColumn(
        "reason", "REASON", elide="end", min_width=10, max_width=120,
        cell=lambda job, now: Cell(
            now.reason(job) or NOTHING, "" if is_loud(job, now.signs(job)) else "quiet"
        ),
        value=lambda job, now: now.reason(job), printed="wide",
    ),
)  # fmt: skip
# What `top jobs` prints, about GPUs alone.
TOP_KEYS = (
    "namespace", "name", "kind", "status", "gpus_requested", "gpus_allocated", "age", "user", "nodes",
)  # fmt: skip


def job_row(job: Job, columns: Sequence[ListColumn[Job, JobsNow]], now: JobsNow, *, has_detail: bool) -> Row:
    """Return the row of a job; `has_detail` puts an urgent reason on a second line."""
    detail = f"└ {now.reason(job)}" if has_detail and is_loud(job, now.signs(job)) else None
    return Row(job.uid, cells(job, now, columns), detail)


def failure_values(failure: Triage | None) -> Values | None:
    """Return a triaged failure as JSON; None if there is none."""
    if failure is None:
        return None
    return {
        "rank": failure.rank,
        "instance": failure.instance,
        "reason": failure.reason,
        "error": failure.error,
        "cause": failure.cause.name if failure.cause is not None else "",
        "sentence": failure.sentence,
        "remedy": failure.remedy,
        "saw": failure.saw,
        "time": timestamp(failure.first_error_at),
        "traceback": list(failure.traceback),
        "others": list(failure.others),
    }
