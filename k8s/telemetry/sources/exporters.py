"""Finds the DCGM exporter of each node: by the labels that its installers give it, else by image or port.

One list a label for the whole cluster, not one a node; only a GPU node on which none of the labels is
found is looked through pod by pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from k8s.client.client import Client
from k8s.client.transport import not_understood
from k8s.errors import KubeError
from k8s.models import Meta, Reader, Value
from k8s.models.resources import PODS, Resource

SELECTORS = (
    "app.kubernetes.io/name in (dcgm-exporter,nvidia-dcgm-exporter,gke-managed-dcgm-exporter)",
    "app in (nvidia-dcgm-exporter,dcgm-exporter)",
    "k8s-app in (dcgm-exporter,nvidia-dcgm-exporter,dcgm-exporter-service)",
)
"""Labels of the chart, of the GPU operator, and of manifests that clouds install."""
NAMESPACES = ("gpu-operator", "nvidia-gpu-operator", "monitoring", "kube-system", "gke-managed-system")
"""Where it usually is, for users who may not list the pods of all namespaces."""
PORT = 9400
"""Where it listens unless it is told otherwise."""
PORT_NAMES = ("metrics", "gpu-metrics", "dcgm-metrics", "http-metrics", "https-metrics", "dcgm")
"""What installers call its port, the usual ones first."""
_IMAGE = "dcgm-exporter"
_MOST_PAGES = 20
"""Pages of 500 pods: a cluster has at most 5,000 nodes."""


class _Port(Value, frozen=True):
    name: str = ""
    container_port: int = 0


class _Container(Value, frozen=True):
    image: str = ""
    ports: list[_Port] | None = None


class _Spec(Value, frozen=True):
    node_name: str = ""
    containers: list[_Container] = msgspec.field(default_factory=list)


class _Status(Value, frozen=True):
    phase: str = ""


class _Annotated(Meta, frozen=True):
    """Metadata with all annotations: those of Prometheus are not kept elsewhere."""

    def __post_init__(self) -> None:
        pass


class _ExporterPod(Value, frozen=True):
    metadata: _Annotated
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Exporter:
    """Where the exporter of one node is asked."""

    namespace: str
    pod: str
    node: str
    port: str = str(PORT)
    scheme: str = ""
    """`https` where its port is one; empty for plain HTTP."""
    metrics_path: str = "/metrics"
    collection: Resource = PODS
    """In what it is found: pods, or nodes where it runs beside the cluster."""

    @property
    def resource(self) -> str:
        """Return what one needs to be allowed to get, as RBAC calls it: `pods/proxy`."""
        return f"{self.collection.plural}/proxy"

    @property
    def path(self) -> str:
        """Return the path on the API server under which it serves its text."""
        name = f"{self.pod}:{self.port}"
        if self.scheme:
            name = f"{self.scheme}:{name}"
        return f"{self.collection.path(self.namespace)}/{name}/proxy{self.metrics_path}"


async def find_exporters(client: Client, namespaces: Iterable[str] = ("",)) -> dict[str, Exporter]:
    """Return the exporters in some namespaces, empty for all, by the name of their node.

    Raises:
        Forbidden: This user may not list the pods of any of them.
        KubeError: The cluster does not answer.
    """
    found: dict[str, Exporter] = {}
    refused: KubeError | None = None
    for namespace in namespaces:
        try:
            for selector in SELECTORS:
                for exporter in await _list(client, namespace, selector=selector):
                    found.setdefault(exporter.node, exporter)
        except KubeError as error:
            refused = error
    if not found and refused is not None:
        raise refused
    return found


async def find_on_node(client: Client, node: str) -> Exporter | None:
    """Return the exporter on one node by its image or its port, whatever its labels are.

    Raises:
        KubeError: This user may not list pods, or the cluster does not answer.
    """
    return next(iter(await _list(client, "", node=node)), None)


async def _list(client: Client, namespace: str, *, selector: str = "", node: str = "") -> list[Exporter]:
    """List pods with a label, or else those on a node that look like an exporter."""
    reader: Reader[_ExporterPod] = Reader(_ExporterPod)
    found: list[Exporter] = []
    token = ""
    for _ in range(_MOST_PAGES):
        body = await client.list_page(
            PODS,
            namespace,
            continue_token=token,
            label_selector=selector,
            field_selector=f"spec.nodeName={node}" if node else "",
        )
        try:
            where, pods, _ = reader.read_list(body)
        except msgspec.DecodeError as error:
            raise not_understood("Could not list pods.", f"The list makes no sense: {error}") from error
        for pod in pods:
            if _runs(pod) and (selector or _looks_like_one(pod)):
                found.append(_exporter(pod))
        token = where.continue_
        if not token:
            break
    return found


def _runs(pod: _ExporterPod) -> bool:
    """Tell whether a pod runs and stays: during a rollout the old one is still there for a while."""
    is_going = pod.metadata.deletion_timestamp is not None
    return bool(pod.spec.node_name) and pod.status.phase == "Running" and not is_going


def _looks_like_one(pod: _ExporterPod) -> bool:
    """Tell whether a pod is an exporter by its image, or by the name or the number of one of its ports."""
    if any(_IMAGE in container.image for container in pod.spec.containers):
        return True
    return any(
        "dcgm" in port.name or port.name == "gpu-metrics" or port.container_port == PORT
        for port in _ports(pod)
    )


def _ports(pod: _ExporterPod) -> list[_Port]:
    return [port for container in pod.spec.containers for port in container.ports or ()]


def _exporter(pod: _ExporterPod) -> Exporter:
    annotations: Mapping[str, str] = pod.metadata.annotations or {}
    ports = [port for port in _ports(pod) if port.container_port]
    named = [port for name in PORT_NAMES for port in ports if port.name == name]
    usual = [port for port in ports if port.container_port == PORT]
    chosen = next(iter([*usual, *named]), None)
    number = str(chosen.container_port) if chosen else annotations.get("prometheus.io/port", "")
    is_secure = annotations.get("prometheus.io/scheme") == "https" or (chosen and "https" in chosen.name)
    path = annotations.get("prometheus.io/path", "")
    return Exporter(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        port=number if number.isdecimal() else str(PORT),
        scheme="https" if is_secure else "",
        metrics_path=path if path.startswith("/") and "?" not in path and ".." not in path else "/metrics",
    )
