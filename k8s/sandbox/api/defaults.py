"""What a real server fills in on create, as far as somebody reads it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]

LOOPBACK = "127.0.0.1"
"""Every service's address: all pods share this machine's loopback."""


def fill(key: str, obj: Object) -> None:
    """Set the defaults of a kind, in place; what is set stays, so a second time changes nothing."""
    if (filler := FILLERS.get(key)) is not None:
        filler(obj)


def initial_status(key: str, obj: Object) -> Object | None:
    """Return the status of a new object; None for a kind that has none."""
    match key:
        case "pods":
            return {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}
        case "namespaces":
            return {"phase": "Active"}
        case "persistentvolumeclaims" | "persistentvolumes":
            return {"phase": "Pending"}
        case "services":
            return {"loadBalancer": {}}
        case "jobs.batch":
            return {}
        case "nodes":
            # Whoever registers a node says at once what it has.
            return dict(obj.get("status") or {})
    return None


def quality_of_service(spec: Mapping[str, Any]) -> str:
    """Return a pod's QoS class from the CPU and memory that its containers ask for."""
    asked, guaranteed = False, True
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in requests or name in limits
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    return "Guaranteed" if asked and guaranteed else "Burstable" if asked else "BestEffort"


def _pod(obj: Object) -> None:
    spec = _member(obj, "spec")
    _pod_spec(spec)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("enableServiceLinks", True)


def _pod_spec(spec: Object) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _container(container)
    for volume in spec.get("volumes", ()):
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}
        for source in ("configMap", "secret"):
            if isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 0o644)


def _container(container: Object) -> None:
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    moves = tag in ("", "latest") and "@" not in image
    container.setdefault("imagePullPolicy", "Always" if moves else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = _member(container, "resources")
    _quantities(resources, "limits", "requests")
    for name, limit in (resources.get("limits") or {}).items():
        _member(resources, "requests").setdefault(name, limit)
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        if field := (variable.get("valueFrom") or {}).get("fieldRef"):
            field.setdefault("apiVersion", "v1")


def _job(obj: Object) -> None:
    spec = _member(obj, "spec")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    template = _member(spec, "template")
    restart_policy = _member(template, "spec").get("restartPolicy")
    _pod_spec(template["spec"])
    if restart_policy is None:
        del template["spec"]["restartPolicy"]
    if spec.get("manualSelector") or not (uid := obj["metadata"].get("uid")):
        return
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": obj["metadata"]["name"],
        "controller-uid": uid,
        "job-name": obj["metadata"]["name"],
    }
    _member(_member(template, "metadata"), "labels").update(labels)
    _member(obj["metadata"], "labels").update(labels)
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


def _namespace(obj: Object) -> None:
    _member(obj["metadata"], "labels").setdefault("kubernetes.io/metadata.name", obj["metadata"]["name"])
    _member(obj, "spec").setdefault("finalizers", ["kubernetes"])


def _node(obj: Object) -> None:
    status = _member(obj, "status")
    _member(obj, "spec")
    _quantities(status, "capacity", "allocatable")
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def _service(obj: Object) -> None:
    spec = _member(obj, "spec")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("clusterIP", LOOPBACK)
        spec["clusterIPs"] = [spec["clusterIP"]]
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    for name, text in obj.pop("stringData", {}).items():
        _member(obj, "data")[name] = base64.b64encode(text.encode()).decode()


def _claim(obj: Object) -> None:
    spec = _member(obj, "spec")
    spec.setdefault("volumeMode", "Filesystem")
    _quantities(_member(spec, "resources"), "limits", "requests")


def _volume(obj: Object) -> None:
    spec = _member(obj, "spec")
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    _quantities(spec, "capacity")


def _event(obj: Object) -> None:
    _member(obj, "source")
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(name, None)


FILLERS: Mapping[str, Callable[[Object], None]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "namespaces": _namespace,
    "nodes": _node,
    "services": _service,
    "secrets": _secret,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "events": _event,
}
"""By a kind's key."""


def _member(obj: Object, name: str) -> Object:
    """Return a member that is an object, made if need be."""
    found: Object = obj.setdefault(name, {})
    return found


def _quantities(holder: Object, *names: str) -> None:
    """Write amounts as a real server does: always as text."""
    for name in names:
        for resource, amount in (holder.get(name) or {}).items():
            holder[name][resource] = str(amount)
