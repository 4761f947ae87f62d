"""Nodes: what they have, and how they are."""

from __future__ import annotations

import sys

from msgspec.structs import force_setattr

from k8s.models.base import Condition, Meta, Quantities, Value
from k8s.models.trimming import shared


class Taint(Value, frozen=True):
    """What keeps pods away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Value, frozen=True):
    """Whether the node is cordoned, and its taints."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class Address(Value, frozen=True):
    """An address, and of which type: `InternalIP`, `Hostname`."""

    type: str = ""
    address: str = ""


class NodeStatus(Value, frozen=True):
    """Capacity, conditions and addresses; quantities that are alike are held once for all nodes."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None
    addresses: list[Address] | None = None

    def __post_init__(self) -> None:
        for name in ("capacity", "allocatable"):
            quantities = getattr(self, name)
            if quantities is not None:
                force_setattr(self, name, shared(tuple(quantities.items()), quantities))
        for condition in self.conditions or ():
            for name in ("type", "status", "reason", "message"):
                force_setattr(condition, name, sys.intern(getattr(condition, name) or ""))


class Node(Value, frozen=True):
    """A `v1.Node`."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
