"""A scripted cluster whose GPU nodes have exporters, as a real one answers for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests import FIXTURES
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.objects import Object

PODS = "/api/v1/pods"
SERVICES = "/api/v1/services"
PLAIN: Mapping[str, str] = {"Content-Type": "text/plain; version=0.0.4"}
DCGM_LABEL = {"app.kubernetes.io/name": "dcgm-exporter"}


def text(name: str = "current") -> Answer:
    return Answer((FIXTURES / "dcgm" / f"{name}.prom").read_bytes(), headers=PLAIN)


def exporter_pod(
    node: str,
    *,
    name: str = "",
    namespace: str = "gpu-operator",
    labels: Mapping[str, str] | None = None,
    ports: list[Mapping[str, Any]] | None = None,
    image: str = "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3",
    phase: str = "Running",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return the exporter's pod of a node, as the GPU operator makes it."""
    return {
        "metadata": {
            "name": name or f"dcgm-exporter-{node}",
            "namespace": namespace,
            "labels": dict(DCGM_LABEL if labels is None else labels),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "exporter",
                    "image": image,
                    "ports": [{"name": "metrics", "containerPort": 9400}] if ports is None else ports,
                }
            ],
        },
        "status": {"phase": phase},
    }


def say_pods(cluster: ScriptedCluster, *pods: Object, path: str = PODS) -> None:
    """Let lists of pods be answered by their selectors, as an API server does."""

    def answer(asked: Asked) -> Reply:
        selector, on = asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", "")
        return page([pod for pod in pods if _selects(selector, pod) and _is_on(on, pod)])

    cluster.say(path, Compute(answer))


def _selects(selector: str, pod: Object) -> bool:
    if not selector:
        return True
    key, _, values = selector.partition(" in ")
    return pod["metadata"]["labels"].get(key) in values.strip("()").split(",")


def _is_on(field_selector: str, pod: Object) -> bool:
    return field_selector in ("", f"spec.nodeName={pod['spec']['nodeName']}")


def proxy_path(node: str, *, namespace: str = "gpu-operator", port: str = "9400", scheme: str = "") -> str:
    prefix = f"{scheme}:" if scheme else ""
    return f"/api/v1/namespaces/{namespace}/pods/{prefix}dcgm-exporter-{node}:{port}/proxy/metrics"


def gpu_cluster(cluster: ScriptedCluster, **replies: Reply) -> None:
    """Let a cluster have a node with an exporter for each name, which answers as given; and nothing else."""
    names = {name.replace("_", "-"): reply for name, reply in replies.items()}
    say_pods(cluster, *(exporter_pod(node) for node in names))
    cluster.say(SERVICES, page([]))
    cluster.say("/apis/metrics.k8s.io/v1beta1/*", refusal(404, "the server could not find the resource"))
    for node, reply in names.items():
        cluster.replace(proxy_path(node), reply)


def proxied(cluster: ScriptedCluster) -> list[str]:
    return [asked.path for asked in cluster.requests if "/proxy" in asked.path]
