"""Objects around jobs on a cluster, for the views that list them: events, claims, namespaces, quotas."""

from __future__ import annotations

from typing import Any

from tests.scripted.server import Reply, ScriptedCluster, Stream, page
from tests.support.objects import GPU, Object
from tests.support.sample_cluster import ago

EVENTS = "/api/v1/events"
CLAIMS = "/api/v1/persistentvolumeclaims"
NAMESPACES = "/api/v1/namespaces"
QUOTAS = "/api/v1/resourcequotas"


def in_namespace(path: str, namespace: str = "default") -> str:
    """Return the path of the same list in one namespace."""
    return path.replace("/v1/", f"/v1/namespaces/{namespace}/")


def event(
    name: str,
    about: tuple[str, str],
    reason: str,
    message: str,
    *,
    kind: str = "Normal",
    namespace: str = "default",
    at: str = "",
    **more: Any,
) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"event-{name}", "resourceVersion": "1"},
        "involvedObject": {"kind": about[0], "namespace": namespace, "name": about[1]},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": at or ago(minutes=1),
        **more,
    }


def claim(
    name: str,
    size: str = "100Gi",
    phase: str = "Bound",
    *,
    namespace: str = "default",
    storage: str = "cephfs",
    mode: str = "ReadWriteMany",
    annotations: Object | None = None,
) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"claim-{name}",
            "resourceVersion": "1",
            "creationTimestamp": ago(days=30),
            "annotations": annotations or {},
        },
        "spec": {
            "accessModes": [mode],
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage,
        },
        "status": {"phase": phase, **({"capacity": {"storage": size}} if phase == "Bound" else {})},
    }


def namespace(name: str, phase: str = "Active") -> Object:
    meta = {"name": name, "uid": f"ns-{name}", "resourceVersion": "1", "creationTimestamp": ago(days=100)}
    return {"metadata": meta, "status": {"phase": phase}}


def quota(name: str, used: int, hard: int, *, namespace: str = "default") -> Object:
    meta = {"name": name, "namespace": namespace, "uid": f"quota-{namespace}-{name}", "resourceVersion": "1"}
    amounts = {f"requests.{GPU}": str(hard)}, {f"requests.{GPU}": str(used)}
    return {"metadata": meta, "status": {"hard": amounts[0], "used": amounts[1]}}


def serve(cluster: ScriptedCluster, path: str, *items: Object, reply: Reply | None = None) -> Stream:
    """Let a cluster list these, or answer so, and return the watch that follows."""
    watch = Stream()
    cluster.forget(path)
    cluster.forget(path, watch=True)
    cluster.say(path, reply or page(items))
    cluster.say(path, watch, Stream(), watch=True)
    return watch
