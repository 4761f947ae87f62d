"""DCGM exporters: discovery by label, else by image or port, and reading through the proxy.

One list per label for the whole cluster; only GPU nodes without a labelled exporter are searched
pod by pod.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.client.proxied import fetch_proxied, list_values
from k8s.gpus.dcgm import METRICS, gpu_readings, read_samples
from k8s.gpus.readings import GpuReading, NodeReadings, NoReadings, NoReadingsCause, Source
from k8s.gpus.refusals import Refusals
from k8s.models import Meta, Value
from k8s.models.resources import NODES, PODS, Resource
from k8s.text.errors import Forbidden, KubeError, ServerFailed, without_frames

# Labels of the Helm chart, the GPU operator, and manifests of cloud providers.
_LABELS = {
    "app.kubernetes.io/name": ("dcgm-exporter", "nvidia-dcgm-exporter", "gke-managed-dcgm-exporter"),
    "app": ("nvidia-dcgm-exporter", "dcgm-exporter"),
    "k8s-app": ("dcgm-exporter", "nvidia-dcgm-exporter", "dcgm-exporter-service"),
}
SELECTORS = tuple(f"{key} in ({','.join(names)})" for key, names in _LABELS.items())
# Usual namespaces, for users who may not list the pods of all namespaces.
NAMESPACES = ("gpu-operator", "nvidia-gpu-operator", "monitoring", "kube-system", "gke-managed-system")
PORT = 9400
# Port names of known installers, the most common first.
PORT_NAMES = ("metrics", "gpu-metrics", "dcgm-metrics", "http-metrics", "https-metrics", "dcgm")
_IMAGE = "dcgm-exporter"


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
    """# `Meta` would drop the annotations of Prometheus."""

    def __post_init__(self) -> None:
        pass


class _ExporterPod(Value, frozen=True):
    metadata: _Annotated
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Exporter(msgspec.Struct, frozen=True):
    """Location of the exporter of one node."""

    namespace: str
    pod: str
    node: str
    port: str = str(PORT)
    scheme: str = ""
    """`https` if the port speaks TLS; empty for plain HTTP."""
    metrics_path: str = "/metrics"
    collection: Resource = PODS
    """Pods, or nodes if it runs beside the cluster."""

    @property
    def resource(self) -> str:
        """The resource to get, as in RBAC rules: `pods/proxy`."""
        return f"{self.collection.plural}/proxy"

    @property
    def path(self) -> str:
        """The path of its metrics on the API server."""
        name = f"{self.pod}:{self.port}"
        if self.scheme:
            name = f"{self.scheme}:{name}"
        return f"{self.collection.path(self.namespace)}/{name}/proxy{self.metrics_path}"


async def find_exporters(client: Client, namespaces: Iterable[str] = ("",)) -> dict[str, Exporter]:
    """Return the exporters in some namespaces (empty: all) by node name.

    Raises:
        Forbidden: The user may not list pods in any of them.
        KubeError: The cluster does not answer.
    """
    found: dict[str, Exporter] = {}
    refused: KubeError | None = None
    for namespace in namespaces:
        try:
            lists = (_list(client, namespace, selector=each) for each in SELECTORS)
            for exporter in chain.from_iterable(await asyncio.gather(*lists)):
                found.setdefault(exporter.node, exporter)
        except KubeError as error:
            refused = without_frames(error)
    try:
        if not found and refused is not None:
            raise refused
        return found
    finally:
        del refused  # its traceback leads to this frame


async def find_on_node(client: Client, node: str) -> Exporter | None:
    """Return the exporter on one node by labels, else by image or port; None if there is none.

    Raises:
        KubeError: The user may not list pods, or the cluster does not answer.
    """
    return next(iter(await _list(client, "", node=node)), None)


async def _list(client: Client, namespace: str, *, selector: str = "", node: str = "") -> list[Exporter]:
    # With a selector every pod counts; without, only pods that look like an exporter.
    on_node = f"spec.nodeName={node}" if node else ""
    pods = await list_values(
        client, PODS, _ExporterPod, namespace, label_selector=selector, field_selector=on_node
    )
    found = [pod for pod in pods if _runs(pod) and (selector or _is_labelled(pod) or _is_exporter(pod))]
    return [_exporter(pod) for pod in sorted(found, key=lambda pod: not _is_labelled(pod))]


def _runs(pod: _ExporterPod) -> bool:
    # During a rollout, the old pod exists for a while.
    is_going = pod.metadata.deletion_timestamp is not None
    return bool(pod.spec.node_name) and pod.status.phase == "Running" and not is_going


def _is_labelled(pod: _ExporterPod) -> bool:
    labels = pod.metadata.labels or {}
    return any(labels.get(key) in names for key, names in _LABELS.items())


def _is_exporter(pod: _ExporterPod) -> bool:
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


MAX_AT_ONCE = 8
# Validity of the exporter locations; after a failure they are searched again earlier.
FOUND_FOR_S = 600.0
_NO_EXPORTER = NoReadings(NoReadingsCause.NO_EXPORTER, "No DCGM exporter runs on it.")
# Nodes whose pods are searched in each round.
_MAX_SEARCHES = 4


