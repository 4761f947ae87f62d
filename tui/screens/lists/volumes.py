"""The list of volume claims; read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from k8s.models import Event
from k8s.models.namespace import Claim
from k8s.models.resources import CLAIMS, EVENTS
from k8s.text.sanitize import sanitize
from tui.screens.base.feed_view import FeedView
from tui.screens.lists import VOLUMES
from tui.session.list_feed import ListFeed
from tui.session.volume_claims import CLAIM_EVENTS, newest_by_claim, why_pending
from tui.settings.keys import ViewDeclaration
from tui.tables.column import ListColumn, Row, cells
from tui.tables.volumes import COLUMNS, bytes_of
from tui.text.format import Clock, memory, plural
from tui.widgets.table.table import Table


class VolumesView(FeedView):
    """List of volume claims."""

    VIEW: ClassVar[ViewDeclaration] = VOLUMES
    ON_ENTER: ClassVar[str] = "volume"
    COLUMNS: ClassVar[tuple[ListColumn[Claim, Clock], ...]] = COLUMNS
    NOUN: ClassVar[str] = "volume claims"

    def __init__(self) -> None:
        self._claims: ListFeed[Claim] = ListFeed(CLAIMS, Claim)
        self._events: ListFeed[Event] = ListFeed(EVENTS, Event, field_selector=CLAIM_EVENTS)
        super().__init__(self._claims, self._events)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        clock = Clock.ahead(self.snapshot.clock_offset_s)
        namespace = self.snapshot.namespace
        where = f"in namespace {namespace}" if namespace else "on this cluster"
        more = "0 shows all namespaces · " if namespace else ""
        table.empty = self.empty_text(f"No volume claims {where}.\n{more}tab shows the jobs")
        claims = list(self._claims.objects.values())
        said = newest_by_claim(self._events.objects.values())

        def rows_of(columns: Sequence[ListColumn[Claim, Clock]]) -> list[Row]:
            return [_row(each, columns, said.get(each.metadata.uid), clock) for each in claims]

        self.fill(table, ["namespace"] if namespace else [], rows_of)
        self.set_feed_title("Volumes", len(claims))
        held = sum(bytes_of(each) or 0 for each in claims if each.state == "Bound")
        waiting = sum(each.state == "Pending" for each in claims)
        self.set_line(
            "totals",
            f"Σ {plural(len(claims), 'volume claim')}"
            + (f" · {memory(held)} bound" if held else "")
            + (f" · {waiting} without a volume yet" if waiting else ""),
        )

    def selected_object(self) -> str:
        """Return the claim under the cursor as `NAMESPACE/NAME`."""
        claim = self._claims.objects.get(self.selected_row())
        return f"{claim.metadata.namespace}/{claim.metadata.name}" if claim is not None else ""


def _row(claim: Claim, columns: Sequence[ListColumn[Claim, Clock]], event: Event | None, clock: Clock) -> Row:
    why = sanitize(" ".join(why_pending(claim, event).split()))
    return Row(claim.metadata.uid, cells(claim, clock, columns), f"└ {why}" if why else None)
