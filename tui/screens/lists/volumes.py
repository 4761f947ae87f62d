"""The list of volume claims; read-only."""

from __future__ import annotations

from typing import Any

from k8s.models.event import Event
from k8s.models.namespace import Claim
from k8s.models.resources import CLAIMS, EVENTS
from k8s.text.sanitize import sanitize
from tui.screens.base.feed_view import DescribedList, ListContent, ListDescription
from tui.screens.lists import VOLUMES
from tui.session.list_feed import ListFeed
from tui.session.volume_claims import CLAIM_EVENTS, newest_by_claim, why_pending
from tui.tables.column import Row, cells
from tui.tables.volumes import COLUMNS, bytes_of
from tui.text.format import Clock, memory, plural


def volumes_view() -> DescribedList:
    """Return the list of volume claims."""
    claims: ListFeed[Claim] = ListFeed(CLAIMS, Claim)
    events: ListFeed[Event] = ListFeed(EVENTS, Event, field_selector=CLAIM_EVENTS)

    def content(view: DescribedList, columns: Any) -> ListContent:
        clock, namespace = Clock.ahead(view.snapshot.clock_offset_s), view.snapshot.namespace
        where = f"in namespace {namespace}" if namespace else "on this cluster"
        more = "0 shows all namespaces · " if namespace else ""
        newest = newest_by_claim(events.objects.values())

        def row(claim: Claim) -> Row:
            why = sanitize(" ".join(why_pending(claim, newest.get(claim.metadata.uid)).split()))
            return Row(claim.metadata.uid, cells(claim, clock, columns), f"└ {why}" if why else None)

        found = list(claims.objects.values())
        bound = sum(bytes_of(each) or 0 for each in found if each.state == "Bound")
        waiting = sum(each.state == "Pending" for each in found)
        return ListContent(
            rows=[*map(row, found)],
            title=["Volumes ({})", claims.progress],
            totals=f"Σ {plural(len(found), 'volume claim')}"
            + (f" · {memory(bound)} bound" if bound else "")
            + (f" · {waiting} without a volume yet" if waiting else ""),
            empty=view.empty_text("volume claims", f"No volume claims {where}.\n{more}tab shows the jobs"),
            notice=view.notice(view.snapshot),
        )

    def name_of(key: str) -> str:
        claim = claims.objects.get(key)
        return f"{claim.metadata.namespace}/{claim.metadata.name}" if claim is not None else ""

    return DescribedList(
        ListDescription(
            view=VOLUMES,
            columns=COLUMNS,
            content=content,
            on_enter="volume",
            is_namespaced=True,
            feeds=(claims, events),
            object_of=name_of,
        )
    )
