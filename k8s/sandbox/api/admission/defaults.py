"""Defaults of a real server that depend on more than one field; those of a single field are in `schemas`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from k8s.sandbox.api.admission import schemas
from k8s.sandbox.api.served import ServedResource

Object = dict[str, Any]

# Address of every service: all pods share this machine's loopback.
LOOPBACK = "127.0.0.1"
# Of pods only, not of pod templates.
POD_DEFAULTS = {
    "restartPolicy": "Always",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "enableServiceLinks": True,
}
INITIAL_STATUS: Mapping[str, Object] = {
    "pods": {"phase": "Pending"},
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "services": {"loadBalancer": {}},
    "jobs.batch": {},
    "deployments.apps": {},
}


def fill(served: ServedResource, obj: Object) -> None:
    """Set the defaults of a kind in place; fields that are set stay, so it is idempotent."""
    if served.is_custom:
        return
    schemas.fill(served.key, obj)
    if (filler := FILLERS.get(served.key)) is not None:
        filler(obj)


def _pod(obj: Object) -> None:
    spec = obj["spec"]
    for name, value in POD_DEFAULTS.items():
        spec.setdefault(name, value)
    _pod_spec(spec)


def _pod_spec(spec: Object) -> None:
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        moves = tag in ("", "latest") and "@" not in image
        container.setdefault("imagePullPolicy", "Always" if moves else "IfNotPresent")
        for name, limit in container["resources"].get("limits", {}).items():
            container["resources"].setdefault("requests", {}).setdefault(name, limit)
    for volume in spec.get("volumes", ()):
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}


def _job(obj: Object) -> None:
    spec = obj["spec"]
    template = spec["template"]
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
    spec = obj["spec"]["template"]["spec"]
    spec.setdefault("restartPolicy", "Always")
    _pod_spec(spec)


def _namespace(obj: Object) -> None:
    labels = obj["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/metadata.name", obj["metadata"]["name"])


def _service(obj: Object) -> None:
    spec = obj["spec"]
    if spec["type"] != "ExternalName":
        spec["clusterIPs"] = [spec.setdefault("clusterIP", LOOPBACK)]
    for port in spec.get("ports", ()):
        port.setdefault("targetPort", port.get("port"))
        # Nothing would listen there: ports of pods are reached by forwarding them.
        port.pop("nodePort", None)


def _secret(obj: Object) -> None:
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
