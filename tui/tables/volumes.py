"""The list of volume claims."""

from __future__ import annotations

from k8s.kinds.job_spec import USER_ANNOTATION
from k8s.models import quantity
from k8s.models.namespace import Claim
from k8s.text.sanitize import sanitize
from tui.tables.column import Cell, ListColumn
from tui.text.format import NOTHING, CellStyle, Clock, seconds_since, timestamp

_STYLES: dict[str, CellStyle] = {
    "Bound": "running",
    "Pending": "pending",
    "Lost": "failed",
    "Terminating": "changing",
}


def _quiet(text: str) -> Cell:
    return Cell(sanitize(text) or NOTHING, "quiet")


def owner_of(claim: Claim) -> str:
    """Return the owner by Arena's annotation or ours; empty if there is none."""
    return claim.metadata.annotation("owner") or claim.metadata.annotation(USER_ANNOTATION)


def bytes_of(claim: Claim) -> float | None:
    """Return the size in bytes; None if it is unknown or malformed."""
    try:
        return float(quantity.parse(claim.size)) if claim.size else None
    except (ValueError, OverflowError):
        return None


COLUMNS: tuple[ListColumn[Claim, Clock], ...] = (
    ListColumn(
        "name", "NAME", min_width=14, elide="middle", max_width=60,
        cell=lambda claim, _: Cell(sanitize(claim.metadata.name), "bright"),
        value=lambda claim, _: claim.metadata.name, printed="table",
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=2, elide="end", min_width=9, max_width=20,
        value=lambda claim, _: claim.metadata.namespace, printed="table",
    ),
    ListColumn(
        "access", "ACCESS", priority=3,
        cell=lambda claim, _: _quiet(claim.short_modes),
        value=lambda claim, _: list(claim.access_modes), json="access_modes", printed="table",
    ),
    ListColumn(
        "size", "SIZE", align="right", sorts_largest_first=True,
        cell=lambda claim, _: Cell(sanitize(claim.size) or NOTHING, sort=bytes_of(claim)),
        value=lambda claim, _: claim.size, printed="table",
    ),
    ListColumn(
        "status", "STATUS", min_width=7, flashes=True,
        cell=lambda claim, _: Cell(sanitize(claim.state) or NOTHING, _STYLES.get(claim.state, "")),
        value=lambda claim, _: claim.state, printed="table",
    ),
    ListColumn(
        "age", "AGE", align="right", is_age=True, priority=1,
        cell=lambda claim, clock: Cell.of_age(claim.metadata.creation_timestamp, clock),
        printed="table", json="age_s created",
        values=lambda claim, clock: {
            "age_s": seconds_since(claim.metadata.creation_timestamp, clock.now),
            "created": timestamp(claim.metadata.creation_timestamp),
        },
    ),
    ListColumn(
        "owner", "OWNER", priority=4, elide="end", min_width=5, max_width=20,
        value=lambda claim, _: owner_of(claim), printed="table",
    ),
    ListColumn(
        "class", "CLASS", priority=5, elide="end", min_width=6, max_width=28,
        cell=lambda claim, _: _quiet(claim.spec.storage_class_name),
    ),
    ListColumn(
        "description", "DESCRIPTION", priority=6, elide="end", min_width=12, max_width=60,
        value=lambda claim, _: claim.metadata.annotation("description"), printed="wide",
    ),
)  # fmt: skip
