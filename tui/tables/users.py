"""GPUs held, requested and idle by user and job, now and in the ledger, and the lists of users. Pure.

Whether an unobserved GPU is idle is unknown: None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from k8s.gpus.gpu_warnings import IDLE_PERCENT, uses_of
from k8s.gpus.readings import GpuReading
from k8s.snapshot import Job, NodeRow, shares_by_pod
from k8s.text.sanitize import sanitize
from tui.runs.journal.ledger import GpuTime, LedgerEntry
from tui.tables.column import Cell, ListColumn, Values, amount_cell
from tui.text.format import NOTHING, CellStyle, age, devices, plural

MOST_NAMES = 5


class JobUsage(msgspec.Struct, frozen=True):
    """GPU usage of one job, or of all jobs of a user."""

    user: str
    namespace: str = ""
    job: str = ""
    """Empty for all jobs of the user."""
    kind: str = ""
    gpus_held: int = 0
    gpus_requested: int = 0
    """GPUs that it holds or waits for."""
    shares_held: int = 0
    """Those of `gpus_held` that are parts of GPUs."""
    gpus_seen: int = 0
    gpus_idle: int | None = None
    """None if none of its GPUs is observed."""
    uid: str = ""
    """Only in the ledger, where jobs may have the same name."""
    time: GpuTime = GpuTime()
    """GPU time in the window of a ledger."""


class UserUsage(msgspec.Struct, frozen=True):
    """GPU usage of one user, in total and by job."""

    total: JobUsage
    jobs: tuple[JobUsage, ...]


def _usage_of(job: Job) -> JobUsage:
    return JobUsage(job.user or job.ref.namespace, job.ref.namespace, job.ref.name, job.ref.kind)


def held_nodes(jobs: Iterable[Job], nodes: Iterable[NodeRow]) -> list[str]:
    """Return the names of the nodes whose GPUs these jobs hold."""
    held = {each.node for job in jobs for each in job.instances if each.gpus}
    return [node.name for node in nodes if node.name in held and node.gpus_allocated]


def usage_by_user(
    jobs: Sequence[Job], gpus: Iterable[GpuReading], nodes: Sequence[NodeRow] = ()
) -> tuple[UserUsage, ...]:
    """Return the GPUs that each user's jobs hold, wait for and leave idle; most idle GPUs first.

    Args:
        jobs: The jobs to report.
        gpus: The newest readings of the observed GPUs.
        nodes: Name a GPU's holders if its source does not.
    """
    seen: dict[str, tuple[int, int]] = {}
    for _, is_idle, uids in uses_of(jobs, gpus, nodes):
        for uid in uids:
            gpus_seen, gpus_idle = seen.get(uid, (0, 0))
            seen[uid] = gpus_seen + 1, gpus_idle + is_idle
    shares = shares_by_pod(nodes)
    found: dict[str, list[JobUsage]] = {}
    for job in jobs:
        usage, requested = _usage_of(job), job.gpus_allocated + job.gpus_waiting
        if not requested:
            continue
        gpus_seen, gpus_idle = seen.get(job.uid, (0, 0))
        found.setdefault(usage.user, []).append(
            replace(
                usage,
                gpus_held=job.gpus_allocated,
                gpus_requested=requested,
                shares_held=sum(shares.get((job.ref.namespace, each.pod), 0) for each in job.instances),
                gpus_seen=gpus_seen,
                gpus_idle=gpus_idle if gpus_seen else None,
            )
        )
    users = [
        UserUsage(_sum(user, usages), tuple(sorted(usages, key=_most_idle))) for user, usages in found.items()
    ]
    return tuple(sorted(users, key=lambda each: _most_idle(each.total)))


def ledger_by_user(entries: Iterable[LedgerEntry]) -> tuple[UserUsage, ...]:
    """Return the GPU time of each user and their jobs, the most GPU-hours first."""
    found: dict[str, list[JobUsage]] = {}
    for each in entries:
        usage = JobUsage(each.user, each.namespace, each.name, each.kind, uid=each.uid, time=each.time)
        found.setdefault(each.user, []).append(usage)
    users = [
        UserUsage(_sum(user, usages), tuple(sorted(usages, key=_longest))) for user, usages in found.items()
    ]
    return tuple(sorted(users, key=lambda each: _longest(each.total)))


def hours_by_kind(jobs: Iterable[JobUsage]) -> dict[str, float]:
    """Return the GPU-hours that jobs of each kind held, the most first."""
    found: dict[str, float] = {}
    for each in jobs:
        found[each.kind] = found.get(each.kind, 0.0) + each.time.held_gpu_s
    return {kind: _hours(found[kind]) for kind in sorted(found, key=lambda each: (-found[each], each))}


def _hours(seconds: float) -> float:
    return round(seconds / 3600, 4)


def _sum(user: str, usages: Sequence[JobUsage]) -> JobUsage:
    idle_now = [each.gpus_idle for each in usages if each.gpus_idle is not None]
    return JobUsage(
        user,
        gpus_held=sum(each.gpus_held for each in usages),
        gpus_requested=sum(each.gpus_requested for each in usages),
        shares_held=sum(each.shares_held for each in usages),
        gpus_seen=sum(each.gpus_seen for each in usages),
        gpus_idle=sum(idle_now) if idle_now else None,
        time=GpuTime.total(each.time for each in usages),
    )


def _most_idle(usage: JobUsage) -> tuple[int, int, str, str]:
    return -(usage.gpus_idle or 0), -usage.gpus_held, usage.user, usage.job


def _longest(usage: JobUsage) -> tuple[float, float, str, str]:
    return -usage.time.held_gpu_s, -usage.time.waited_s, usage.user, usage.job


def message_to_owner(usage: JobUsage, jobs: Sequence[JobUsage] = ()) -> str:
    """Return a text to send to the owner of GPUs: observations only, and a question.

    Args:
        usage: One job, or a user's total.
        jobs: The jobs of a user's total.
    """
    gpus = devices(usage.gpus_held, usage.shares_held)
    if usage.job:
        holder, it = f"{usage.job} in namespace {usage.namespace} holds {gpus}", "it uses"
        question = "Does it still need them?"
    else:
        names = [each.job for each in jobs if each.gpus_held]
        listed = f" ({', '.join(names[:MOST_NAMES])}{', …' * (len(names) > MOST_NAMES)})" if names else ""
        holder, it = (
            f"your {plural(len(names), 'job')}{listed} hold{'s' * (len(names) == 1)} {gpus}",
            "they use",
        )
        question = "Do they still need them?"
    if usage.gpus_idle is None:
        return f"Hi {usage.user}, {holder}; whether {it} them is not known. {question}"
    seen = f"{usage.gpus_idle} of {usage.gpus_seen} seen are idle now"
    return f"Hi {usage.user}, {holder}; {seen} (below {IDLE_PERCENT:.0f} % utilisation). {question}"


class UserLine(msgspec.Struct, frozen=True):
    """A user's total, or one of the user's jobs."""

    usage: JobUsage
    jobs: int = 0

    @property
    def is_total(self) -> bool:
        """Return True for a user's total."""
        return not self.usage.job

    @property
    def style(self) -> CellStyle:
        """Return the style of the user's name and, in a total, of the sum."""
        return "bright" if self.is_total else "quiet"


