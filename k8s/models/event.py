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


class EventSeries(Value, frozen=True):
    """Repetitions of an event, as components that use `events.k8s.io` record them."""

    count: int | None = 0
    last_observed_time: datetime | None = None


class Event(Value, frozen=True):
    """A `v1.Event`; `count` and `last_timestamp` grow when it repeats.

    A component that uses `events.k8s.io`, as the scheduler, writes `series`, `event_time` and
    `reporting_component` in place of these two, `first_timestamp` and `source`; they are filled from it.
    """

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
    reporting_component: str | None = ""
    series: EventSeries | None = None

    def __post_init__(self) -> None:
        if self.event_time is not None:
            force_setattr(self, "first_timestamp", self.first_timestamp or self.event_time)
        if self.series is not None:
            force_setattr(self, "count", max(self.count or 1, self.series.count or 1))
            ends = [at for at in (self.last_timestamp, self.series.last_observed_time) if at is not None]
            force_setattr(self, "last_timestamp", max(ends, default=None))
        if self.reporting_component and not self.source.component:
            force_setattr(self, "source", EventSource(self.reporting_component))
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
