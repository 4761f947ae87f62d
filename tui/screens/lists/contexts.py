"""Lists to switch to another context of the kubeconfig files, or another namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual import work

from k8s.client.auth.kubeconfig import Context, Kubeconfig
from k8s.models.namespace import Namespace, Quota
from k8s.models.resources import NAMESPACES as RESOURCE
from k8s.models.resources import QUOTAS
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import NoCluster
from k8s.text.sanitize import sanitize
from tui.screens.base.feed_view import FeedView
from tui.screens.base.list_view import ListView
from tui.screens.lists import NAMESPACES
from tui.session.list_feed import ListFeed
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, Column, Row, amount_cell
from tui.tables.namespace_usage import NamespaceUsage, QuotaUsage, namespace_usages, recent_first, total_usage
from tui.terminal.key_queue import keys_held
from tui.text.format import NOTHING, CellStyle, Clock, devices, plural
from tui.widgets.table.table import Table

COLUMNS = (
    Column("here", "", min_width=1),
    Column("name", "CONTEXT", min_width=12, elide="middle", max_width=48),
    Column("cluster", "CLUSTER", min_width=8, elide="middle", max_width=32, priority=2),
    Column("server", "SERVER", min_width=12, elide="end", max_width=60, priority=1),
    Column("user", "USER", min_width=8, elide="middle", max_width=32, priority=3),
    Column("namespace", "NAMESPACE", min_width=9, elide="end", max_width=24),
)


class ContextsView(ListView):
    """List of contexts; read from files, so it needs no cluster."""

    VIEW: ClassVar[ViewDeclaration] = NAMESPACES
    ON_ENTER: ClassVar[str] = "switch"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS

    def __init__(self, read: Callable[[], Kubeconfig]) -> None:
        """Show the result of `read`, which runs in a thread because home folders may be slow."""
        super().__init__()
        self._read = read
        self._contexts: dict[str, Context] = {}
        self._problem = ""
        self._is_read = False

    def on_mount(self) -> None:
        """Read the kubeconfig."""
        self._reread()

    @work(group="contexts", exclusive=True)
    async def _reread(self) -> None:
        try:
            with keys_held(self.app):  # they are for the table that it fills
                found = await asyncio.to_thread(self._read)
        except NoCluster as error:
            found = Kubeconfig(problems=(error.why,))
        self._contexts = {context.name: context for context in found.contexts}
        self._problem = "\n".join(found.problems)
        self._is_read = True
        self.refresh_view()

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        table.empty = "There is no context." if self._is_read else "Reading the kubeconfig…"
        here = self.snapshot.context
        table.set_rows([_row(context, is_here=context.name == here) for context in self._contexts.values()])
        amount = len(self._contexts)
        self.set_list_title(f"Contexts ({amount})")
        self.set_line("notice", self._problem)
        self.set_line(
            "totals", f"Σ {plural(amount, 'context')}" + (f" · now {sanitize(here)}" if here else "")
        )

    def selected_object(self) -> str:
        """Return the context under the cursor."""
        return self.selected_row()

    def refresh_feeds(self) -> None:
        """Read the kubeconfig again."""
        self._reread()


def _row(context: Context, *, is_here: bool) -> Row:
    words = (context.cluster, context.server, context.user, context.namespace)
    return Row(
        context.name,
        (
            Cell("*" if is_here else "", "running"),
            Cell(sanitize(context.name), "bright" if is_here else ""),
            *(Cell(sanitize(each) or NOTHING, "quiet") for each in words),
        ),
    )


NAMESPACE_COLUMNS = (
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
    ON_ENTER: ClassVar[str] = "switch"
    COLUMNS: ClassVar[tuple[Column, ...]] = NAMESPACE_COLUMNS
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
        self.fill(table, [], lambda _: [_namespace_row(each, clock, snapshot.namespace) for each in rows])
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


def _namespace_row(place: NamespaceUsage, clock: Clock, here: str) -> Row:
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
