"""The list of volume claims; read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from k8s.models import Event
from k8s.models.claim import Claim
from k8s.models.resources import CLAIMS, EVENTS
from k8s.text.sanitize import sanitize
from tui.feeds.list_feed import ListFeed
from tui.feeds.volume_claims import CLAIM_EVENTS, bytes_of, newest_by_claim, owner_of, why_pending
from tui.keys import ViewDeclaration
from tui.screens.base.feed_view import FeedGetter, FeedView
from tui.screens.lists import VOLUMES
from tui.text.format import NOTHING, CellStyle, Clock, memory, plural
from tui.widgets.table.table import Cell, Column, Row, Table

COLUMNS = (
    Column("name", "NAME", min_width=14, elide="middle", max_width=60),
    Column("namespace", "NAMESPACE", priority=2, elide="end", min_width=9, max_width=20),
    Column("access", "ACCESS", priority=3),
    Column("size", "SIZE", align="right", sorts_largest_first=True),
    Column("status", "STATUS", min_width=7, flashes=True),
    Column("age", "AGE", align="right", is_age=True, priority=1),
    Column("owner", "OWNER", priority=4, elide="end", min_width=5, max_width=20),
    Column("class", "CLASS", priority=5, elide="end", min_width=6, max_width=28),
    Column("description", "DESCRIPTION", priority=6, elide="end", min_width=12, max_width=60),
)
_STYLES: dict[str, CellStyle] = {
    "Bound": "running",
    "Pending": "pending",
    "Lost": "failed",
    "Terminating": "changing",
}


class VolumesView(FeedView):
    """List of volume claims."""

    VIEW: ClassVar[ViewDeclaration] = VOLUMES
    ON_ENTER: ClassVar[str] = "volume"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    NOUN: ClassVar[str] = "volume claims"

    def __init__(self, cluster_feed: FeedGetter) -> None:
        self._claims: ListFeed[Claim] = ListFeed(CLAIMS, Claim)
        self._events: ListFeed[Event] = ListFeed(EVENTS, Event, field_selector=CLAIM_EVENTS)
        super().__init__(cluster_feed, self._claims, self._events)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        clock = Clock.ahead(self.snapshot.clock_offset_s)
        namespace = self.snapshot.namespace
        where = f"in namespace {namespace}" if namespace else "on this cluster"
        more = "0 shows all namespaces · " if namespace else ""
        table.empty = self.empty_text(f"No volume claims {where}.\n{more}tab shows the jobs")
        claims = list(self._claims.objects.values())
        said = newest_by_claim(self._events.objects.values())

        def rows_of(columns: Sequence[Column]) -> list[Row]:
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


def _row(claim: Claim, columns: Sequence[Column], event: Event | None, clock: Clock) -> Row:
    meta, made = claim.metadata, claim.metadata.creation_timestamp
    cells = {
        "name": Cell(sanitize(meta.name), "bright"),
        "namespace": Cell(sanitize(meta.namespace), "quiet"),
        "access": Cell(sanitize(claim.short_modes) or NOTHING, "quiet"),
        "size": Cell(sanitize(claim.size) or NOTHING, sort=bytes_of(claim)),
        "status": Cell(sanitize(claim.state) or NOTHING, _STYLES.get(claim.state, "")),
        "age": Cell(clock.age(made), "quiet", sort=-made.timestamp() if made else None),
        "owner": Cell(sanitize(owner_of(claim)) or NOTHING, "quiet"),
        "class": Cell(sanitize(claim.spec.storage_class_name) or NOTHING, "quiet"),
        "description": Cell(sanitize(meta.annotation("description")) or NOTHING, "quiet"),
    }
    why = sanitize(" ".join(why_pending(claim, event).split()))
    return Row(meta.uid, tuple(cells[column.key] for column in columns), f"└ {why}" if why else None)