class ExporterReader:
    """Reads the exporters of nodes; remembers their locations and refused requests."""

    def __init__(self, client: Client, refusals: Refusals, now: Callable[[], datetime]) -> None:
        self._client, self._refusals, self._now = client, refusals, now
        self._exporters: dict[str, Exporter] = {}
        self._found_at_s = float("-inf")
        self._failed: set[str] = set()
        self._searched: set[str] = set()
        self._is_by_node = False
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def forget(self) -> None:
        """Search for the exporters again."""
        self._found_at_s = float("-inf")

    async def read(self, nodes: Iterable[str], *, is_sandbox: bool = False) -> dict[str, NodeReadings]:
        """Return the readings of nodes, or the reasons that there are none. Raises no `KubeError`."""
        wanted = list(nodes)
        if not wanted:
            return {}
        self._is_sandbox = is_sandbox
        reason = await self._find(wanted)
        exporters_of = {node: self._exporters[node] for node in wanted if node in self._exporters}
        results = {node: NodeReadings(node, missing=reason or _NO_EXPORTER) for node in wanted}
        # Whether this user may ask at all is found out by one request a namespace, not by one a node.
        first = {exporter.namespace: exporter for exporter in reversed(exporters_of.values())}
        for group in (
            list(first.values()),
            [each for each in exporters_of.values() if each not in first.values()],
        ):
            for readings in await asyncio.gather(*(self._read_one(exporter) for exporter in group)):
                results[readings.node] = readings
        return results

    async def _find(self, wanted: Sequence[str]) -> NoReadings | None:
        # Returns the reason if the exporters cannot be found.
        if reason := self._refusals.get("exporters"):
            return reason
        try:
            if self._is_sandbox:
                # The sandbox serves metrics at the node, not in a pod.
                self._exporters = {
                    node: Exporter("", pod=node, node=node, collection=NODES) for node in wanted
                }
            elif self._should_search(wanted):
                # The pods of a few nodes are no more lists than those of all labels.
                self._is_by_node = len(wanted) <= len(SELECTORS) and not self._refusals.get("search")
                self._exporters = {} if self._is_by_node else await self._find_all()
                self._found_at_s = time.monotonic()
                self._failed.clear()
                self._searched.clear()
            if not self._is_sandbox:
                await self._search_nodes(wanted)
        except KubeError as error:
            return self._refusals.record("exporters", error, "list pods, so no DCGM exporter is found")
        return None

    def _should_search(self, wanted: Sequence[str]) -> bool:
        # Search again after `FOUND_FOR_S`, if an exporter failed and may have moved, or for many more nodes.
        retried = [node for node in wanted if node in self._failed and not self._refusals.get(("node", node))]
        is_late = time.monotonic() - self._found_at_s > FOUND_FOR_S
        return bool(retried) or is_late or (self._is_by_node and len(wanted) > len(SELECTORS))

    async def _find_all(self) -> dict[str, Exporter]:
        try:
            return await find_exporters(self._client)
        except Forbidden as error:
            own = self._client.config.namespace
            try:
                return await find_exporters(self._client, (*NAMESPACES, own))
            except KubeError:
                raise error from None

    async def _search_nodes(self, wanted: Sequence[str]) -> None:
        # Only the first few nodes without a known exporter are searched per round.
        if self._refusals.get("search"):
            return
        known = self._exporters.keys() | self._searched
        lacking = [node for node in wanted if node not in known][:_MAX_SEARCHES]
        self._searched.update(lacking)
        try:
            found = await asyncio.gather(*(find_on_node(self._client, node) for node in lacking))
            self._exporters |= {each.node: each for each in found if each is not None}
        except Forbidden as error:
            self._refusals.record("search", error, "list pods")
            if self._is_by_node:
                self._exporters = await self._find_all()

    async def _read_one(self, exporter: Exporter) -> NodeReadings:
        node = exporter.node
        permission = (exporter.resource, exporter.namespace)
        if reason := self._refusals.get(permission) or self._refusals.get(("node", node)):
            return NodeReadings(node, missing=reason)
        try:
            async with self._slots:
                text = await self._fetch(exporter)
        except Forbidden as error:
            where = f" in namespace {exporter.namespace}" if exporter.namespace else ""
            return NodeReadings(
                node, missing=self._refusals.record(permission, error, f"get {exporter.resource}{where}")
            )
        except KubeError as error:
            self._failed.add(node)
            absent = "The driver reports no GPUs on this machine." if self._is_sandbox else ""
            return NodeReadings(
                node, missing=self._refusals.record(("node", node), error, "read its exporter", absent)
            )
        source = Source.NVML if self._is_sandbox else Source.DCGM
        # A large text takes a second, in which keys are answered.
        gpus = await asyncio.to_thread(_parse, text, node, source, self._now())
        if gpus:
            return NodeReadings(node, gpus)
        reason = NoReadings(NoReadingsCause.UNREACHABLE, f"{exporter.pod} reports no GPU.")
        return NodeReadings(node, missing=reason)

    async def _fetch(self, exporter: Exporter) -> bytes:
        doing = f"read the GPUs of {exporter.node}"
        try:
            return await fetch_proxied(self._client, exporter.path, doing)
        except ServerFailed as error:
            if exporter.scheme or not _wants_tls(error):
                raise
        exporter = self._exporters[exporter.node] = replace(exporter, scheme="https")
        return await fetch_proxied(self._client, exporter.path, doing)


def _parse(text: bytes, node: str, source: Source, read_at: datetime) -> tuple[GpuReading, ...]:
    return gpu_readings(read_samples(text, METRICS), node, source, read_at)


def _wants_tls(error: KubeError) -> bool:
    # Messages of Go's `net/http`, passed on by the proxy, if the port speaks TLS only.
    return "HTTPS server" in error.why or "malformed HTTP" in error.why
