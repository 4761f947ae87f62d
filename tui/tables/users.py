"""The list of users, each followed by their jobs."""

from __future__ import annotations

from dataclasses import dataclass

from k8s.text.sanitize import sanitize
from tui.jobs.idle_report import JobUsage, UserUsage
from tui.tables.column import Cell, ListColumn, Values, amount_cell
from tui.text.format import NOTHING, CellStyle, plural


@dataclass(frozen=True, slots=True)
class UserLine:
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
