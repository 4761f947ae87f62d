"""The rows of jobs: their places, the pods in them, and what these say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Self

import msgspec

from k8s import models
from k8s.cluster.node_rows import holder_of
from k8s.cluster.owner_chain import Root
from k8s.devices import accelerators
from k8s.kinds import DeclaredJob, JobRef, kind_of
from k8s.kinds.base import Replica
from k8s.kinds.unknown import AnyOwner
from k8s.models import Meta, Pod, PodSpec
from k8s.snapshot import Holder, Instance, Job
from k8s.status import Status
from k8s.status.job import Declaration, Part, job_status
from k8s.status.pod import ended_at, pod_status

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""When something was made that does not say when."""
_LIVELINESS = {"Failed": 0, "Succeeded": 1}
"""Phase to how little a pod still does, below 2 for all others."""
_Spot = tuple[str, int]
"""Role, and index within it."""


class Member(msgspec.Struct, gc=False, eq=False):
    """A pod, and what was worked out about it once."""

    pod: Pod
    gpus: int
    """Devices that it asks for."""
    is_holder: bool
    """It holds or wants accelerators."""
    root: Root | None
    """What it is part of."""
    age: tuple[datetime, str, str]
    """The larger, the younger."""
    role: str
    """The role that its labels tell, if they do."""
    spot: _Spot | None
    """The role and the number that they tell, if they tell both."""
    holder: Holder | None
    """What it holds of its node, under its root's name."""
    place: Replica | None = None
    instance: Instance | None = None
    """What was last shown of it, at `place`."""
    part: Part | None = None
    """The same, as far as its job's status is concerned."""

    @classmethod
    def of(cls, pod: Pod, find_root: Callable[[Pod, bool], Root | None]) -> Self:
        """Work out what does not depend on other pods."""
        held = accelerators.of_pod(pod.spec)
        is_holder = bool(held) and not pod.is_finished
        root = find_root(pod, is_holder)
        meta = pod.metadata
        role, index = (kind_of(root.ref).instance_of(pod) if root is not None else None) or ("", None)
        return cls(
            pod,
            accelerators.count(held),
            is_holder,
            root,
            (meta.creation_timestamp or LONG_AGO, meta.name, meta.uid),
            role,
            None if index is None else (role, index),
            holder_of(pod, root.ref.name) if is_holder and root is not None else None,
        )

    def sit(self, place: Replica, instance: Instance) -> Instance:
        """Remember what is shown of it at a place."""
        self.place, self.instance, self.part = place, instance, _part(instance)
        return instance

    @property
    def liveliness(self) -> tuple[int, tuple[datetime, str, str]]:
        """Return how much it still does: the larger, the more and the younger."""
        return _LIVELINESS.get(self.pod.status.phase, 2), self.age


class JobEntry:
    """A job's object, and how many devices each of its places asks for."""

    __slots__ = ("gpus", "job", "places", "vacant")

    def __init__(self, job: DeclaredJob) -> None:
        """Read what the places ask for, once for all that have the same template."""
        by_template = {id(each.template): each.template for each in job.replicas}
        asked = {key: _gpus_of(template) for key, template in by_template.items()}
        self.job = job
        self.places = [(each, (each.role, each.index), asked[id(each.template)]) for each in job.replicas]
        """Each place, its role and index, and the devices that it asks for."""
        self.gpus = {spot: gpus for _, spot, gpus in self.places}
        self.vacant: dict[_Spot, Instance] = {}
        """What was last shown of a place without a pod."""


def job_row(
    wish: JobEntry,
    below: Iterable[JobEntry],
    members: Sequence[Member],
    silent: Mapping[str, str],
    before: Job | None = None,
) -> Job:
    """Return the row of a job.

    Args:
        wish: The job.
        below: The jobs that do its work, which may know better what it asks for and how
            often it was started anew.
        members: Its pods and theirs.
        silent: Nodes whose word cannot be had, each with why in words.
        before: The row made of the same jobs before, if any.
    """
    job, gpus = wish.job, wish.gpus
    for part in below:
        gpus = {**gpus, **{spot: part.gpus[spot] for spot in gpus.keys() & part.gpus.keys()}}
        owner = part.job.meta.controller
        if owner is not None and owner.uid == job.meta.uid and job.restarts_allowed is None:
            restarts = max(job.restarts, part.job.restarts)
            job = replace(job, restarts=restarts, restarts_allowed=part.job.restarts_allowed)
    instances, seated = _instances(wish, members, gpus, silent)
    now = (instances, _held(members), job.started or _began(members))
    if before is not None and (before.instances, before.gpus_allocated, before.started) == now:
        return before
    return _row(job, instances, seated, members, sum(gpus[spot] for _, spot, _ in wish.places))


