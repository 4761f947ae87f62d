"""Deletion of objects: finalizers, grace periods and dependents.

In a real cluster controllers do this a while later; here it happens in the same turn, so no
client ever sees an orphan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from k8s.sandbox.api import api_errors, patches
from k8s.sandbox.api.served import BY_KEY, SERVED, ServedResource
from k8s.sandbox.api.store import Object, Store
from k8s.sandbox.controller_runtime import now_text

# Finalizers that hold an object until its dependents are gone, or until they are disowned.
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
BY_KIND = {(each.resource.api_version, each.resource.kind): each for each in SERVED}


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    """Expected uid and version of the object to delete; empty means any."""

    uid: str = ""
    resource_version: str = ""


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Options of a delete request."""

    # None means the grace period of the pod itself.
    grace_period_seconds: int | None = None
    # Background, Foreground or Orphan; empty means the default of the kind.
    propagation_policy: str = ""
    preconditions: Preconditions = Preconditions()
    dry_run: list[str] = []


ObjectKey = tuple[str, str, str]


class Deleter:
    """Writer to the store that carries out the consequences of removals."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def put(self, key: str, obj: Object) -> None:
        """Write an object; remove it instead if it is marked for deletion and nothing holds it."""
        meta = obj["metadata"]
        is_held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or key == "namespaces"
        if "deletionTimestamp" in meta and not is_held:
            self.remove(key, obj)
            return
        self.store.put(key, obj)

    def remove(self, key: str, obj: Object) -> None:
        """Remove an object, delete its orphans, and finish owners and namespaces that waited for it."""
        meta = obj["metadata"]
        namespace, name, uid = meta.get("namespace", ""), meta["name"], meta["uid"]
        if self.store.get(key, namespace, name) is None:
            return
        self.store.remove(key, namespace, name)
        for dependent in self._dependents(uid):
            record = self.store.get(*dependent)
            if record is not None and not self._owners(record.obj):
                self._delete_dependent(*dependent)
        for owner in self._owners(obj):
            self._release_owner(owner)
        if namespace:
            self._remove_if_empty(namespace)

    def delete(self, served: ServedResource, old: Object, options: DeleteOptions) -> tuple[Object, bool]:
        """Delete an object, or mark it for deletion; return it, and True if it is gone.

        Raises:
            ApiError: A precondition does not hold, or the namespace is protected.
        """
        meta = old["metadata"]
        self._reject_changed(served, old, options)
        if served.key == "namespaces" and meta["name"] in PROTECTED_NAMESPACES:
            raise api_errors.forbidden(served, meta["name"], "this namespace may not be deleted")
        propagation = options.propagation_policy or ("Orphan" if served.key == "jobs.batch" else "Background")
        finalizers = [each for each in meta.get("finalizers", ()) if each not in (FOREGROUND, ORPHAN)]
        if propagation != "Background":
            finalizers.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
        grace_s = self._grace_s(served, old, options)
        obj = patches.without_nulls(old)
        if "deletionTimestamp" not in meta or grace_s < meta.get("deletionGracePeriodSeconds", 0):
            obj["metadata"] |= {"deletionTimestamp": now_text(grace_s), "deletionGracePeriodSeconds": grace_s}
        obj["metadata"]["finalizers"] = finalizers
        if not finalizers:
            del obj["metadata"]["finalizers"]
        if served.key == "namespaces":
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        waits = bool(finalizers) or grace_s > 0 or served.key == "namespaces"
        if options.dry_run:
            return obj, not waits
        if obj != old or not waits:
            self.put(served.key, obj)
        if waits:
            self._propagate(served, obj)
        return obj, not waits

    def collect_if_orphan(self, served: ServedResource, obj: Object) -> None:
        """Delete an object that was created after its owner had gone."""
        meta = obj["metadata"]
        kinds = [(each["apiVersion"], each["kind"]) for each in meta.get("ownerReferences", ())]
        if BY_KIND.keys() & set(kinds) and not self._owners(obj):
            self._delete_dependent(served.key, meta.get("namespace", ""), meta["name"])

    def _propagate(self, served: ServedResource, obj: Object) -> None:
        meta = obj["metadata"]
        finalizers = meta.get("finalizers", ())
        if served.key == "namespaces":
            for object_key in self._in_namespace(meta["name"]):
                self._delete_dependent(*object_key)
            self._remove_if_empty(meta["name"])
        elif ORPHAN in finalizers:
            for dependent in self._dependents(meta["uid"]):
                self._remove_elements(dependent, "ownerReferences", lambda owner: owner["uid"] == meta["uid"])
            object_key = served.key, meta.get("namespace", ""), meta["name"]
            self._remove_elements(object_key, "finalizers", lambda each: each == ORPHAN)
        elif FOREGROUND in finalizers:
            for dependent in self._dependents(meta["uid"]):
                self._delete_dependent(*dependent, propagation="Foreground")
            self._release_owner((served.key, meta.get("namespace", ""), meta["name"]))

    def _reject_changed(self, served: ServedResource, old: Object, options: DeleteOptions) -> None:
        meta = old["metadata"]
        for title, expected, actual in (
            ("UID", options.preconditions.uid, meta["uid"]),
            ("ResourceVersion", options.preconditions.resource_version, meta["resourceVersion"]),
        ):
            if expected and expected != actual:
                match = f"({expected}) does not match the {title} in record ({actual})"
                why = f"the {title} in the precondition {match}"
                raise api_errors.conflict(served, meta["name"], why)

    def _grace_s(self, served: ServedResource, obj: Object, options: DeleteOptions) -> int:
        if served.key != "pods" or not obj["spec"].get("nodeName"):
            return 0
        if obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        grace_s = options.grace_period_seconds
        grace_s = max(0, obj["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s)
        return min(grace_s, int(obj["metadata"].get("deletionGracePeriodSeconds", grace_s)))

    def _owners(self, obj: Object) -> list[ObjectKey]:
        """Return those owners of an object that exist."""
        found = []
        for each in obj["metadata"].get("ownerReferences", ()):
            if (served := BY_KIND.get((each["apiVersion"], each["kind"]))) is not None:
                namespace = obj["metadata"].get("namespace", "") if served.resource.is_namespaced else ""
                owner = self.store.get(served.key, namespace, each["name"])
                if owner is not None and owner.obj["metadata"]["uid"] == each["uid"]:
                    found.append((served.key, namespace, each["name"]))
        return found

    def _dependents(self, uid: str) -> list[ObjectKey]:
        # Events are many, and nobody owns them.
        return [
            (key, record.namespace, record.name)
            for key in BY_KEY
            for record in (self.store.records(key) if key != "events" else ())
            if any(each["uid"] == uid for each in record.obj["metadata"].get("ownerReferences", ()))
        ]

    def _in_namespace(self, namespace: str) -> list[ObjectKey]:
        return [
            (key, namespace, record.name) for key in BY_KEY for record in self.store.records(key, namespace)
        ]

    def _delete_dependent(
        self, key: str, namespace: str, name: str, *, propagation: str = "Background"
    ) -> None:
        record = self.store.get(key, namespace, name)
        if record is not None and "deletionTimestamp" not in record.obj["metadata"]:
            self.delete(BY_KEY[key], record.obj, DeleteOptions(propagation_policy=propagation))

    def _remove_elements(self, object_key: ObjectKey, field: str, is_dropped: Callable[[Any], bool]) -> None:
        """Drop elements of a list in an object's metadata; the object is removed if nothing holds it then."""
        record = self.store.get(*object_key)
        if record is None:
            return
        obj = patches.without_nulls(record.obj)
        if remaining := [each for each in obj["metadata"].pop(field, ()) if not is_dropped(each)]:
            obj["metadata"][field] = remaining
        self.put(object_key[0], obj)

    def _release_owner(self, object_key: ObjectKey) -> None:
        record = self.store.get(*object_key)
        if record is None or FOREGROUND not in record.obj["metadata"].get("finalizers", ()):
            return
        uid = record.obj["metadata"]["uid"]
        for dependent in self._dependents(uid):
            owned = self.store.get(*dependent)
            references = owned.obj["metadata"].get("ownerReferences", ()) if owned is not None else ()
            # A dependent that blocks its owner is still there.
            if any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references):
                return
        self._remove_elements(object_key, "finalizers", lambda each: each == FOREGROUND)

    def _remove_if_empty(self, namespace: str) -> None:
        record = self.store.get("namespaces", "", namespace)
        if record is None or "deletionTimestamp" not in record.obj["metadata"]:
            return
        if not self._in_namespace(namespace):
            self.remove("namespaces", record.obj)
