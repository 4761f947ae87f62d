"""Polling of visible nodes and pods: exporters first, Prometheus second.

Requests of pods are in every `ClusterSnapshot`; this adds measurements. Nodes degrade one by
one: a dead exporter does not hide the other nodes. CPU and memory are those of
`kubectl top`. Source: Kubernetes, "Resource metrics pipeline"; API `metrics.k8s.io/v1beta1`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.client.proxied import ServiceAddress, list_values
from k8s.client.rate_limiter import background_requests
from k8s.gpus.exporters import ExporterReader
from k8s.gpus.prometheus import PrometheusReader
from k8s.gpus.readings import NodeReadings, NoReadings, NoReadingsCause, PodReadings, Source, Telemetry, Usage
from k8s.gpus.refusals import Refusals
from k8s.models import Meta, Value, quantity
from k8s.models.accelerators import may_be_nvidia
from k8s.models.resources import Resource
from k8s.snapshot import SANDBOX_VERSION, Job, NodeRow
from k8s.text.errors import KubeError

_SIMULATED = NoReadings(NoReadingsCause.NO_EXPORTER, "Its GPUs are simulated: there is nothing to measure.")
_NOT_NVIDIA = NoReadings(
    NoReadingsCause.NO_EXPORTER, "Its devices are not measured: only NVIDIA GPUs are supported."
)
_NO_METRICS = "The cluster has no metrics server."


def _utc_now() -> datetime:
    return datetime.now(UTC)


class TelemetryReader:
    """Telemetry of one cluster; remembers the last good readings of each node and refused requests."""

    def __init__(
        self,
        client: Client,
        *,
        prometheus: ServiceAddress | None = None,
        now: Callable[[], datetime] = _utc_now,  # with a zone
        has_usage: bool = True,
    ) -> None:
        """Search for a Prometheus if `prometheus` is None; without `has_usage`, read only GPUs."""
        self._client, self._now, self._has_usage = client, now, has_usage
        self._refusals = Refusals()
        self._exporters = ExporterReader(client, self._refusals, now)
        self._prometheus = PrometheusReader(client, self._refusals, now, prometheus)
        self._last: dict[str, NodeReadings] = {}

    def retry_now(self) -> None:
        """Retry requests that were refused or found nothing."""
        self._refusals.clear()
        self._exporters.forget()

    async def read(self, nodes: Iterable[NodeRow], jobs: Iterable[Job] = ()) -> Telemetry:
        """Return readings of nodes, and of the pods of jobs. Raises no `KubeError`.

        All requests have background priority: they wait behind interactive ones.
        """
        rows = list(nodes)
        pods = sorted({(job.ref.namespace, each.pod) for job in jobs for each in job.instances if each.pod})
        with background_requests():
            gpus, node_usage, pod_usage = await asyncio.gather(
                self._read_gpus(rows), self._node_usage(rows), self._pod_usage(pods)
            )
            # After the GPUs, so that one Prometheus is looked for once.
            node_traffic = await self._prometheus.traffic_of_nodes(rows if self._has_usage else [])
            pod_traffic = await self._prometheus.traffic_of_pods(pods)
        found = {
            row.name: replace(
                gpus[row.name], usage=node_usage.get(row.name), traffic=node_traffic.get(row.name)
            )
            for row in rows
        }
        self._last |= found
        return Telemetry(
            found,
            {
                (namespace, pod): PodReadings(
                    namespace, pod, pod_usage.get((namespace, pod)), pod_traffic.get((namespace, pod))
                )
                for namespace, pod in pods
            },
            _notices(found.values(), self._prometheus.refused),
        )

    async def _read_gpus(self, rows: Sequence[NodeRow]) -> dict[str, NodeReadings]:
        found = {row.name: NodeReadings(row.name) for row in rows}
        unmeasured = {row.name: reason for row in rows if (reason := _unmeasurable(row)) is not None}
        found |= {name: NodeReadings(name, missing=reason) for name, reason in unmeasured.items()}
        measured = [row.name for row in rows if _has_gpus(row) and row.name not in unmeasured]
        is_sandbox = all(row.versions.get("kubelet", "").endswith(SANDBOX_VERSION) for row in rows)
        found |= await self._exporters.read(measured, is_sandbox=is_sandbox)
        lacking = [name for name in measured if not found[name].gpus]
        from_prometheus = await self._prometheus.gpus(lacking)
        for name in lacking:
            readings = from_prometheus.get(name)
            found[name] = readings if readings is not None and readings.gpus else self._older(found[name])
        return found

    def _older(self, failed: NodeReadings) -> NodeReadings:
        # After a passing failure, the last good readings are shown with the failure.
        last = self._last.get(failed.node)
        is_passing = failed.missing is not None and failed.missing.cause is NoReadingsCause.UNREACHABLE
        return replace(failed, gpus=last.gpus) if is_passing and last is not None else failed

    async def _node_usage(self, rows: Sequence[NodeRow]) -> Mapping[str, Usage]:
        found = await self._usage(NODE_METRICS) if rows and self._has_usage else {}
        return {name: usage for (_, name), usage in found.items()}

    async def _pod_usage(self, pods: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Usage]:
        found: dict[tuple[str, str], Usage] = {}
        for namespace in sorted({namespace for namespace, _ in pods}):
            found |= await self._usage(POD_METRICS, namespace)
        return found

    async def _usage(self, resource: Resource, namespace: str = "") -> dict[tuple[str, str], Usage]:
        # Empty without a metrics server, or if it is forbidden.
        key = (resource, namespace)
        if self._refusals.get(key) is not None:
            return {}
        try:
            return await fetch_usage(self._client, resource, self._now(), namespace)
        except KubeError as error:
            self._refusals.record(key, error, f"list {resource.full_name}", _NO_METRICS)
            return {}


def _has_gpus(row: NodeRow) -> bool:
    return bool(row.gpus_total or row.gpus_unhealthy or row.shared is not None)


def _unmeasurable(row: NodeRow) -> NoReadings | None:
    # None if the node's devices can be measured.
    if row.is_simulated:
        return _SIMULATED
    return _NOT_NVIDIA if row.resources and not may_be_nvidia(row.resources) else None


def _notices(nodes: Iterable[NodeReadings], of_prometheus: NoReadings | None) -> tuple[str, ...]:
    # One line per missing permission that leaves a node without readings.
    reasons = [node.missing for node in nodes if node.missing is not None and not node.gpus]
    refused = [each for each in reasons if each.cause is NoReadingsCause.FORBIDDEN]
    if (
        not refused
        and of_prometheus is not None
        and any(each not in (_SIMULATED, _NOT_NVIDIA) for each in reasons)
    ):
        refused = [of_prometheus] if of_prometheus.cause is NoReadingsCause.FORBIDDEN else []
    words = dict.fromkeys(each.words for each in refused)
    return tuple(f"GPUs are not measured: {each[0].lower()}{each[1:]}" for each in words)


NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", is_namespaced=False)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _ContainerMetrics(Value, frozen=True):
    name: str = ""
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class _Metrics(Value, frozen=True):
    """Usage of one object: a node has `usage`, a pod has `containers`."""

    metadata: Meta
    timestamp: datetime | None = None
    usage: dict[str, str] | None = None
    containers: list[_ContainerMetrics] | None = None


async def fetch_usage(
    client: Client, resource: Resource, read_at: datetime, namespace: str = ""
) -> dict[tuple[str, str], Usage]:
    """Return the usage of all nodes, or of all pods of a namespace, by namespace (empty for nodes) and name.

    Raises:
        NotFound: The cluster has no metrics server.
        Forbidden: The user may not list metrics.
        KubeError: The metrics server does not answer.
    """
    found = await list_values(client, resource, _Metrics, namespace, limit=0)
    return {(each.metadata.namespace, each.metadata.name): _usage(each, read_at) for each in found}


def _usage(metrics: _Metrics, read_at: datetime) -> Usage:
    usages = [metrics.usage] if metrics.usage is not None else []
    usages += [container.usage for container in metrics.containers or ()]
    cpu, memory = _total(usages, "cpu"), _total(usages, "memory")
    measured_at = metrics.timestamp
    # A timestamp without a time zone, or from the future, is not usable.
    if measured_at is None or measured_at.tzinfo is None or measured_at > read_at:
        measured_at = read_at
    return Usage(
        cpu_cores=cpu,
        memory_bytes=None if memory is None else int(memory),
        source=Source.METRICS,
        read_at=measured_at,
    )


def _total(usages: list[dict[str, str]], name: str) -> float | None:
    # None if the resource is missing or not a quantity.
    try:
        amounts = [float(quantity.parse(usage[name])) for usage in usages if name in usage]
    except ValueError:
        return None
    return sum(amounts) if amounts else None
