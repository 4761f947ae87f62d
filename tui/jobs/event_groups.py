"""What happens in a cluster, in as few lines as tell it: events that say the same are one.

The pods of a job share a fate: what is said of several of them in the same words is one line too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from k8s.kinds import JobRef
from k8s.models import Event, ObjectReference
from k8s.snapshot import Job
from tui.jobs.events import FoldedEvent, event_order, fold

_SHORT: Mapping[str, str] = {"PersistentVolumeClaim": "pvc", "PersistentVolume": "pv"}
"""Kinds with long names, and what people type for them."""
Place = tuple[str, str, str]
"""An object's namespace, kind and name."""


@dataclass(frozen=True, slots=True, eq=False)
class EventGroup:
    """One line; the same value as long as it is made of the same events."""

    key: str
    """Stays the same while more of its events come."""
    folded: FoldedEvent
    """Its events as one; `about` is as in kubectl: `pod/bert-worker-0`, and ` +15` where there are more."""
    namespace: str
    """Where."""
    job: JobRef | None
    """Whose it is, where it is a job's."""
    events: tuple[Event, ...]
    """All that it is made of."""


def jobs_by_reference(jobs: Iterable[Job]) -> dict[Place, JobRef]:
    """Return whose each job's object and each of its pods is."""
    found = {(job.ref.namespace, job.ref.kind, job.ref.name): job.ref for job in jobs}
    for job in jobs:
        for each in job.instances:
            if each.pod:
                found[job.ref.namespace, "Pod", each.pod] = job.ref
    return found


class EventGrouper:
    """Puts events together, time and again, and makes no line anew that has not changed."""

    def __init__(self) -> None:
        """Start without any event."""
        self._groups: dict[tuple[object, ...], EventGroup] = {}

    def group(
        self, events: Iterable[Event], jobs: Mapping[Place, JobRef], *, only_warnings: bool = False
    ) -> list[EventGroup]:
        """Return the events in groups, the newest first.

        Args:
            events: All events, those of an object in the order in which the server has them.
            jobs: Whose each object is: see `jobs_by_reference`.
            only_warnings: Leave out what is a matter of course.
        """
        alike: dict[tuple[object, ...], list[Event]] = {}
        for event in events:
            if only_warnings and event.type != "Warning":
                continue
            about = event.involved_object
            namespace = about.namespace or event.metadata.namespace
            who = jobs.get((namespace, about.kind, about.name)) or about.name
            said = (namespace, about.kind, who, event.type, event.reason, event.message)
            alike.setdefault(said, []).append(event)
        before, self._groups = self._groups, {}
        for key, same in alike.items():
            kept, grouped = before.get(key), tuple(same)
            if kept is None or kept.events != grouped:
                kept = _group_of(grouped, jobs)
            self._groups[key] = kept
        return sorted(self._groups.values(), key=lambda each: event_order(each.folded.newest), reverse=True)


def _group_of(events: tuple[Event, ...], jobs: Mapping[Place, JobRef]) -> EventGroup:
    folded = fold((_kubectl_name(event.involved_object), event) for event in events)
    about = folded.newest.involved_object
    namespace = about.namespace or folded.newest.metadata.namespace
    job = jobs.get((namespace, about.kind, about.name))
    return EventGroup(events[0].metadata.uid, folded, namespace, job, events)


def _kubectl_name(about: ObjectReference) -> str:
    return f"{_SHORT.get(about.kind, about.kind.lower()) or '?'}/{about.name}"
