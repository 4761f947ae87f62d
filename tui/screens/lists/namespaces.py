"""Namespaces with their jobs, GPUs and quotas."""

from __future__ import annotations

from typing import ClassVar

from k8s.models.namespace import Namespace, Quota
from k8s.models.resources import NAMESPACES as RESOURCE
from k8s.models.resources import QUOTAS
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from tui.feeds.list_feed import ListFeed
from tui.jobs.namespace_usage import NamespaceUsage, QuotaUsage, namespace_usages, recent_first, total_usage
from tui.keys import ViewDeclaration
from tui.screens.base.feed_view import FeedView
from tui.screens.lists import NAMESPACES
from tui.tables.column import Cell, Column, Row, amount_cell
from tui.text.format import NOTHING, CellStyle, Clock, devices, plural
from tui.widgets.table.table import Table

COLUMNS = (
    Column("here", "", min_width=1),
    Column("name", "NAMESPACE", min_width=16, elide="middle", max_width=48),
    Column("jobs", "JOBS", align="right", sorts_largest_first=True),
    Column("held", "GPUS HELD", align="right", sorts_largest_first=True, flashes=True),
    Column("waiting", "WAITING", align="right", sorts_largest_first=True, flashes=True),
    Column("quota", "GPU QUOTA", align="right", priority=1, flashes=True),
    Column("status", "STATUS", priority=2),
    Column("age", "AGE", align="right", is_age=True, priority=3),
)
# Key of the row for all namespaces; not a valid name.
ALL_KEY = "*"


class NamespacesView(FeedView):
    """List of namespaces: all, then recent ones, then the rest."""

    VIEW: ClassVar[ViewDeclaration] = NAMESPACES
    ON_ENTER: ClassVar[str] = "switch_namespace"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    NOUN: ClassVar[str] = "namespaces"
    ORDER: ClassVar[tuple[str, bool] | None] = None

    def __init__(self) -> None:
        self._namespaces: ListFeed[Namespace] = ListFeed(RESOURCE, Namespace)
        self._quotas: ListFeed[Quota] = ListFeed(QUOTAS, Quota, is_of_all=True)
        super().__init__(self._namespaces, self._quotas)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        snapshot, session = self.snapshot, self.session
        clock = Clock.ahead(snapshot.clock_offset_s)
        is_synced = self._namespaces.state.is_synced
        table.empty = self.empty_text("No namespace is known.\nctrl+r refreshes")
        own = session.client.config.namespace if session is not None else ""
        found = (
            namespace_usages(
                self._namespaces.objects.values(),
                session.mirror.all_jobs,
                snapshot.nodes,
                self._quotas.objects.values(),
                [own, snapshot.namespace, *self.context.recent] if is_synced else [],
            )
            if session is not None
            else []
        )
        rows = recent_first(found, self.context.recent)
        if found and "pods" not in snapshot.problems:
            rows.insert(0, total_usage(found))
        self.fill(table, [], lambda _: [_row(each, clock, snapshot.namespace) for each in rows])
        self.set_feed_title("Namespaces", len(rows))
        total = total_usage(found)
        gpus = devices(total.gpus_held, total.shares_held)
        self.set_line(
            "totals",
            f"Σ {plural(len(found), 'namespace')} · {plural(total.jobs, 'unfinished job')}"
            f" · {gpus} held · {total.gpus_waiting} requested and waiting",
        )

    def notice(self, snapshot: ClusterSnapshot) -> str:
        """Explain the source of the names if namespaces may not be listed."""
        if self._namespaces.is_refused and not snapshot.stale and (missing := self._namespaces.missing):
            return f"{missing.words}\nShowing your own and those of pods and jobs; :ns NAME goes to any."
        return super().notice(snapshot)

    def selected_object(self) -> str:
        """Return the namespace under the cursor; `*` for all."""
        return self.selected_row()


def _row(place: NamespaceUsage, clock: Clock, here: str) -> Row:
    made, is_here = place.created, place.name == here
    status: CellStyle = "changing" if place.phase == "Terminating" else "quiet"
    return Row(
        place.name or ALL_KEY,
        (
            Cell("*" if is_here else "", "running"),
            Cell(sanitize(place.name) or "all namespaces", "bright" if is_here else ""),
            _number(place.jobs),
            amount_cell(place.gpus_held, place.shares_held, "" if place.gpus_held else "quiet"),
            _number(place.gpus_waiting, "pending"),
            _quota(place.limit),
            Cell(sanitize(place.phase) or NOTHING, status),
            Cell(clock.age(made), "quiet", sort=-made.timestamp() if made else None),
        ),
    )


def _number(amount: int, style: CellStyle = "") -> Cell:
    return Cell(str(amount), style if amount else "quiet", sort=amount)


def _quota(limit: QuotaUsage | None) -> Cell:
    if limit is None:
        return Cell(NOTHING, "quiet")
    return Cell(f"{limit.used}/{limit.hard}", "" if limit.left else "pending", sort=limit.left)
