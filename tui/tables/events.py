"""Events of a job and the list of events; equal ones share a line.

A job's events are its own, its pods', and those of objects between and beside them. Between a job
and its pods there may be other objects (the JobSet of a TrainJob, the launcher's Job of an MPIJob);
beside it the PodGroup of a gang scheduler and Kueue's Workload. They are found by the owners and
labels of the pods; before there are pods, by the names that their controllers give them.

Sources: training-operator and Volcano `podgroup-<uid>`, Kueue `GetWorkloadNameForOwnerWithGVK`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from k8s.kinds import JobRef
from k8s.models import LONG_AGO, Pod
from k8s.models.event import Event, ObjectReference
from k8s.reasons.objects import GROUP_KEYS
from k8s.snapshot import Job
from k8s.text.sanitize import sanitize
from tui.tables.column import Cell, ListColumn, Values
from tui.text.format import NOTHING, CellStyle, Clock, count, local_time, seconds_since, timestamp


class FoldedEvent(msgspec.Struct, frozen=True):
    """One event, or several equal ones about objects of one kind."""

    newest: Event
    about: str
    """The involved object, named as in the job's views: `job`, `worker-2`, `worker-0 +15`."""
    count: int
    first: datetime | None
    has_job: bool = False
    """True if the newest event is about a known job or its pod."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the involved object."""
        return self.newest.involved_object.namespace or self.newest.metadata.namespace

    @property
    def is_warning(self) -> bool:
        """Return True unless the event's type is Normal."""
        return self.newest.type == "Warning"


class JobEventFilter:
    """Selects the objects whose events belong to a job."""

    def __init__(self, job: Job, pods: Mapping[str, Pod], others: Iterable[Job] = ()) -> None:
        """Collect the objects.

        Args:
            job: The job.
            pods: The known pods of the cluster by uid.
            others: All jobs, to tell apart objects of the same name.
        """
        ref = job.ref
        self._job = job
        self._instances = {each.pod: each.name for each in job.instances if each.pod}
        self._strangers = {
            (each.ref.kind, each.ref.name)
            for each in others
            if each.ref.namespace == ref.namespace and each.ref != ref
        }
        makers = {f"{ref.name}-{each.role}{end}" for each in job.instances for end in ("", f"-{each.index}")}
        groups = {f"{ref.name}-{job.uid}", f"podgroup-{job.uid}"}
        for each in job.instances:
            if (pod := pods.get(each.pod_uid)) is None:
                continue
            meta = pod.metadata
            makers |= {owner.name for owner in meta.owner_references or ()}
            groups |= {meta.annotation(key) or meta.label(key) for key in GROUP_KEYS}
            groups.add(f"podgroup-{each.pod_uid}")
        self._makers = makers - {ref.name}
        self._groups = groups - {""}
        queued = "|".join(map(re.escape, sorted({ref.name, *self._makers})))
        self._workload = re.compile(rf"([a-z]+)-({queued})-[0-9a-f]{{5}}")

    def name_of(self, about: ObjectReference) -> str | None:
        """Return an object's name in this job's views; None if it is not part of the job."""
        ref, kind, name = self._job.ref, about.kind, about.name
        if kind in ("Pod", "") and name in self._instances:
            return self._instances[name]
        if (kind, name) in self._strangers:
            return None
        if name == ref.name:
            if kind not in (ref.kind, ""):
                return kind
            return "job" if not about.uid or not self._job.uid or about.uid == self._job.uid else None
        if kind == "Workload" and (found := self._workload.fullmatch(name)):
            is_strange = any((found[1], found[2]) == (each.lower(), who) for each, who in self._strangers)
            return None if is_strange else kind
        if (kind == "PodGroup" and name in self._groups) or name in self._makers:
            return f"{kind} {name.removeprefix(f'{ref.name}-')}" if kind != "PodGroup" else kind
        return None


def fold_job_events(
    events: Iterable[Event], relatives: JobEventFilter, since: datetime | None
) -> list[FoldedEvent]:
    """Return the events of a job, newest first; events older than the job belong to a namesake.

    Equal events about several objects of one kind are one.
    """
    return fold_named_events(select_job_events(events, relatives, since))


def fold_named_events(found: Iterable[tuple[str, Event]]) -> list[FoldedEvent]:
    """Fold equal events, each after the name of its object, newest first."""
    alike: dict[tuple[str, ...], list[tuple[str, Event]]] = {}
    for name, event in found:
        key = (event.involved_object.kind, event.type or "", event.reason or "", event.message or "")
        alike.setdefault(key, []).append((name, event))
    return sorted(map(fold, alike.values()), key=lambda each: event_order(each.newest), reverse=True)


def select_job_events(
    events: Iterable[Event], relatives: JobEventFilter, since: datetime | None
) -> Iterator[tuple[str, Event]]:
    """Return a job's events, each after the name of its object; see `fold_job_events`."""
    for event in events:
        name = relatives.name_of(event.involved_object)
        if name is not None and (since is None or event.at is None or event.at >= since):
            yield name, event


def fold(alike: Iterable[tuple[str, Event]]) -> FoldedEvent:
    """Fold equal events, each after the name of its object, into one."""
    in_turn = sorted(alike, key=lambda each: event_order(each[1]))
    names = list(dict.fromkeys(name for name, _ in in_turn))
    starts = [event.first_timestamp or event.at for _, event in in_turn]
    return FoldedEvent(
        in_turn[-1][1],
        f"{names[0]} +{len(names) - 1}" if len(names) > 1 else names[0],
        sum(max(1, event.count or 1) for _, event in in_turn),
        min((start for start in starts if start is not None), default=None),
    )


