"""How objects end: deletion, finalizers, grace, and what goes with them.

A real cluster leaves this to controllers that follow a while later; here it happens in
the same turn, so nobody sees an orphan.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.admission import patches
from k8s.sandbox.api.served import BY_KEY, ServedResource
from k8s.sandbox.api.storage.dependents import Dependents, ObjectKey
from k8s.sandbox.api.storage.store import Object, Store

FOREGROUND = "foregroundDeletion"
"""The finalizer that holds an object until its dependents are gone."""
ORPHAN = "orphan"
"""The finalizer that holds an object until its dependents are disowned."""
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
KINDS = frozenset(served.resource.kind for served in BY_KEY.values())
"""Kinds of which we know every object."""


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    """What an object must still be to be deleted; empty where that is not asked."""

    uid: str = ""
    resource_version: str = ""


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """How an object is to be deleted: a `DeleteOptions`."""

    grace_period_seconds: int | None = None
    """How long a pod may take; None means what the pod says."""
    propagation_policy: str = ""
    """Background, Foreground, Orphan; empty means the kind's own default."""
    preconditions: Preconditions = Preconditions()
    dry_run: list[str] = []


class Deleter:
    """Writes to the store, and all that follows when something is written away."""

    def __init__(self, store: Store) -> None:
        self.store = store
        """Where the objects are."""
        self._dependents = Dependents()
        for key in BY_KEY:
            for record in store.records(key):
                self._dependents.add(key, record.obj)

    def put(self, key: str, obj: Object) -> None:
        """Write an object; one that is marked for deletion and held by nothing is removed."""
        meta = obj["metadata"]
        is_held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or key == "namespaces"
        if "deletionTimestamp" in meta and not is_held:
            self.remove(key, obj)
            return
        self.store.put(key, obj)
        self._dependents.add(key, obj)

    def remove(self, key: str, obj: Object) -> None:
        """Take an object out, then do what its absence means for others."""
        meta = obj["metadata"]
        namespace, name, uid = meta.get("namespace", ""), meta["name"], meta["uid"]
        if self.store.get(key, namespace, name) is None:
            return
        self.store.remove(key, namespace, name)
        self._dependents.discard(key, obj)
        for dependent in self._dependents.of(uid):
            record = self.store.get(*dependent)
            if record is not None and not self._has_owner(record.obj):
                self._delete_quietly(*dependent)
        for owner in meta.get("ownerReferences", ()):
            self._finish_foreground(owner["uid"])
        if namespace:
            self._finish_namespace(namespace)

    def delete(self, served: ServedResource, old: Object, how: DeleteOptions) -> tuple[Object, bool]:
        """Delete an object, now or when it may go; return it, and whether it is gone.

        What belongs to it goes too, stays, or goes first, as `how.propagation_policy` says.

        Raises:
            ApiError: It is not what the client thinks, or nobody may delete it.
        """
        meta = old["metadata"]
        self._reject_changed(served, old, how)
        if served.key == "namespaces" and meta["name"] in PROTECTED_NAMESPACES:
            raise api_errors.forbidden(served, meta["name"], "this namespace may not be deleted")
        propagation = how.propagation_policy or ("Orphan" if served.key == "jobs.batch" else "Background")
        finalizers = [each for each in meta.get("finalizers", ()) if each not in (FOREGROUND, ORPHAN)]
        if propagation != "Background":
            finalizers.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
        grace_s = self._grace_s(served, old, how)
        obj = patches.without_nulls(old)
        if "deletionTimestamp" not in meta or grace_s < meta.get("deletionGracePeriodSeconds", 0):
            obj["metadata"] |= {"deletionTimestamp": now(grace_s), "deletionGracePeriodSeconds": grace_s}
        obj["metadata"]["finalizers"] = finalizers
        if not finalizers:
            del obj["metadata"]["finalizers"]
        if served.key == "namespaces":
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        waits = bool(finalizers) or grace_s > 0 or served.key == "namespaces"
        if how.dry_run:
            return obj, not waits
        if obj != old or not waits:
            self.put(served.key, obj)
        if waits:
            self._follow_up(served, obj)
        return obj, not waits

    def collect_if_orphan(self, served: ServedResource, obj: Object) -> None:
        """Delete an object that came after its owner had gone."""
        meta = obj["metadata"]
        known = any(each["kind"] in KINDS for each in meta.get("ownerReferences", ()))
        if known and not self._has_owner(obj):
            self._delete_quietly(served.key, meta.get("namespace", ""), meta["name"])

    def _follow_up(self, served: ServedResource, obj: Object) -> None:
        """Do what controllers do once an object has been marked for deletion."""
        meta = obj["metadata"]
        finalizers = meta.get("finalizers", ())
        if served.key == "namespaces":
            for object_key in self._dependents.in_namespace(meta["name"]):
                self._delete_quietly(*object_key)
            self._finish_namespace(meta["name"])
        elif ORPHAN in finalizers:
            for dependent in self._dependents.of(meta["uid"]):
                self._drop(dependent, "ownerReferences", lambda owner: owner["uid"] == meta["uid"])
            object_key = served.key, meta.get("namespace", ""), meta["name"]
            self._drop(object_key, "finalizers", lambda each: each == ORPHAN)
        elif FOREGROUND in finalizers:
            for dependent in self._dependents.of(meta["uid"]):
                self._delete_quietly(*dependent, propagation="Foreground")
            self._finish_foreground(meta["uid"])

    def _reject_changed(self, served: ServedResource, old: Object, how: DeleteOptions) -> None:
        meta = old["metadata"]
        for words, wanted, found in (
            ("UID", how.preconditions.uid, meta["uid"]),
            ("ResourceVersion", how.preconditions.resource_version, meta["resourceVersion"]),
        ):
            if wanted and wanted != found:
                match = f"({wanted}) does not match the {words} in record ({found})"
                why = f"the {words} in the precondition {match}"
                raise api_errors.conflict(served, meta["name"], why)

    def _grace_s(self, served: ServedResource, obj: Object, how: DeleteOptions) -> int:
        """Return for how long a pod may still run: none at all unless it is on a node and not over."""
        if served.key != "pods" or not obj["spec"].get("nodeName"):
            return 0
        if obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        asked_s = how.grace_period_seconds
        asked_s = max(0, obj["spec"]["terminationGracePeriodSeconds"] if asked_s is None else asked_s)
        left_s = obj["metadata"].get("deletionGracePeriodSeconds")
        return asked_s if left_s is None else min(left_s, asked_s)

    def _has_owner(self, obj: Object) -> bool:
        references = obj["metadata"].get("ownerReferences", ())
        return any(self._dependents.where(each["uid"]) is not None for each in references)

    def _delete_quietly(
        self, key: str, namespace: str, name: str, *, propagation: str = "Background"
    ) -> None:
        record = self.store.get(key, namespace, name)
        if record is not None and "deletionTimestamp" not in record.obj["metadata"]:
            self.delete(BY_KEY[key], record.obj, DeleteOptions(propagation_policy=propagation))

    def _drop(self, object_key: ObjectKey, field: str, is_dropped: Callable[[Any], bool]) -> None:
        """Take elements out of a list in an object's metadata; what nothing holds then is removed."""
        record = self.store.get(*object_key)
        if record is None:
            return
        obj = patches.without_nulls(record.obj)
        if left := [each for each in obj["metadata"].pop(field, ()) if not is_dropped(each)]:
            obj["metadata"][field] = left
        self._dependents.discard(object_key[0], record.obj)
        self.put(object_key[0], obj)

    def _finish_foreground(self, uid: str) -> None:
        """Let go an owner that waited for its dependents, once none is left that blocks it."""
        object_key = self._dependents.where(uid)
        record = self.store.get(*object_key) if object_key is not None else None
        if (
            object_key is None
            or record is None
            or FOREGROUND not in record.obj["metadata"].get("finalizers", ())
        ):
            return
        for dependent in self._dependents.of(uid):
            found = self.store.get(*dependent)
            references = found.obj["metadata"].get("ownerReferences", ()) if found is not None else ()
            if any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references):
                return
        self._drop(object_key, "finalizers", lambda each: each == FOREGROUND)

    def _finish_namespace(self, namespace: str) -> None:
        record = self.store.get("namespaces", "", namespace)
        if record is None or "deletionTimestamp" not in record.obj["metadata"]:
            return
        if not self._dependents.in_namespace(namespace):
            self.remove("namespaces", record.obj)


def now(later_s: int = 0) -> str:
    """Return a time as Kubernetes writes it."""
    return (datetime.now(UTC) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
