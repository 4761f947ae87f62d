"""Parts that all objects share: metadata, owners, conditions; values that many objects share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from sys import intern
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

# Prefixes. Other annotations are often larger than the remaining object.
ANNOTATION_PREFIXES = (
    "ALIYUN_COM_GPU", "ack.", "aliyun.com/", "arena.kubeflow.org/", "batch.kubernetes.io/",
    "description", "gpu-fraction", "gpu-memory", "gpuconsole.dev/", "hami.io/node-dcu-register",
    "hami.io/node-mlu-register", "hami.io/node-nvidia-register", "jobset.sigs.k8s.io/",
    "kai.scheduler/", "kubectl.kubernetes.io/default-", "kueue.x-k8s.io/",
    "notebooks.kubeflow.org/creator", "opendatahub.io/username", "owner", "ray.io/",
    "requestGPUsOfJobOwner", "runai/", "scheduler.framework.gpushare.", "scheduling.k8s.io/",
    "scheduling.volcano.sh/", "scheduling.x-k8s.io/", "tensorstack.dev/", "topology.kubernetes.io/",
    "trainer.kubeflow.org/", "volcano.sh/",
)  # fmt: skip
# Keys of further annotations that the user wants to see.
_WANTED: list[str] = []
MAX_SHARED = 4096

T = TypeVar("T")
_SHARED: dict[Hashable, Any] = {}
LAST: dict[str, Any] = {}


def shared(key: Hashable, value: T) -> T:
    """Return the first value that was passed with this key."""
    if len(_SHARED) >= MAX_SHARED:
        _SHARED.clear()
    found: T = _SHARED.setdefault(key, value)
    return found


def as_before(name: str, value: T) -> T:
    """Return the last value of this name if it is equal: the pods of a job come one after another."""
    if value != (found := LAST.get(name)):
        found = LAST[name] = value
    same: T = found
    return same


def gpuconsole_annotations(annotations: Mapping[str, str]) -> dict[str, str] | None:
    """Return only the annotations that gpuconsole reads; None if there are none."""
    return {key: text for key, text in annotations.items() if _is_kept(key)} or None


@lru_cache(maxsize=MAX_SHARED)
def _is_kept(key: str) -> bool:
    return key.startswith(ANNOTATION_PREFIXES) or "cordon" in key or key in _WANTED


def keep_annotations(keys: Iterable[str]) -> None:
    """Keep these annotations of every object that is read from now on."""
    _WANTED[:] = keys
    _is_kept.cache_clear()


LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""Stands in for a missing time in comparisons."""
# Silence after which a node becomes Unknown; 40 s before kube-controller-manager 1.32.
NODE_GRACE = timedelta(seconds=50)
Quantities = dict[str, str | int | float]
"""Resource name, such as `nvidia.com/gpu`, to quantity."""


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A part of an API object; unknown fields are ignored."""


class OwnerReference(Value, frozen=True):
    """Reference to the owner of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Meta(Value, frozen=True):
    """Metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: list[str] | None = None
    unreadable: str = ""
    """The first field that had a wrong type and was dropped. Not an API field."""

    def __post_init__(self) -> None:
        force_setattr(self, "namespace", intern(self.namespace))
        if labels := self.labels:  # msgspec makes a new string of each key of over 32 bytes
            force_setattr(self, "labels", {intern(key): intern(text) for key, text in labels.items()})
        if annotations := self.annotations:
            annotations = gpuconsole_annotations(annotations)
        force_setattr(self, "annotations", as_before("annotations", annotations or None))
        force_setattr(self, "creation_timestamp", as_before("creation_timestamp", self.creation_timestamp))
        if self.owner_references is not None:
            owners = self.owner_references
            force_setattr(self, "owner_references", shared(tuple(owners), owners))
        if self.finalizers is not None:
            force_setattr(self, "finalizers", shared(tuple(self.finalizers), self.finalizers))

    def label(self, key: str) -> str:
        """Return the value of a label; empty if it is missing."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """Return the value of an annotation; empty if it is missing."""
        return (self.annotations or {}).get(key, "")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object; None if there is none."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Condition(Value, frozen=True):
    """A condition in an object's status."""

    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    """None unless the condition is Unknown, so that heartbeats do not change a node's row."""

    @property
    def since(self) -> datetime | None:
        """The time of the last change; for a silent kubelet, about the time of its last report.

        A kubelet reports its status only every 5 minutes and renews a lease meanwhile, so the
        heartbeat alone may be minutes too early. Source: `nodeStatusReportFrequency`.
        """
        changed, reported = self.last_transition_time, self.last_heartbeat_time
        return max(reported, changed - NODE_GRACE) if changed and reported and reported < changed else changed


class ListMeta(Value, frozen=True):
    """Metadata of a list: its version and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None
