"""Typed subset of Kubernetes objects, decoded straight from server bytes.

Fields that the console does not need are skipped while decoding, which makes ten thousand pods
cheap; see `Reader`. Names are the API's, in snake case. Source: the Kubernetes API reference, v1.
"""

from __future__ import annotations

from k8s.models.base import LONG_AGO, Condition, ListMeta, Meta, OwnerReference, Quantities, Value
from k8s.models.node import Address, Node, NodeSpec, NodeStatus, Taint
from k8s.models.pod import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
    Running,
    Terminated,
    Waiting,
)
from k8s.models.reader import WATCH_LINE, RawList, Reader, TypedList, WatchEvent, convert, meta_of

__all__ = [
    "LONG_AGO", "WATCH_LINE", "Address", "Condition", "Container", "ContainerState", "ContainerStatus",
    "ListMeta", "Meta", "Node", "NodeSpec", "NodeStatus", "OwnerReference", "Pod", "PodSpec",
    "PodStatus", "Quantities", "RawList", "Reader", "Resources", "Running", "Taint", "Terminated",
    "TypedList", "Value", "Waiting", "WatchEvent", "convert", "meta_of",
]  # fmt: skip
