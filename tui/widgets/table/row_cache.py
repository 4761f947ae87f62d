"""Table rows that are made again only when what they show has changed, or has grown visibly older."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tui.widgets.table.columns import Row

T = TypeVar("T")
OLDER = 0.01
"""Part of an age by which it may have grown before it is written anew; a second at least."""


def for_ever(_thing: object) -> float:
    """Return the age of what shows none."""
    return float("inf")


class RowCache(Generic[T]):
    """The rows of one table. A thing that is the same value as the last time has the same row."""

    def __init__(self) -> None:
        """Start without any row."""
        self._kept: dict[int, tuple[T, float, Row]] = {}
        self._drawn_for: object = None

    def renew(self, thing: T) -> None:
        """Make the row of a thing anew the next time, though it is the same."""
        self._kept.pop(id(thing), None)

    def rows(
        self,
        things: Iterable[T],
        make: Callable[[T], Row],
        *,
        drawn_for: object,
        now_s: float = 0.0,
        age_s: Callable[[T], float] = for_ever,
    ) -> list[Row]:
        """Return a row for each thing, in their order.

        Args:
            things: What to show, each once, compared by identity.
            make: Makes the row of one of them.
            drawn_for: What all rows depend on beside their things; another value makes all of them anew.
            now_s: Any clock's seconds.
            age_s: The age that a row tells and that grows; of several, the smallest.
        """
        before = self._kept if drawn_for == self._drawn_for else {}
        now: dict[int, tuple[T, float, Row]] = {}
        for thing in things:
            kept = before.get(id(thing))
            if kept is None or kept[1] <= now_s:
                kept = (thing, now_s + max(1.0, OLDER * age_s(thing)), make(thing))
            now[id(thing)] = kept
        self._kept, self._drawn_for = now, drawn_for
        return [row for _, _, row in now.values()]
