"""The rows of jobs: their places, the pods in them, and what these say together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from k8s import devices, models
from k8s.cluster.chains import Root
from k8s.kinds import DeclaredJob, JobRef, kind_of
from k8s.kinds.any_owner import AnyOwner
from k8s.kinds.base import Replica
from k8s.models import Meta, Pod, PodSpec
from k8s.snapshot import Holder, Instance, Job
from k8s.status import Declaration, Part, Status, ended_at, job_status, pod_status

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""When something was made that does not say when."""
_LIVELINESS = {"Failed": 0, "Succeeded": 1}
"""Phase to how little a pod still does, below 2 for all others."""


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a row, and what was worked out about it once."""

    pod: Pod
    gpus: int
    """Devices that it asks for."""
    is_holder: bool
    """It holds or wants accelerators: it asks for some and has not finished."""
    root: Root | None = None
    """What it is part of."""
    holder: Holder | None = None
    """What it holds of its node, under its row's name."""
    place: Replica | None = None
    instance: Instance | None = None
    """What was last shown of it, at `place`."""


@dataclass(slots=True, eq=False)
class Wish:
    """A job's object, and how many devices each of its places asks for."""

    job: DeclaredJob
    gpus: Mapping[tuple[str, int], int] = field(init=False)
    """Role and index to devices."""

    def __post_init__(self) -> None:
        by_template = {id(each.template): each.template for each in self.job.replicas}
        asked = {key: _gpus_of(template) for key, template in by_template.items()}
        self.gpus = {(each.role, each.index): asked[id(each.template)] for each in self.job.replicas}


def job_row(wish: Wish, below: Iterable[Wish], members: Iterable[Member], silent: Mapping[str, str]) -> Job:
    """Return the row of a job.

    Args:
        wish: The job.
        below: The jobs that do its work, which may know better what it asks for and how
            often it was started anew.
        members: Its pods and theirs.
        silent: Nodes whose word cannot be had, each with why in words.
    """
    job, gpus = wish.job, dict(wish.gpus)
    for part in below:
        for place in gpus.keys() & part.gpus.keys():
            gpus[place] = part.gpus[place]
        owner = part.job.meta.controller
        if owner is not None and owner.uid == job.meta.uid and job.restarts_allowed is None:
            restarts = max(job.restarts, part.job.restarts)
            job = replace(job, restarts=restarts, restarts_allowed=part.job.restarts_allowed)
    members = list(members)
    requested = sum(gpus[each.role, each.index] for each in job.replicas)
    return _row(job, _instances(job, members, gpus, silent), members, requested)


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
    began = [each.pod.status.start_time for each in members if each.pod.status.start_time is not None]
    job = replace(known, ref=ref, has_status=True, started=min(began, default=None))
    return _row(job, _instances(job, members, {}, silent), members, sum(each.gpus for each in members))


def _row(job: DeclaredJob, instances: tuple[Instance, ...], members: list[Member], requested: int) -> Job:
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
        [_part(each) for each in instances if each.pod],
    )
    return Job(
        ref=job.ref,
        uid=job.meta.uid,
        status=status,
        reason=reason,
        gpus_requested=requested,
        gpus_allocated=sum(each.holder.gpus for each in members if each.holder is not None),
        instances=instances,
        instances_running=sum(each.status is Status.RUNNING for each in instances),
        user=job.user or job.ref.namespace,
        priority=job.priority,
        created=job.meta.creation_timestamp,
        started=job.started,
        finished=job.finished if job.outcome is not None else None,
        conditions=job.conditions,
        log_dir=job.log_dir,
        trainer=job.trainer,
        queue=job.queue,
        restarts=job.restarts,
        tensorboard=job.tensorboard,
        progress=job.progress,
        labels=job.meta.labels or {},
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


def _instances(
    job: DeclaredJob,
    members: Sequence[Member],
    gpus: Mapping[tuple[str, int], int],
    silent: Mapping[str, str],
) -> tuple[Instance, ...]:
    """Match the pods with the places that the job has for them; the newest pod of a place wins.

    Pods without a number take the places left, those that still do something first;
    of those that are left then, the ones that still do something have places of their own.
    """
    kind = kind_of(job.ref)
    placed: dict[tuple[str, int], Member] = {}
    unnumbered: list[Member] = []
    for member in sorted(members, key=_age):
        place = kind.instance_of(member.pod)
        if place is None:
            unnumbered.append(member)
        else:
            placed[place] = member
    unnumbered.sort(key=lambda member: _LIVELINESS.get(member.pod.status.phase, 2))
    found = []
    for replica in job.replicas:
        here = placed.pop((replica.role, replica.index), None)
        if here is None and unnumbered:
            here = unnumbered.pop()
        found.append(
            _instance(replica, here, kind.container, gpus.get((replica.role, replica.index), 0), silent)
        )
    first = 1 + max((replica.index for replica in job.replicas if replica.role == "pod"), default=-1)
    alive = [member for member in unnumbered if not member.pod.is_finished]
    extra = [*sorted(placed.items(), key=lambda each: each[0])]
    extra += [(("pod", first + number), member) for number, member in enumerate(alive)]
    found += [_extra(role, index, member, kind.container, silent) for (role, index), member in extra]
    return tuple(found)


def _age(member: Member) -> tuple[datetime, str, str]:
    meta = member.pod.metadata
    return meta.creation_timestamp or LONG_AGO, meta.name, meta.uid


def _extra(role: str, index: int, member: Member, container: str, silent: Mapping[str, str]) -> Instance:
    """Return the instance of a pod that its job has no place for."""
    place = member.place
    if place is None or (place.role, place.index) != (role, index) or place.name != member.pod.metadata.name:
        place = Replica(member.pod.metadata.name, role, index, False, (), "none", {}, "Never")
    return _instance(place, member, container, member.gpus, silent)


def _instance(
    place: Replica, member: Member | None, container: str, gpus: int, silent: Mapping[str, str]
) -> Instance:
    """Return a place with the pod in it, the same value as long as neither has changed."""
    if member is None:
        return Instance(
            name=place.instance,
            role=place.role,
            index=place.index,
            is_chief=place.is_chief,
            ranks=place.ranks,
            ranks_proof=place.ranks_proof,
            status=Status.PENDING,
            reason="no pod yet",
            gpus=gpus,
            node="",
            restarts=0,
            created=None,
            pod="",
            pod_uid="",
            containers=(),
        )
    if member.instance is not None and member.place is place and member.instance.gpus == gpus:
        return member.instance
    pod = member.pod
    status, reason = pod_status(pod, silent)
    member.place = place
    member.instance = Instance(
        name=place.instance,
        role=place.role,
        index=place.index,
        is_chief=place.is_chief,
        ranks=place.ranks,
        ranks_proof=place.ranks_proof,
        status=status,
        reason=reason,
        gpus=gpus,
        node=pod.spec.node_name,
        restarts=sum(each.restart_count for each in pod.status.container_statuses or ()),
        created=pod.metadata.creation_timestamp,
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        containers=_containers(pod, container),
        finished=ended_at(pod),
    )
    return member.instance


def _containers(pod: Pod, first: str) -> tuple[str, ...]:
    names = [each.name for each in pod.spec.containers]
    names.sort(key=lambda name: name != first)
    return (*names, *(each.name for each in pod.spec.init_containers or ()))


def _gpus_of(template: Mapping[str, Any]) -> int:
    try:
        spec: PodSpec = models.convert(template.get("spec") or {}, PodSpec, strict=False)
    except (msgspec.ValidationError, AttributeError):  # a template can be anything
        return 0
    return devices.count(devices.of_pod(spec))