def lines_of(user: UserUsage) -> tuple[UserLine, ...]:
    """Return the total of a user, and the jobs."""
    return UserLine(user.total, len(user.jobs)), *map(UserLine, user.jobs)


def _job(line: UserLine, _: None) -> Cell:
    if line.is_total:
        return Cell(plural(line.jobs, "job"), "quiet")
    return Cell(sanitize(line.usage.job))


def _job_values(line: UserLine, _: None) -> Values:
    usage = line.usage
    return {} if line.is_total else {"namespace": usage.namespace, "name": usage.job, "kind": usage.kind}


def _idle_now(line: UserLine, _: None) -> Cell:
    usage = line.usage
    if usage.gpus_idle is None:
        return Cell(NOTHING, "quiet", sort=-1.0)
    seen = f" of {usage.gpus_seen}" if usage.gpus_seen != usage.gpus_held else ""
    style: CellStyle = "pending" if usage.gpus_idle else "quiet"
    return Cell(f"{usage.gpus_idle}{seen}", style, sort=float(usage.gpus_idle))


COLUMNS: tuple[ListColumn[UserLine, None], ...] = (
    ListColumn(
        "user", "USER", elide="middle", min_width=8, max_width=24,
        cell=lambda line, _: Cell(sanitize(line.usage.user), line.style),
        value=lambda line, _: line.usage.user, printed="table", text=lambda line, _: line.usage.user,
    ),
    ListColumn(
        "job", "JOB", elide="middle", min_width=12, max_width=40,
        cell=_job,
        printed="table", text=lambda line, _: f"{'' if line.is_total else '  '}{_job(line, _).text}",
        values=_job_values,
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20,
        cell=lambda line, _: Cell(sanitize(line.usage.namespace) or NOTHING, "quiet"),
        printed="table",
    ),
    ListColumn(
        "held", "HELD", align="right", sorts_largest_first=True,
        cell=lambda line, _: amount_cell(
            line.usage.gpus_held, line.usage.shares_held, "bright" if line.is_total else ""
        ),
        printed="table",
        values=lambda line, _: {"gpus_held": line.usage.gpus_held, "shares_held": line.usage.shares_held},
    ),
    ListColumn(
        "requested", "REQUESTED", align="right", priority=3, sorts_largest_first=True,
        cell=lambda line, _: amount_cell(line.usage.gpus_requested, line.usage.shares_held, "quiet"),
        value=lambda line, _: line.usage.gpus_requested, json="gpus_requested", printed="table",
    ),
    ListColumn(
        "idle", "IDLE NOW", align="right", priority=1, sorts_largest_first=True,
        cell=_idle_now,
        printed="table",
        text=lambda line, _: (
            NOTHING if line.usage.gpus_idle is None else f"{line.usage.gpus_idle} of {line.usage.gpus_seen}"
        ),
        values=lambda line, _: {"gpus_observed": line.usage.gpus_seen, "gpus_idle": line.usage.gpus_idle},
    ),
)  # fmt: skip


