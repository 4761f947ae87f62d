"""Where objects are by uid, by owner and by namespace: what follows from a deletion is found here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Place = tuple[str, str, str]
"""A kind's key, a namespace, a name."""


class Dependents:
    """An index over all objects, kept up to date by whoever writes them."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._by_owner: dict[str, dict[Place, None]] = defaultdict(dict)
        self._by_namespace: dict[str, dict[Place, None]] = defaultdict(dict)

    def add(self, key: str, obj: Mapping[str, Any]) -> None:
        """Learn of an object, or of its new version."""
        meta = obj["metadata"]
        place = key, meta.get("namespace", ""), meta["name"]
        self._places[meta["uid"]] = place
        self._by_namespace[place[1]][place] = None
        for owner in meta.get("ownerReferences", ()):
            self._by_owner[owner["uid"]][place] = None

    def discard(self, key: str, obj: Mapping[str, Any]) -> None:
        """Forget an object; what belongs to it is still known."""
        meta = obj["metadata"]
        place = key, meta.get("namespace", ""), meta["name"]
        self._places.pop(meta["uid"], None)
        self._by_namespace[place[1]].pop(place, None)
        for owner in meta.get("ownerReferences", ()):
            owned = self._by_owner[owner["uid"]]
            owned.pop(place, None)
            if not owned:
                del self._by_owner[owner["uid"]]

    def of(self, uid: str) -> list[Place]:
        """Return what belongs to an object, in the order in which it came."""
        return list(self._by_owner.get(uid, ()))

    def where(self, uid: str) -> Place | None:
        """Return where an object is, if it is there."""
        return self._places.get(uid)

    def in_namespace(self, namespace: str) -> list[Place]:
        """Return everything that a namespace holds."""
        return list(self._by_namespace.get(namespace, ()))
