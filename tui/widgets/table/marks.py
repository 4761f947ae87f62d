"""Which rows of a table are marked; a mark goes by the row's key, so it survives sorting and filtering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tui.widgets.table.columns import Row


class Marks:
    """A set of row keys, and the one marked last, from which a range is marked."""

    def __init__(self) -> None:
        """Start with none."""
        self._keys: set[str] = set()
        self._last: str | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def toggle(self, key: str) -> None:
        """Mark a row, or unmark it."""
        self._keys ^= {key}
        self._last = key if key in self._keys else None

    def extend(self, shown: Sequence[Row], to: int) -> None:
        """Mark every row from the one marked last to the place `to`; where that is not shown, only `to`."""
        start = next((place for place, row in enumerate(shown) if row.key == self._last), to)
        first, last = sorted((start, to))
        self._keys.update(row.key for row in shown[first : last + 1])
        self._last = shown[to].key

    def clear(self) -> None:
        """Unmark all rows."""
        self._keys.clear()

    def keep(self, rows: Iterable[Row]) -> bool:
        """Unmark what is not among these rows; return whether anything was."""
        if not self._keys:
            return False
        gone = self._keys.difference(row.key for row in rows)
        self._keys -= gone
        return bool(gone)

    def among(self, rows: Iterable[Row]) -> tuple[str, ...]:
        """Return the keys of those rows that are marked, in their order."""
        return tuple(row.key for row in rows if row.key in self._keys) if self._keys else ()
