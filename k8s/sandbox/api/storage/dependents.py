"""Keys of objects by uid, by owner and by namespace: what follows from a deletion is found here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

ObjectKey = tuple[str, str, str]
"""A kind's key, a namespace, a name."""


class Dependents:
    """An index over all objects, kept up to date by whoever writes them."""

    def __init__(self) -> None:
        self._by_uid: dict[str, ObjectKey] = {}
        self._by_owner: dict[str, dict[ObjectKey, None]] = defaultdict(dict)
        self._by_namespace: dict[str, dict[ObjectKey, None]] = defaultdict(dict)

    def add(self, key: str, obj: Mapping[str, Any]) -> None:
        """Learn of an object, or of its new version."""
        meta = obj["metadata"]
        object_key = key, meta.get("namespace", ""), meta["name"]
        self._by_uid[meta["uid"]] = object_key
        self._by_namespace[object_key[1]][object_key] = None
        for owner in meta.get("ownerReferences", ()):
            self._by_owner[owner["uid"]][object_key] = None

    def discard(self, key: str, obj: Mapping[str, Any]) -> None:
        """Forget an object; what belongs to it is still known."""
        meta = obj["metadata"]
        object_key = key, meta.get("namespace", ""), meta["name"]
        self._by_uid.pop(meta["uid"], None)
        self._by_namespace[object_key[1]].pop(object_key, None)
        for owner in meta.get("ownerReferences", ()):
            owned = self._by_owner[owner["uid"]]
            owned.pop(object_key, None)
            if not owned:
                del self._by_owner[owner["uid"]]

    def of(self, uid: str) -> list[ObjectKey]:
        """Return what belongs to an object, in the order in which it came."""
        return list(self._by_owner.get(uid, ()))

    def where(self, uid: str) -> ObjectKey | None:
        """Return where an object is, if it is there."""
        return self._by_uid.get(uid)

    def in_namespace(self, namespace: str) -> list[ObjectKey]:
        """Return everything that a namespace holds."""
        return list(self._by_namespace.get(namespace, ()))
