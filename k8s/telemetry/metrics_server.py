"""CPU and memory of nodes and pods from metrics.k8s.io, as in `kubectl top`.

Source: Kubernetes, "Resource metrics pipeline"; API `metrics.k8s.io/v1beta1`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from k8s.client.client import Client
from k8s.client.transport import unparsable
from k8s.models import Meta, Reader, Value, quantity
from k8s.models.resources import Resource
from k8s.telemetry.readings import Source, Usage

NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", is_namespaced=False)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _ContainerMetrics(Value, frozen=True):
    name: str = ""
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class _Metrics(Value, frozen=True):
    """# A node has `usage`, a pod has `containers`."""

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
    body = await client.list_page(resource, namespace, limit=0)
    reader: Reader[_Metrics] = Reader(_Metrics)
    try:
        found = reader.read_list(body)[1]
    except msgspec.DecodeError as error:
        doing = f"list {resource.full_name}"
        raise unparsable(f"Could not {doing}.", f"The list is malformed: {error}") from error
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
