"""Events: what happened to an object."""

from __future__ import annotations

from datetime import datetime

from k8s.models.base import Meta, Value


class ObjectReference(Value, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class EventSource(Value, frozen=True):
    """Who saw it."""

    component: str = ""


class Event(Value, frozen=True):
    """Something that happened to an object."""

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

    @property
    def at(self) -> datetime | None:
        """Return when it was last seen."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp
