"""Admission of writes: the work of a real API server between a request and its store."""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from k8s.sandbox.api import api_errors, patches, validation
from k8s.sandbox.api.api_errors import StatusCause
from k8s.sandbox.api.deletion import DeleteOptions, Deleter
from k8s.sandbox.api.served import BY_KEY, ServedResource
from k8s.sandbox.api.store import Object, Record, Store
from k8s.sandbox.controller_runtime import now_text

# Address of every service: all pods share this machine's loopback.
LOOPBACK = "127.0.0.1"
_JOB_DEFAULTS = {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
INITIAL_STATUS: Mapping[str, Object] = {
    "pods": {"phase": "Pending"},
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "services": {"loadBalancer": {}},
    "jobs.batch": {},
    "deployments.apps": {},
}
# Letters of a generated name: no vowels, so no words.
NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# Metadata that only the server sets.
SYSTEM_META = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def fill(served: ServedResource, obj: Object) -> None:
    """Set the defaults of a kind in place; fields that are set stay, so it is idempotent."""
    if (filler := FILLERS.get(served.key)) is not None:
        filler(obj)


def _pod(obj: Object) -> None:
    obj["spec"].setdefault("restartPolicy", "Always")
    obj["spec"].setdefault("priority", 0)
    _pod_spec(obj["spec"])


def _pod_spec(spec: Object) -> None:
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        resources = container.setdefault("resources", {})
        for field in resources.keys() & {"limits", "requests"}:
            resources[field] = {name: str(amount) for name, amount in resources[field].items()}
        for name, limit in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)
    for volume in spec.get("volumes", ()):
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}


def _job(obj: Object) -> None:
    spec = obj["spec"]
    template = spec["template"]
    for name, value in _JOB_DEFAULTS.items():
        spec.setdefault(name, value)
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)
        spec["parallelism"] = 1
    _pod_spec(template["spec"])
    if spec.get("manualSelector") or not (uid := obj["metadata"].get("uid")):
        return
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": obj["metadata"]["name"],
        "controller-uid": uid,
        "job-name": obj["metadata"]["name"],
    }
    template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    obj["metadata"].setdefault("labels", {}).update(labels)
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


def _deployment(obj: Object) -> None:
    obj["spec"].setdefault("replicas", 1)
    spec = obj["spec"]["template"]["spec"]
    spec.setdefault("restartPolicy", "Always")
    _pod_spec(spec)


def _namespace(obj: Object) -> None:
    labels = obj["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/metadata.name", obj["metadata"]["name"])


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.setdefault("type", "ClusterIP") != "ExternalName":
        spec["clusterIPs"] = [spec.setdefault("clusterIP", LOOPBACK)]
    for port in spec.get("ports", ()):
        if "port" in port:
            port.setdefault("targetPort", port["port"])
        port.setdefault("protocol", "TCP")
        # Nothing would listen there: ports of pods are reached by forwarding them.
        port.pop("nodePort", None)


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    for name, text in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


FILLERS: Mapping[str, Callable[[Object], None]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "deployments.apps": _deployment,
    "namespaces": _namespace,
    "services": _service,
    "secrets": _secret,
}