def owner_row(
    ref: JobRef, uid: str, meta: Meta | None, members: list[Member], silent: Mapping[str, str]
) -> Job:
    """Return the row of whatever else holds accelerators, of which only the pods are known.

    Args:
        ref: Which it is.
        uid: Its uid.
        meta: Its metadata, if they are known.
        members: Its pods that hold or want accelerators.
        silent: Nodes whose word cannot be had, each with why in words.
    """
    if meta is None:
        meta = Meta(ref.name, ref.namespace, uid)
    if meta.creation_timestamp is None:
        made = [each.pod.metadata.creation_timestamp for each in members]
        oldest = min((at for at in made if at is not None), default=None)
        meta = msgspec.structs.replace(meta, creation_timestamp=oldest)
    known = AnyOwner(ref.kind, ref.api_version).parse({"metadata": msgspec.to_builtins(meta)})
    job = replace(known, ref=ref, has_status=True)
    instances, seated = _instances(JobEntry(job), members, {}, silent)
    return _row(job, instances, seated, members, sum(each.gpus for each in members))


def _row(
    job: DeclaredJob,
    instances: tuple[Instance, ...],
    seated: Iterable[Member],
    members: Iterable[Member],
    requested: int,
) -> Job:
    status, reason = job_status(
        Declaration(
            outcome=job.outcome,
            outcome_reason=job.outcome_reason,
            is_suspended=job.is_suspended,
            queue=job.queue,
            is_deleting=job.meta.deletion_timestamp is not None,
            total=len(job.replicas) or len(instances),
            enough=job.enough,
            restarts=job.restarts,
            restarts_allowed=job.restarts_allowed,
            has_status=job.has_status,
        ),
        [each.part for each in seated if each.part is not None],
    )
    return Job(
        ref=job.ref,
        uid=job.meta.uid,
        status=status,
        reason=reason,
        gpus_requested=requested,
        gpus_allocated=_held(members),
        instances=instances,
        instances_running=len([each for each in instances if each.status is Status.RUNNING]),
        user=job.user or job.ref.namespace,
        priority=job.priority,
        created=job.meta.creation_timestamp,
        started=job.started or _began(members),
        finished=job.finished if job.outcome is not None else None,
        conditions=job.conditions,
        log_dir=job.log_dir,
        trainer=job.trainer,
        queue=job.queue,
        restarts=job.restarts,
        tensorboard=job.tensorboard,
        progress=job.progress,
        labels=job.meta.labels or {},
        finalizers=tuple(job.meta.finalizers or ()),
    )


def _began(members: Iterable[Member]) -> datetime | None:
    """Return when the first of the pods began, for jobs that do not say so themselves."""
    return min([at for each in members if (at := each.pod.status.start_time) is not None], default=None)


def _held(members: Iterable[Member]) -> int:
    return sum([each.holder.gpus for each in members if each.holder is not None])