def event_order(event: Event) -> tuple[datetime, str]:
    """Return a sort key: the time in whole seconds, the resolution of some events, then the creation time.

    Source: client-go `makeEvent`: a name ends in the time in ns, 16 hexadecimal digits.
    """
    return (event.at or LONG_AGO).replace(microsecond=0), event.metadata.name.rpartition(".")[2]


def full_text(folded: FoldedEvent) -> str:
    """Return all details of an event as plain text, one per line."""
    event, about = folded.newest, folded.newest.involved_object
    parts = (
        ("about", f"{about.kind} {about.namespace or event.metadata.namespace}/{about.name}"),
        ("also about", folded.about if " +" in folded.about else ""),
        ("type", event.type or ""),
        ("reason", event.reason or ""),
        ("seen", f"{folded.count} times" if folded.count > 1 else "once"),
        ("first", local_time(folded.first)),
        ("last", local_time(event.at)),
        ("said by", event.source.component),
        ("event", event.metadata.name),
    )
    lines = [f"{name:<11} {said}" for name, said in parts if said]
    return "\n".join([event.message or "(It says nothing.)", "", *lines])


_SHORT: Mapping[str, str] = {"PersistentVolumeClaim": "pvc", "PersistentVolume": "pv"}
Place = tuple[str, str, str]


class EventGroup(msgspec.Struct, frozen=True, eq=False):
    """One line of events; the same object as long as its events stay the same."""

    key: str
    folded: FoldedEvent
    """Its events as one; `about` is as in kubectl: `pod/bert-worker-0`, plus ` +15` if there are more."""
    job: JobRef | None
    events: tuple[Event, ...]


def jobs_by_reference(jobs: Iterable[Job]) -> dict[Place, JobRef]:
    """Return the job of each job object and each pod."""
    found = {(job.ref.namespace, job.ref.kind, job.ref.name): job.ref for job in jobs}
    for job in jobs:
        for each in job.instances:
            if each.pod:
                found[job.ref.namespace, "Pod", each.pod] = job.ref
    return found


class EventGrouper:
    """Groups events repeatedly, and reuses the groups that have not changed."""

    def __init__(self) -> None:
        """Start with no groups."""
        self._groups: dict[tuple[object, ...], EventGroup] = {}

    def group(
        self, events: Iterable[Event], jobs: Mapping[Place, JobRef], *, only_warnings: bool = False
    ) -> list[EventGroup]:
        """Return the events in groups, newest first.

        Args:
            events: All events; those of one object in the server's order.
            jobs: The job of each object: see `jobs_by_reference`.
            only_warnings: Leave out normal events.
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
    job = jobs.get((folded.namespace, about.kind, about.name))
    folded = replace(folded, has_job=job is not None)
    return EventGroup(events[0].metadata.uid, folded, job, events)


def _kubectl_name(about: ObjectReference) -> str:
    return f"{_SHORT.get(about.kind, about.kind.lower()) or '?'}/{about.name}"


def _style(event: FoldedEvent) -> CellStyle:
    return "pending" if event.is_warning else "quiet"


def _message(event: FoldedEvent, _: Clock) -> Cell:
    text = sanitize(" ".join((event.newest.message or NOTHING).split()))
    return Cell(text, "" if event.is_warning else "quiet")


def _about_values(event: FoldedEvent, _: Clock) -> Values:
    about = event.newest.involved_object
    return {"about": event.about, "kind": about.kind, "name": about.name}


COLUMNS: tuple[ListColumn[FoldedEvent, Clock], ...] = (
    ListColumn(
        "age", "AGE", align="right", is_age=True,
        cell=lambda event, clock: Cell.of_age(event.newest.at, clock),
        printed="table",
        values=lambda event, clock: {
            "at": timestamp(event.newest.at), "age_s": seconds_since(event.newest.at, clock.now),
        },
    ),
    ListColumn(
        "type", "TYPE", priority=3,
        cell=lambda event, _: Cell(sanitize(event.newest.type or NOTHING), _style(event)),
        value=lambda event, _: event.newest.type or "", printed="table",
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=4, elide="end", min_width=9, max_width=20,
        cell=lambda event, _: Cell(sanitize(event.namespace) or NOTHING, "quiet"),
    ),
    ListColumn(
        "about", "ABOUT", elide="middle", min_width=16, max_width=48,
        cell=lambda event, _: Cell(sanitize(event.about), "bright" if event.has_job else ""),
        printed="table",
        values=_about_values,
    ),
    ListColumn(
        "reason", "REASON", elide="end", min_width=10, max_width=28, priority=1,
        cell=lambda event, _: Cell(sanitize(event.newest.reason or NOTHING), _style(event)),
        value=lambda event, _: event.newest.reason or "", printed="table",
    ),
    ListColumn(
        "count", "×", align="right", priority=2, sorts_largest_first=True, flashes=True,
        cell=lambda event, _: Cell(count(event.count), "" if event.count > 1 else "quiet", sort=event.count),
        value=lambda event, _: event.count,
        printed="table", printed_title="COUNT", text=lambda event, _: str(event.count),
    ),
    ListColumn(
        "message", "MESSAGE", elide="end", min_width=20, max_width=300,
        cell=_message,
        value=lambda event, _: event.newest.message or "",
        printed="table", text=lambda event, _: event.newest.message or NOTHING,
    ),
)  # fmt: skip