class Registry:
    """Operations on the objects of a store; none of them waits."""

    def __init__(self, store: Store, *, allows_c10d: bool = False) -> None:
        self.store = store
        self._allows_c10d = allows_c10d
        self._deleter = Deleter(store)
        if store.get("namespaces", "", "default") is None:
            self.create(BY_KEY["namespaces"], "", {"metadata": {"name": "default"}})

    def get(self, served: ServedResource, namespace: str, name: str) -> Record:
        """Return an object.

        Raises:
            ApiError: The object does not exist.
        """
        record = self.store.get(served.key, namespace, name)
        if record is None:
            raise api_errors.not_found(served, name)
        return record

    def create(self, served: ServedResource, namespace: str, obj: Object, *, dry_run: bool = False) -> Object:
        """Store a new object and return it as stored, or as `dry_run` would have stored it.

        Raises:
            ApiError: The name is taken, the namespace is missing or terminating, or a field is wrong.
        """
        obj = self._normalised(served, obj)
        meta = obj["metadata"]
        _set_location(meta, namespace)
        if namespace:
            self._reject_outside_namespace(served, namespace, meta.get("name", ""))
        if "resourceVersion" in meta:
            raise api_errors.bad_request("resourceVersion should not be set on objects to be created")
        for name in SYSTEM_META:
            meta.pop(name, None)
        if not meta.setdefault("name", "") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(secrets.choice(NAME_LETTERS) for _ in range(5))
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = now_text()
        if served.is_custom or served.key in ("jobs.batch", "deployments.apps"):
            meta["generation"] = 1
        if served.has_status:
            sent = obj.pop("status", {})
            # Whoever registers a node says at once what it has.
            status = sent if served.key == "nodes" else INITIAL_STATUS.get(served.key)
            if status is not None:
                obj["status"] = dict(status)
        if (old := self.store.get(served.key, namespace, meta["name"])) is not None:
            terminating = "deletionTimestamp" in old.obj["metadata"]
            raise api_errors.already_exists(served, meta["name"], terminating=terminating)
        fill(served, obj)
        self._check(served, obj, None)
        if dry_run:
            return obj
        self._deleter.put(served.key, obj)
        self._deleter.collect_if_orphan(served, obj)
        return obj

    def patch(
        self,
        served: ServedResource,
        namespace: str,
        name: str,
        patched: Callable[[Object], Any],
        subresource: str = "",
        *,
        dry_run: bool = False,
    ) -> Object:
        """Change an object by a function that returns the changed copy."""
        old = self.get(served, namespace, name).obj
        new = patched(old)
        if not isinstance(new, dict) or "metadata" not in new:
            raise api_errors.bad_request("the patch does not leave an object")
        new = self._normalised(served, new)
        _set_location(new["metadata"], namespace, name)
        return self._update(served, old, new, subresource, dry_run)

    def bind(
        self, namespace: str, name: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Assign a pod to a node and add the annotations of the Binding to it."""
        served = BY_KEY["pods"]
        old = self.get(served, namespace, name).obj
        if "deletionTimestamp" in old["metadata"]:
            raise api_errors.conflict(
                served, name, f"pod {name} is being deleted, cannot be assigned to a host"
            )
        if at := old["spec"].get("nodeName"):
            raise api_errors.conflict(served, name, f'pod {name} is already assigned to node "{at}"')
        new = patches.without_nulls(old)
        new["spec"]["nodeName"] = node
        if annotations:
            new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), **annotations}
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text()}
        new["status"] = patches.strategic(new["status"], {"conditions": [condition]})
        self._deleter.put("pods", new)

    def delete(
        self, served: ServedResource, namespace: str, name: str, options: DeleteOptions
    ) -> tuple[Object, bool]:
        """Delete an object; see `Deleter.delete`."""
        return self._deleter.delete(served, self.get(served, namespace, name).obj, options)

    def expire_events(self, older_than_s: float) -> None:
        """Remove events that were last written more than `older_than_s` ago."""
        oldest = now_text(-int(older_than_s))
        for record in self.store.records("events"):
            seen = record.obj.get("lastTimestamp") or record.obj["metadata"]["creationTimestamp"]
            if seen < oldest:
                self._deleter.remove("events", record.obj)

    def _update(
        self, served: ServedResource, old: Object, new: Object, subresource: str, dry_run: bool
    ) -> Object:
        name = old["metadata"]["name"]
        meta, old_meta = new["metadata"], old["metadata"]
        if meta.get("uid") not in (None, "", old_meta["uid"]):
            cause = StatusCause.invalid("metadata.uid", meta["uid"], validation.IMMUTABLE)
            raise api_errors.invalid(served, name, [cause])
        if meta.get("resourceVersion") not in (None, "", old_meta["resourceVersion"]):
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            raise api_errors.conflict(served, name, why)
        for field in (*SYSTEM_META, "resourceVersion", "namespace"):
            meta.pop(field, None)
            if field in old_meta:
                meta[field] = old_meta[field]
        if subresource == "status":
            status = new.get("status")
            new = {**old, "metadata": dict(old_meta if served.is_custom else meta)}
            new.pop("status", None)
            if status is not None:
                new["status"] = status
        elif served.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        fill(served, new)
        if _content(new) == _content(old):
            return old
        if subresource == "":
            self._check(served, new, old)
        if "generation" in old_meta and subresource == "" and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old_meta["generation"] + 1
        if dry_run:
            return new
        self._deleter.put(served.key, new)
        return new

    def _normalised(self, served: ServedResource, obj: Object) -> Object:
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
            raise api_errors.bad_request(
                f"the object provided is unrecognized (must be of type {served.resource.kind})"
            )
        resource = served.resource
        kind, version = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
        if (kind, version) != (resource.kind, resource.api_version):
            raise api_errors.bad_request(
                f'{kind} in version "{version}" cannot be handled as a {resource.kind}: it is another kind'
            )
        copied: Object = {"kind": kind, "apiVersion": version} | patches.without_nulls(obj)
        copied["metadata"] = {
            name: value for name, value in copied.get("metadata", {}).items() if value != []
        }
        copied["metadata"].pop("managedFields", None)
        if causes := validation.wrong_values(served.key, copied):
            raise api_errors.invalid(served, str(copied["metadata"].get("name", "")), causes)
        return copied

    def _check(self, served: ServedResource, obj: Object, old: Object | None) -> None:
        causes = validation.wrong_fields(served.key, obj, old)
        if not self._allows_c10d:
            causes += validation.open_rendezvous(obj.get("spec"), "spec")
        if causes:
            raise api_errors.invalid(served, obj["metadata"]["name"], causes)

    def _reject_outside_namespace(self, served: ServedResource, namespace: str, name: str) -> None:
        record = self.store.get("namespaces", "", namespace)
        if record is None:
            raise api_errors.not_found(BY_KEY["namespaces"], namespace)
        if "deletionTimestamp" in record.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise api_errors.forbidden(served, name, why)


def _set_location(meta: Object, namespace: str, name: str = "") -> None:
    if not namespace:
        meta.pop("namespace", None)
    for field, value in (("namespace", namespace), ("name", name)):
        if value and meta.setdefault(field, value) != value:
            why = f"the {field} of the object ({meta[field]}) does not match the {field} on the URL ({value})"
            raise api_errors.bad_request(why)


def _content(obj: Mapping[str, Any]) -> Object:
    meta = {name: value for name, value in obj["metadata"].items() if name != "generation"}
    return {**obj, "metadata": meta}
