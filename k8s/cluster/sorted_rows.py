"""Rows in order, in which the same rows stay the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class OrderedRows(Generic[R]):
    """Rows by a key, in the order of something that seldom changes."""

    def __init__(self, order: Callable[[R], Any]) -> None:
        """Start without rows; `order` returns what they are sorted by, no two rows the same."""
        self._order = order
        self._rows: dict[str, R] = {}
        self._keys: list[str] | None = []
        self._in_order: tuple[R, ...] | None = ()

    def get(self, key: str) -> R | None:
        """Return the row last put under `key`; None without one."""
        return self._rows.get(key)

    def put(self, key: str, row: R | None) -> None:
        """Set a row, or with None take it away; one that is as before stays the same value."""
        old = self._rows.get(key)
        if row is old or row == old:
            return
        self._in_order = None
        if row is None:
            del self._rows[key]
            self._keys = None
        else:
            self._rows[key] = row
            if old is None or self._order(old) != self._order(row):
                self._keys = None

    def in_order(self) -> tuple[R, ...]:
        """Return the rows, the same tuple as long as nothing has changed."""
        if self._keys is None:
            self._keys = sorted(self._rows, key=lambda key: self._order(self._rows[key]))
        if self._in_order is None:
            self._in_order = tuple([self._rows[key] for key in self._keys])
        return self._in_order
