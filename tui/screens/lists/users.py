"""The idle report: GPUs held by each user's jobs, and their observed idle time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from k8s.kinds import JobRef
from k8s.text.sanitize import sanitize
from tui.jobs.idle_report import (
    IdleLedger,
    JobUsage,
    UserUsage,
    format_hours,
    format_observed,
    held_nodes,
    message_to_owner,
    usage_by_user,
)
from tui.keys import ViewDeclaration
from tui.screens.base.telemetry_list import TelemetryList
from tui.screens.lists import USERS
from tui.text.empty_states import no_cluster
from tui.text.format import NOTHING, CellStyle, plural
from tui.text.gpu_words import missing_text, source_text
from tui.widgets.table.table import Cell, Column, Row, Table

COLUMNS = (
    Column("user", "USER", elide="middle", min_width=8, max_width=24),
    Column("job", "JOB", elide="middle", min_width=12, max_width=40),
    Column("namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20),
    Column("held", "HELD", align="right", sorts_largest_first=True),
    Column("requested", "REQUESTED", align="right", priority=3, sorts_largest_first=True),
    Column("idle", "IDLE NOW", align="right", priority=1, sorts_largest_first=True),
    Column("idle_hours", "IDLE GPU-H", align="right", sorts_largest_first=True),
    Column("observed", "OF OBSERVED", align="right", priority=2, sorts_largest_first=True),
)
# Between user and job in a row's key; not allowed in names.
_SEPARATOR = "\x1f"


class UsersView(TelemetryList):
    """Users, each followed by their jobs."""

    VIEW: ClassVar[ViewDeclaration] = USERS
    ON_ENTER: ClassVar[str] = "open_job"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = None

    def __init__(self) -> None:
        super().__init__(self._held_nodes)
        self._users: tuple[UserUsage, ...] = ()

    def _held_nodes(self) -> list[str]:
        return held_nodes(self.snapshot.jobs, self.snapshot.nodes)

    @property
    def _ledger(self) -> IdleLedger:
        feed = self._telemetry.feed
        return feed.ledger if feed is not None else IdleLedger()

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        snapshot, telemetry = self.snapshot, self._telemetry.newest
        table.empty = no_cluster(snapshot) or "No user holds or waits for GPUs here.\n0 shows all namespaces"
        self._users = usage_by_user(snapshot.jobs, telemetry.gpus, self._ledger, snapshot.nodes)
        table.set_rows([row for user in self._users for row in _rows(user)])
        self.set_list_title(f"Users ({len(self._users)})", *self._title_parts())
        self.set_line("notice", snapshot.stale or self._why_not())
        self.set_line("totals", self._totals())
        self._telemetry.follow()

    def _title_parts(self) -> tuple[str, str]:
        read = source_text(self._telemetry.newest.nodes.values(), datetime.now(UTC))
        observed = format_observed(self._ledger)
        return f"observed {observed}" if observed else "nothing observed yet", read

    def _why_not(self) -> str:
        """Explain why idle time is unknown, for all or some nodes."""
        wanted = self._held_nodes()
        nodes = self._telemetry.newest.nodes
        missing = [
            each.missing for name in wanted if (each := nodes.get(name)) and each.missing and not each.gpus
        ]
        if not missing:
            return ""
        some = f"{len(missing)} of {plural(len(wanted), 'node')} with held GPUs"
        return f"Idle is not known for {some}: {missing_text(missing[0])}"

    def _totals(self) -> str:
        held = sum(each.total.gpus_held for each in self._users)
        requested = sum(each.total.gpus_requested for each in self._users)
        idle = [each.total.idle_hours for each in self._users if each.total.idle_hours is not None]
        hours = f"{format_hours(sum(idle))} GPU-hours idle" if idle else "idle hours not known"
        users, gpus = plural(len(self._users), "user"), plural(held, "GPU")
        return f"Σ {users} · {gpus} held · {requested - held} waited for · {hours} · c: message"

    def _under_cursor(self) -> tuple[UserUsage, JobUsage] | None:
        key = self.selected_row()
        for user in self._users:
            for usage in (user.total, *user.jobs):
                if _key(usage) == key:
                    return user, usage
        return None

    def current_job(self) -> JobRef | None:
        """Return the job under the cursor."""
        found = self._under_cursor()
        if found is None or not found[1].job:
            return None
        usage = found[1]
        wanted = (usage.namespace, usage.kind, usage.job)
        refs = (job.ref for job in self.snapshot.jobs)
        return next((ref for ref in refs if (ref.namespace, ref.kind, ref.name) == wanted), None)

    def action_request(self, name: str) -> None:
        """Request an action; on a user's row, point to the jobs below."""
        if name == self.ON_ENTER and self.current_job() is None:
            self.flash("This is the user's total; select a job below.")
        else:
            super().action_request(name)

    def copy_text(self) -> str:
        """Return a message to the owner of the row under the cursor."""
        found = self._under_cursor()
        if found is None:
            return ""
        user, usage = found
        return message_to_owner(usage, user.jobs, format_observed(self._ledger))


def _key(usage: JobUsage) -> str:
    return _SEPARATOR.join((usage.user, usage.namespace, usage.kind, usage.job))


def _rows(user: UserUsage) -> list[Row]:
    return [_row(user.total, plural(len(user.jobs), "job")), *(_row(each, each.job) for each in user.jobs)]


def _row(usage: JobUsage, job: str) -> Row:
    is_user = not usage.job
    quiet: CellStyle = "bright" if is_user else "quiet"
    return Row(
        _key(usage),
        (
            Cell(sanitize(usage.user), quiet),
            Cell(sanitize(job), "quiet" if is_user else ""),
            Cell(sanitize(usage.namespace) or NOTHING, "quiet"),
            Cell(str(usage.gpus_held), quiet if is_user else "", sort=usage.gpus_held),
            Cell(str(usage.gpus_requested), "quiet", sort=usage.gpus_requested),
            _idle_now(usage),
            Cell(
                format_hours(usage.idle_hours),
                "pending" if usage.idle_hours else "quiet",
                sort=-1.0 if usage.idle_hours is None else usage.idle_hours,
            ),
            Cell(format_hours(usage.observed_hours or None), "quiet", sort=usage.observed_hours),
        ),
    )


def _idle_now(usage: JobUsage) -> Cell:
    if usage.gpus_idle is None:
        return Cell(NOTHING, "quiet", sort=-1.0)
    words = (
        str(usage.gpus_idle)
        if usage.gpus_seen == usage.gpus_held
        else f"{usage.gpus_idle} of {usage.gpus_seen}"
    )
    return Cell(words, "pending" if usage.gpus_idle else "quiet", sort=float(usage.gpus_idle))
