"""Events. A cluster may have tens of thousands, so strings are interned and messages cut."""

from __future__ import annotations

import sys
from datetime import datetime

from msgspec.structs import force_setattr

from k8s.models.base import Meta, Value

LONGEST_MESSAGE = 4096
"""Characters of a message to keep; well-behaved components stay within a quarter of it."""


class ObjectReference(Value, frozen=True):
    """The object that an event is about, `involvedObject`."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""

    def __post_init__(self) -> None:
        for name in ("kind", "namespace", "name"):
            force_setattr(self, name, sys.intern(getattr(self, name)))


class EventSource(Value, frozen=True):
    """The component that reported an event, such as `kubelet`."""

    component: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "component", sys.intern(self.component))


class Event(Value, frozen=True):
    """A `v1.Event`; `count` and `last_timestamp` grow when it repeats."""

    metadata: Meta
    involved_object: ObjectReference = ObjectReference()
    reason: str | None = ""
    message: str | None = ""
    type: str | None = ""
    count: int | None = 1
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    source: EventSource = EventSource()

    def __post_init__(self) -> None:
        for name in ("reason", "type"):
            force_setattr(self, name, sys.intern(getattr(self, name) or ""))
        message = self.message or ""
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[:LONGEST_MESSAGE]}…"
        force_setattr(self, "message", sys.intern(message))

    @property
    def at(self) -> datetime | None:
        """The time of the last occurrence."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp
