"""Which events are a job's: its own, its pods', and those of what stands between and beside them.

Between a job and its pods may stand other objects (the JobSet of a TrainJob, the launcher's Job of an
MPIJob); beside it the PodGroup of a gang scheduler and Kueue's Workload. Those that exist are found
by the owners and labels of the pods; before there are pods, by the names that their makers give them.

Sources: training-operator and Volcano `podgroup-<uid>`, Kueue `GetWorkloadNameForOwnerWithGVK`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from k8s.diagnosis.gather import GROUP_KEYS
from k8s.models import LONG_AGO, Event, ObjectReference, Pod
from k8s.snapshot import Job


@dataclass(frozen=True, slots=True)
class FoldedEvent:
    """One event, or several that say the same of objects of one kind."""

    newest: Event
    """The event that was seen last."""
    about: str
    """What it is about, in the job's words: `job`, `worker-2`, `worker-0 +15`."""
    count: int
    """How often it was seen, all events together."""
    first: datetime | None
    """When it was seen first."""

    @property
    def is_warning(self) -> bool:
        """Tell whether it is no matter of course."""
        return self.newest.type == "Warning"


class JobEventFilter:
    """The objects whose events are a job's."""

    def __init__(self, job: Job, pods: Mapping[str, Pod], others: Iterable[Job] = ()) -> None:
        """Find out which they are.

        Args:
            job: The job.
            pods: The pods of the cluster by uid, as far as they are known.
            others: All jobs, so that none of the same name is mistaken for this one's.
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
        """Return what an object is called in this job's view; None when it is none of this job's."""
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
    """Return what happened to a job, the newest first; what was said before it was made is a namesake's.

    Events that say the same of several objects of one kind are one.
    """
    alike: dict[tuple[str, ...], list[tuple[str, Event]]] = {}
    for name, event in select_job_events(events, relatives, since):
        key = (event.involved_object.kind, event.type or "", event.reason or "", event.message or "")
        alike.setdefault(key, []).append((name, event))
    return sorted(map(fold, alike.values()), key=lambda each: event_order(each.newest), reverse=True)


def select_job_events(
    events: Iterable[Event], relatives: JobEventFilter, since: datetime | None
) -> Iterator[tuple[str, Event]]:
    """Return a job's events, each after what it is about in the job's words; see `fold_job_events`."""
    for event in events:
        name = relatives.name_of(event.involved_object)
        if name is not None and (since is None or event.at is None or event.at >= since):
            yield name, event


def fold(alike: Iterable[tuple[str, Event]]) -> FoldedEvent:
    """Return events that say the same, each after what it is about, as one."""
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
    """Return what puts events in turn: the second, for some know no more, then when each was seen first.

    Source: client-go `makeEvent`: a name ends in the time in ns, 16 hexadecimal digits.
    """
    return (event.at or LONG_AGO).replace(microsecond=0), event.metadata.name.rpartition(".")[2]


def full_text(folded: FoldedEvent) -> str:
    """Return all that an event says, as plain text, one thing a line."""
    event, about = folded.newest, folded.newest.involved_object
    parts = (
        ("about", f"{about.kind} {about.namespace or event.metadata.namespace}/{about.name}"),
        ("also about", folded.about if " +" in folded.about else ""),
        ("type", event.type or ""),
        ("reason", event.reason or ""),
        ("seen", f"{folded.count} times" if folded.count > 1 else "once"),
        ("first", _moment(folded.first)),
        ("last", _moment(event.at)),
        ("said by", event.source.component),
        ("event", event.metadata.name),
    )
    lines = [f"{name:<11} {said}" for name, said in parts if said]
    return "\n".join([event.message or "(It says nothing.)", "", *lines])


def _moment(at: datetime | None) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}" if at is not None else ""
