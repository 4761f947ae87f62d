"""CPU and memory of nodes and pods from metrics.k8s.io, as `kubectl top` reads them.

Source: Kubernetes, "Resource metrics pipeline"; API `metrics.k8s.io/v1beta1`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from k8s.client.client import Client
from k8s.client.transport import not_understood
from k8s.models import Meta, Reader, Value, quantity
from k8s.models.resources import Resource
from k8s.telemetry.readings import Source, Usage

NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", is_namespaced=False)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _ContainerMetrics(Value, frozen=True):
    name: str = ""
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class _Metrics(Value, frozen=True):
    """Of a node with `usage`, of a pod with `containers`."""

    metadata: Meta
    timestamp: datetime | None = None
    usage: dict[str, str] | None = None
    containers: list[_ContainerMetrics] | None = None


async def fetch_usage(
    client: Client, resource: Resource, read_at: datetime, namespace: str = ""
) -> dict[tuple[str, str], Usage]:
    """Return what all nodes, or all pods of a namespace, use: by namespace (empty for nodes) and name.

    Raises:
        NotFound: The cluster has no metrics server.
        Forbidden: This user may not list them.
        KubeError: It does not answer.
    """
    body = await client.list_page(resource, namespace, limit=0)
    reader: Reader[_Metrics] = Reader(_Metrics)
    try:
        found = reader.read_list(body)[1]
    except msgspec.DecodeError as error:
        doing = f"list {resource.full_name}"
        raise not_understood(f"Could not {doing}.", f"The list makes no sense: {error}") from error
    return {(each.metadata.namespace, each.metadata.name): _usage(each, read_at) for each in found}


def _usage(metrics: _Metrics, read_at: datetime) -> Usage:
    usages = [metrics.usage] if metrics.usage is not None else []
    usages += [container.usage for container in metrics.containers or ()]
    cpu, memory = _total(usages, "cpu"), _total(usages, "memory")
    taken = metrics.timestamp
    return Usage(
        cpu_cores=cpu,
        memory_bytes=None if memory is None else int(memory),
        source=Source.METRICS,
        read_at=taken if taken is not None and taken.tzinfo is not None and taken < read_at else read_at,
    )


def _total(usages: list[dict[str, str]], name: str) -> float | None:
    """Add up what is told of a resource; None where nothing is, or nothing that is a quantity."""
    try:
        told = [float(quantity.parse(usage[name])) for usage in usages if name in usage]
    except ValueError:
        return None
    return sum(told) if told else None
