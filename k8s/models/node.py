"""Nodes."""

from __future__ import annotations

import sys

from msgspec.structs import force_setattr

from k8s.models.base import Condition, Meta, Quantities, Value, shared

_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_OF_CONDITIONS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
)


class Taint(Value, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

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


class Node(Value, frozen=True):
    """A `v1.Node`."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
