"""What all objects have: metadata, owners, conditions."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import msgspec
from msgspec.structs import force_setattr

from k8s.models.trimming import interned, kept, shared

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""Stands in for a time that an object does not tell, when it is compared with others."""
Quantities = dict[str, str | int | float]
"""Resource name, as `nvidia.com/gpu`, to quantity."""


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A part of an API object; unknown fields are ignored."""


class OwnerReference(Value, frozen=True):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Meta(Value, frozen=True):
    """What every object carries."""

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
    """Who must be done with it before it goes."""

    def __post_init__(self) -> None:
        force_setattr(self, "namespace", sys.intern(self.namespace))
        if self.labels is not None:
            force_setattr(self, "labels", interned(self.labels))
        if self.annotations is not None:
            force_setattr(self, "annotations", kept(self.annotations))
        if self.owner_references is not None:
            owners = self.owner_references
            force_setattr(self, "owner_references", shared(tuple(owners), owners))
        if self.finalizers is not None:
            force_setattr(self, "finalizers", shared(tuple(self.finalizers), self.finalizers))

    def label(self, key: str) -> str:
        """Return a label's value, empty when there is none."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """Return an annotation's value, empty when there is none."""
        return (self.annotations or {}).get(key, "")

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages this object, if it has one."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Condition(Value, frozen=True):
    """A claim about an object: `type` is `status` since then, because of `reason`."""

    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: datetime | None = None


class ListMeta(Value, frozen=True):
    """A list's own metadata: its version, and how to fetch its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None