def _idle_hours(line: UserLine, _: None) -> Cell:
    time = line.usage.time
    if not time.seen_gpu_s:
        return Cell(NOTHING, "quiet")
    return Cell(f"{time.idle_gpu_s / 3600:,.2f} of {time.seen_gpu_s / 3600:,.2f}")


def _idle_hours_values(line: UserLine, _: None) -> Values:
    time = line.usage.time
    idle = _hours(time.idle_gpu_s) if time.seen_gpu_s else None
    return {"gpu_hours_with_telemetry": _hours(time.seen_gpu_s), "gpu_hours_idle": idle}


def share_text(share: float) -> str:
    """Return a share in percent; only nothing is 0 %, and only everything 100 %."""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "<1 %" if share < 0.5 else ">99 %"
    return f"{share * 100:.0f} %"


LEDGER_COLUMNS: tuple[ListColumn[UserLine, None], ...] = (
    *COLUMNS[:3],
    ListColumn("kind", "KIND", cell=lambda line, _: Cell(line.usage.kind or NOTHING), printed="table"),
    ListColumn(
        "held", "GPU-HOURS", align="right",
        cell=lambda line, _: Cell(f"{line.usage.time.held_gpu_s / 3600:,.2f}"),
        value=lambda line, _: _hours(line.usage.time.held_gpu_s), json="gpu_hours", printed="table",
    ),
    ListColumn(
        "waited", "WAITED", align="right",
        cell=lambda line, _: Cell(age(line.usage.time.waited_s)),
        values=lambda line, _: {
            "hours_waited": _hours(line.usage.time.waited_s),
            "gpu_hours_waited": _hours(line.usage.time.waited_gpu_s),
        },
        printed="table",
    ),
    ListColumn(
        "idle", "IDLE", align="right", cell=_idle_hours, values=_idle_hours_values, printed="table"
    ),
    ListColumn(
        "observed", "OBSERVED", align="right",
        cell=lambda line, _: Cell(share_text(line.usage.time.observed_share)),
        value=lambda line, _: round(line.usage.time.observed_share, 6), json="observed_share",
        printed="table",
    ),
    ListColumn("uid", "UID", values=lambda line, _: {} if line.is_total else {"uid": line.usage.uid}),
)  # fmt: skip
