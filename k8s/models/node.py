"""Nodes, and their distance in the network by the topology labels of clouds and schedulers.

Sources: Kubernetes' well-known labels; Kueue, "Topology Aware Scheduling"; NVIDIA Topograph and the GPU
operator; GKE's compact placement; Amazon's `topology.k8s.aws`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec.structs import force_setattr

from k8s.models.base import Condition, Meta, Quantities, Value, shared

_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_OF_CONDITIONS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
)
# Ends of the types of conditions that report a fault when true, and when false: those of Kubernetes,
# node-problem-detector, NVSentinel, and the agents of AKS, EKS and GKE. Other types mean nothing here.
_BAD_IF_TRUE = re.compile(
    "(?:Pressure|NetworkUnavailable|Problem|Deadlock|Un[hH]ealthy|Not(?:Ready|Healthy)|Errors?|ErrorFatal|Fail(?:ed|ures?)"
    "|Faults?|Degraded|Missing|Inactive|Flapping|Hung|Lost)$|^(?:Read[oO]nly|Frequent|Corrupt|Unhealthy)"
    "|^Gpu[A-Za-z]+Watch$"
)
_BAD_IF_FALSE = re.compile("(?<!Not)(?:Ready|Healthy|Reachable|Passed)$")
# Ends of reasons, whatever the type is; NVSentinel's are `GpuMemWatchIsNotHealthy` and the like.
_BAD_REASON, _GOOD_REASON = ("NotHealthy", "Unhealthy"), ("IsHealthy",)
# Last part of the key of a label or an annotation, as of `k8saas.nvidia.com/cordon-by`.
_CORDON = re.compile(
    "(?:cordon(?:ed)?|quarantined?|maintenance|drain(?:ed)?)[-_.]?(?:(by|owner)|reason|message)$", re.I
)


class Taint(Value, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """Format it as kubectl does: `dedicated=team:NoSchedule`."""
        return f"{self.key}{'=' + self.value if self.value else ''}:{self.effect}"

    @property
    def keeps_pods_away(self) -> bool:
        """Return True if pods must tolerate it; False if it only mirrors a condition of the node."""
        return self.effect in _KEEPS_AWAY and self.key not in _OF_CONDITIONS


class NodeSpec(Value, frozen=True):
    """Cordon state and taints."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class Address(Value, frozen=True):
    """An address and its type: `InternalIP`, `Hostname`."""

    type: str = ""
    address: str = ""


class NodeInfo(Value, frozen=True):
    """`status.nodeInfo`: versions of the software on the node."""

    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""


class NodeStatus(Value, frozen=True):
    """Capacity, conditions and addresses; equal quantities are shared by all nodes."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None
    addresses: list[Address] | None = None
    node_info: NodeInfo = NodeInfo()
    tainted_devices: dict[str, list[str]] | None = None
    """Not in the API: names of devices by the taint that claims must tolerate, see `k8s.models.dra`."""

    def __post_init__(self) -> None:
        for name in ("capacity", "allocatable"):
            quantities = getattr(self, name)
            if quantities is not None:
                force_setattr(self, name, shared(tuple(quantities.items()), quantities))
        for condition in self.conditions or ():
            if condition.status != "Unknown":  # else every report of a kubelet would change its row
                force_setattr(condition, "last_heartbeat_time", None)
            for name in ("type", "status", "reason", "message"):
                force_setattr(condition, name, sys.intern(getattr(condition, name) or ""))


@lru_cache(maxsize=4096)
def _is_fault(kind: str, status: str, reason: str) -> bool:
    if kind == "Ready" or reason.endswith(_GOOD_REASON):
        return False
    if _BAD_IF_TRUE.search(kind):
        return status == "True"
    if reason.endswith(_BAD_REASON):
        return status != "Unknown"
    return status == "False" and _BAD_IF_FALSE.search(kind) is not None


def faults(conditions: Iterable[Condition] | None) -> tuple[Condition, ...]:
    """Return the conditions beside Ready that report a fault of their node."""
    return tuple([each for each in conditions or () if _is_fault(each.type, each.status, each.reason or "")])


def cordon_reason(meta: Meta) -> str:
    """Return the author and reason of a cordon, `by NVSentinel: GPU-fatal-error-ruleset`; or empty."""
    who = why = ""
    for key, text in {**(meta.annotations or {}), **(meta.labels or {})}.items():
        if text and (found := _CORDON.search(key.rpartition("/")[2])):
            who, why = (f"by {text}", why) if found[1] else (who, text)
    return ": ".join(filter(None, (who, why)))


class Node(Value, frozen=True):
    """A `v1.Node`."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("zone", ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")),
    (
        "core switch",
        (
            "network.topology.nvidia.com/core",
            "fabric.topograph.run/tier-2",
            "topology.k8s.aws/network-node-layer-1",
        ),
    ),
    (
        "block",
        (
            "cloud.provider.com/topology-block",
            "cloud.google.com/gce-topology-block",
            "network.topology.nvidia.com/spine",
            "fabric.topograph.run/tier-1",
            "topology.k8s.aws/network-node-layer-2",
        ),
    ),
    (
        "rack",
        (
            "cloud.provider.com/topology-rack",
            "cloud.google.com/gce-topology-subblock",
            "network.topology.nvidia.com/leaf",
            "fabric.topograph.run/tier-0",
            "topology.k8s.aws/network-node-layer-3",
        ),
    ),
    (
        "NVLink domain",
        (
            "nvidia.com/gpu.clique",
            "network.topology.nvidia.com/accelerator",
            "accelerator.topograph.run/domain",
        ),
    ),
)
"""Title and labels of each level, the widest first."""
NetworkPath = tuple[str, ...]
"""The value of each of `LEVELS`; empty where a node has no such label."""
_NOWHERE: NetworkPath = ("",) * len(LEVELS)


def network_path(labels: Mapping[str, str] | None) -> NetworkPath:
    """Return the position of a node in the network, by its labels."""
    if not labels:
        return _NOWHERE
    return tuple(next((labels[key] for key in keys if labels.get(key)), "") for _, keys in LEVELS)


def neighbourhoods(paths: Mapping[str, NetworkPath]) -> Iterable[list[frozenset[str]]]:
    """Yield partitions of the nodes: single nodes, then the groups of each level, and all nodes last."""
    yield [frozenset({name}) for name in paths]
    for at in reversed(range(len(LEVELS))):
        groups: dict[NetworkPath, set[str]] = {}
        for name, path in paths.items():
            if path[at]:
                groups.setdefault(path[: at + 1], set()).add(name)
        if groups:
            yield [frozenset(group) for group in groups.values()]
    yield [frozenset(paths)]