def _instances(
    wish: JobEntry, members: Iterable[Member], gpus: Mapping[_Spot, int], silent: Mapping[str, str]
) -> tuple[tuple[Instance, ...], list[Member]]:
    """Match the pods with the places that the job has for them; the newest pod of a place wins.

    Pods without a number take the places left of their role, or any if they have none, those
    that still do something first; of those that are left then, the ones that still do
    something have places of their own.

    Returns:
        All places, and the pods in them.
    """
    container = kind_of(wish.job.ref).container
    placed: dict[_Spot, Member] = {}
    unnumbered: dict[str, list[Member]] = {}
    for member in members:
        spot = member.spot
        if spot is None:
            unnumbered.setdefault(member.role, []).append(member)
        elif spot not in placed or placed[spot].age < member.age:
            placed[spot] = member
    for of_role in unnumbered.values():
        of_role.sort(key=lambda member: member.liveliness)
    found: list[Instance] = []
    seated: list[Member] = []
    for place, spot, asked in wish.places:
        here = placed.pop(spot, None)
        if here is None and unnumbered:
            takers = unnumbered.get(place.role) or unnumbered.get("")
            here = takers.pop() if takers else None
        wanted = gpus.get(spot, asked)
        if here is None:
            found.append(_vacant(wish, place, spot, wanted))
        else:
            seated.append(here)
            shown = here.instance
            if shown is None or here.place is not place or shown.gpus != wanted:
                shown = here.sit(place, _instance(here.pod, place, container, wanted, silent))
            found.append(shown)
    for spot, member in _without_place(wish, placed, unnumbered) if placed or unnumbered else ():
        place = _place_of_its_own(member, spot)
        if member.instance is None or member.place is not place or member.instance.gpus != member.gpus:
            member.sit(place, _instance(member.pod, place, container, member.gpus, silent))
        if member.instance is not None:
            seated.append(member)
            found.append(member.instance)
    return tuple(found), seated


def _without_place(
    wish: JobEntry, placed: Mapping[_Spot, Member], unnumbered: Mapping[str, Iterable[Member]]
) -> list[tuple[_Spot, Member]]:
    """Return the pods for which the job has no place, with places of their own."""
    found = sorted(placed.items(), key=lambda each: each[0])
    for told, members in sorted(unnumbered.items()):
        role = told or "pod"
        taken = (*wish.gpus, *(spot for spot, _ in found))
        free = count(1 + max((index for each, index in taken if each == role), default=-1))
        found += [((role, next(free)), member) for member in members if not member.pod.is_finished]
    return found


def _place_of_its_own(member: Member, spot: _Spot) -> Replica:
    """Return a place for a pod that its job no longer asks for, or never did."""
    name = member.pod.metadata.name
    place = member.place
    if place is not None and (place.role, place.index, place.name) == (*spot, name):
        return place
    return Replica(name, *spot, False, (), "none", {}, "Never")


def _vacant(wish: JobEntry, place: Replica, spot: _Spot, gpus: int) -> Instance:
    """Return a place without a pod."""
    shown = wish.vacant.get(spot)
    if shown is None or shown.gpus != gpus:
        wish.vacant[spot] = shown = _instance(None, place, "", gpus, {})
    return shown


def _instance(
    pod: Pod | None, place: Replica, container: str, gpus: int, silent: Mapping[str, str]
) -> Instance:
    status, reason = (Status.PENDING, "no pod yet") if pod is None else pod_status(pod, silent)
    return Instance(
        name=place.instance,
        role=place.role,
        index=place.index,
        is_chief=place.is_chief,
        ranks=place.ranks,
        ranks_proof=place.ranks_proof,
        status=status,
        reason=reason,
        gpus=gpus,
        node=pod.spec.node_name if pod is not None else "",
        restarts=sum([each.restart_count for each in pod.status.container_statuses or ()]) if pod else 0,
        created=pod.metadata.creation_timestamp if pod is not None else None,
        pod=pod.metadata.name if pod is not None else "",
        pod_uid=pod.metadata.uid if pod is not None else "",
        containers=_containers(pod, container) if pod is not None else (),
        finished=ended_at(pod) if pod is not None else None,
    )


def _part(instance: Instance) -> Part:
    return Part(
        instance.name,
        instance.ranks,
        instance.status,
        instance.reason,
        instance.gpus,
        instance.finished,
        bool(instance.node),
        instance.restarts,
    )


def _containers(pod: Pod, first: str) -> tuple[str, ...]:
    containers, init_containers = pod.spec.containers, pod.spec.init_containers or ()
    if len(containers) == 1 and not init_containers:
        return (containers[0].name,)
    names = [each.name for each in containers]
    names.sort(key=lambda name: name != first)
    return (*names, *[each.name for each in init_containers])


def _gpus_of(template: Mapping[str, Any]) -> int:
    try:
        spec: PodSpec = models.convert(template.get("spec") or {}, PodSpec, strict=False)
    except (msgspec.ValidationError, AttributeError):  # a template can be anything
        return 0
    return accelerators.count(accelerators.of_pod(spec))
