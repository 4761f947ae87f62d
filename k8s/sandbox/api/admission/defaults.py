"""Defaults of a real server, as far as the sandbox or a reader of its objects needs them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from k8s.sandbox.api.served import ServedResource

Object = dict[str, Any]

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
