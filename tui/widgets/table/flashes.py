"""Which cells of a table have just changed, and until when that is pointed at."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from tui.widgets.table.columns import Column, Row

FLASH_S = 1.0
"""How long a change is pointed at, at least."""
ROUND_S = 0.5
"""Ends are put off to a multiple of this, so that changes soon after each other end in one repaint."""
SHORTEST_TIMER_S = 0.01
"""Textual divides by a timer's time when it is late."""
_AGE = re.compile(r"~?\b(?:\d+[dhms])+\b")


class Flashes:
    """Cells that are pointed at, by the keys of their rows."""

    def __init__(self) -> None:
        """Start with none."""
        self._ends: dict[str, dict[int, float]] = {}

    def note(
        self, columns: Sequence[Column], before: Mapping[str, Row], after: Iterable[Row], now_s: float
    ) -> None:
        """Compare rows with those of the same keys before; rows that are new have not changed.

        An age within a text, which grows by itself, is no change: `Running 2m`, `Running 3m`.
        """
        watched = [index for index, column in enumerate(columns) if column.flashes]
        end_s = math.ceil((now_s + FLASH_S) / ROUND_S) * ROUND_S
        for row in after:
            was = before.get(row.key)
            if was is None or was is row:
                continue
            for index in watched:
                texts = was.cells[index].text, row.cells[index].text
                if texts[0] != texts[1] and _AGE.sub("", texts[0]) != _AGE.sub("", texts[1]):
                    self._ends.setdefault(row.key, {})[index] = end_s

    def of(self, key: str) -> tuple[int, ...]:
        """Return the indices of the columns in which this row is pointed at."""
        return tuple(self._ends.get(key, ()))

    def end(self, now_s: float) -> None:
        """Forget what has been pointed at for long enough."""
        left = {
            key: {index: end_s for index, end_s in ends.items() if end_s > now_s}
            for key, ends in self._ends.items()
        }
        self._ends = {key: ends for key, ends in left.items() if ends}

    def clear(self) -> None:
        """Forget all of them."""
        self._ends.clear()

    @property
    def next_end_s(self) -> float | None:
        """When the first of them ends; None when there is none."""
        return min((end_s for ends in self._ends.values() for end_s in ends.values()), default=None)

    def wait_s(self, now_s: float) -> float | None:
        """Return how long a timer has to wait for the first end; None when there is none."""
        end_s = self.next_end_s
        return None if end_s is None else max(SHORTEST_TIMER_S, end_s - now_s)
