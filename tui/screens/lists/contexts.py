"""Lists to switch to another context of the kubeconfig files, or another namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from k8s.client.auth.kubeconfig import Context, Kubeconfig
from k8s.models.namespace import Namespace, Quota
from k8s.models.resources import NAMESPACES as RESOURCE
from k8s.models.resources import QUOTAS
from k8s.text.errors import NoCluster
from k8s.text.sanitize import sanitize
from tui.screens.base.feed_view import DescribedList, ListContent, ListDescription
from tui.screens.lists import NAMESPACES
from tui.session.list_feed import ListFeed
from tui.tables.column import Cell, Column, Row, amount_cell
from tui.tables.namespace_usage import NamespaceUsage, QuotaUsage, namespace_usages, recent_first, total_usage
from tui.text.format import NOTHING, CellStyle, Clock, devices, plural

COLUMNS = (
    Column("here", "", min_width=1),
    Column("name", "CONTEXT", min_width=12, elide="middle", max_width=48),
    Column("cluster", "CLUSTER", min_width=8, elide="middle", max_width=32, priority=2),
    Column("server", "SERVER", min_width=12, elide="end", max_width=60, priority=1),
    Column("user", "USER", min_width=8, elide="middle", max_width=32, priority=3),
    Column("namespace", "NAMESPACE", min_width=9, elide="end", max_width=24),
)


def contexts_view(read: Callable[[], Kubeconfig]) -> DescribedList:
    """Return the list of contexts, which needs no cluster.

    `read` runs in a thread because home folders may be slow.
    """
    known: Kubeconfig | None = None

    async def load() -> None:
        nonlocal known
        try:
            known = await asyncio.to_thread(read)
        except NoCluster as error:
            known = Kubeconfig(problems=(error.why,))

    def content(view: DescribedList, _columns: object) -> ListContent:
        found, here = known or Kubeconfig(), view.snapshot.context
        amount = len(found.contexts)
        return ListContent(
            rows=[_row(each, is_here=each.name == here) for each in found.contexts],
            title=[f"Contexts ({amount})"],
            totals=f"Σ {plural(amount, 'context')}" + (f" · now {sanitize(here)}" if here else ""),
            empty="There is no context." if known is not None else "Reading the kubeconfig…",
            notice="\n".join(found.problems),
            is_complete=known is not None,
        )

    return DescribedList(
        ListDescription(view=NAMESPACES, columns=COLUMNS, content=content, on_enter="switch", load=load)
    )


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


def namespaces_view() -> DescribedList:
    """Return the list of namespaces: all, then recent ones, then the rest."""
    listed: ListFeed[Namespace] = ListFeed(RESOURCE, Namespace)
    quotas: ListFeed[Quota] = ListFeed(QUOTAS, Quota, is_of_all=True)

    def content(view: DescribedList, _columns: object) -> ListContent:
        snapshot, session, recent = view.snapshot, view.session, view.context.recent
        clock = Clock.ahead(snapshot.clock_offset_s)
        found: list[NamespaceUsage] = []
        if session is not None:
            own = [session.client.config.namespace, snapshot.namespace, *recent]
            found = namespace_usages(
                listed.objects.values(),
                session.mirror.all_jobs,
                snapshot.nodes,
                quotas.objects.values(),
                own if listed.state.is_synced else [],
            )
        total, places = total_usage(found), recent_first(found, recent)
        if found and "pods" not in snapshot.problems:
            places.insert(0, total)
        notice = view.notice(snapshot)
        if listed.is_refused and not snapshot.stale and (missing := listed.missing):
            notice = f"{missing.words}\nShowing your own and those of pods and jobs; :ns NAME goes to any."
        return ListContent(
            rows=[_namespace_row(each, clock, snapshot.namespace) for each in places],
            title=["Namespaces ({})", listed.progress],
            totals=f"Σ {plural(len(found), 'namespace')} · {plural(total.jobs, 'unfinished job')}"
            f" · {devices(total.gpus_held, total.shares_held)} held"
            f" · {total.gpus_waiting} requested and waiting",
            empty=view.empty_text("namespaces", "No namespace is known.\nctrl+r refreshes"),
            notice=notice,
        )

    return DescribedList(
        ListDescription(
            view=NAMESPACES,
            columns=NAMESPACE_COLUMNS,
            content=content,
            on_enter="switch",
            order=None,
            feeds=(listed, quotas),
        )
    )


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
