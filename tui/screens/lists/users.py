"""The GPUs that each user's jobs hold, request and leave idle."""

from __future__ import annotations

from datetime import UTC, datetime

from k8s.kinds import JobRef
from tui.screens.base.telemetry_list import TelemetryList
from tui.screens.lists import USERS
from tui.settings.keys import ViewDeclaration
from tui.tables.column import ListColumn, Row, cells
from tui.tables.users import (
    COLUMNS,
    JobUsage,
    UserLine,
    UserUsage,
    held_nodes,
    lines_of,
    message_to_owner,
    usage_by_user,
)
from tui.text.empty_states import no_cluster
from tui.text.format import devices, plural
from tui.text.gpu_words import missing_text, source_text
from tui.widgets.table.table import Table

# Between user and job in a row's key; not allowed in names.
_SEPARATOR = "\x1f"


class UsersView(TelemetryList):
    """Users, each followed by their jobs."""

    VIEW: ViewDeclaration = USERS
    ON_ENTER: str = "open_job"
    NO_JOB: str = "This is the user's total; select a job below."
    COLUMNS: tuple[ListColumn[UserLine, None], ...] = COLUMNS
    ORDER: tuple[str, bool] | None = None

    def __init__(self) -> None:
        super().__init__(self._held_nodes)
        self._users: tuple[UserUsage, ...] = ()

    def _held_nodes(self) -> list[str]:
        return held_nodes(self.snapshot.jobs, self.snapshot.nodes)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        snapshot, telemetry = self.snapshot, self._telemetry.newest
        table.empty = no_cluster(snapshot) or "No user holds or waits for GPUs here.\n0 shows all namespaces"
        self._users = usage_by_user(snapshot.jobs, telemetry.gpus, snapshot.nodes)
        columns = self.columns_of(COLUMNS)
        table.set_columns(
            columns,
            [
                Row(_key(line.usage), cells(line, None, columns))
                for user in self._users
                for line in lines_of(user)
            ],
        )
        read = source_text(self._telemetry.newest.nodes.values(), datetime.now(UTC))
        self.set_list_title(f"Users ({len(self._users)})", read)
        self.set_line("notice", snapshot.stale or self._why_not())
        self.set_line("totals", self._totals())
        self._telemetry.follow()

    def _why_not(self) -> str:
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
        idle = [each.total.gpus_idle for each in self._users if each.total.gpus_idle is not None]
        now = f"{sum(idle)} idle now" if idle else "idle not known"
        shares = sum(each.total.shares_held for each in self._users)
        users, gpus = plural(len(self._users), "user"), devices(held, shares)
        return f"Σ {users} · {gpus} held · {requested - held} waited for · {now} · c: message"

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

    def copy_text(self) -> str:
        """Return a message to the owner of the row under the cursor."""
        found = self._under_cursor()
        if found is None:
            return ""
        user, usage = found
        return message_to_owner(usage, user.jobs)


def _key(usage: JobUsage) -> str:
    return _SEPARATOR.join((usage.user, usage.namespace, usage.kind, usage.job))
