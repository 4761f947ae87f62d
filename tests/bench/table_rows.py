"""Ten thousand rows of ten columns, and what is done with them, the same for every table."""

from __future__ import annotations

import re
from collections.abc import Sequence

COLUMNS = ("NAME", "KIND", "STATUS", "GPUS", "PODS", "RANKS", "NODE", "USER", "NAMESPACE", "AGE")
"""The titles of the columns."""
AMOUNT = 10_000
"""How many rows there are."""
CHANGED = range(0, AMOUNT, 10)
"""The places of the rows whose status changes."""
FILTER = re.compile("ob-77", re.IGNORECASE)
"""What is typed as a filter."""


def _row(place: int) -> tuple[str, ...]:
    nodes, users = place * 7919 % 997, place % 13
    return (
        f"job-{place}-worker",
        "PyTorchJob",
        f"Running {place % 60}m",
        f"{place % 8}/8",
        "4/4",
        "16",
        f"node-{nodes:03}",
        f"user-{users}",
        "vision",
        f"{place % 24}h",
    )


ROWS = [_row(place) for place in range(AMOUNT)]
"""The rows; the name is the key."""


def changed_rows() -> list[tuple[str, ...]]:
    """Return the rows with a thousand cells changed."""
    return [(*row[:2], "Failed", *row[3:]) if place in CHANGED else row for place, row in enumerate(ROWS)]


def wanted(texts: Sequence[str]) -> bool:
    """Tell whether a row passes the filter."""
    return FILTER.search(" ".join(texts)) is not None


NAMES_FILTERED = [row[0] for row in ROWS if wanted(row)]
"""The names of the rows that pass the filter."""
NAMES_BY_NODE = [row[0] for row in sorted(ROWS, key=lambda row: row[COLUMNS.index("NODE")])]
"""The names of all rows, sorted by their nodes."""
