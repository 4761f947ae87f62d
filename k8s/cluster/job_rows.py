"""The rows of jobs: the replicas they ask for, the pods that fill them, and what these say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
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
from k8s.models import LONG_AGO, Meta, Pod, PodSpec
from k8s.snapshot import Holder, Instance, Job
from k8s.status import Status
from k8s.status.job import DeclaredStatus, InstanceState, job_status
from k8s.status.pod import ended_at, pod_status

_LIVELINESS = {"Failed": 0, "Succeeded": 1}
"""Phase to how little a pod still does, below 2 for all others."""
_END_BY_PHASE = {"Failed": Status.FAILED, "Succeeded": Status.SUCCEEDED}
_Slot = tuple[str, int]
"""Role, and index within it."""


class Member(msgspec.Struct, gc=False, eq=False):
    """A pod, and what was worked out about it once."""

    pod: Pod
    gpus: int
    """Devices that it asks for."""
    has_accelerators: bool
    """It asks for accelerators."""
    root: Root | None
    """The job, or the topmost owner, that it belongs to."""
    age: tuple[datetime, str, str]
    """A sort key: creation time, name, uid."""
    role: str
    """The role that its labels tell, if they do."""
    slot: _Slot | None
    """The role and the number that they tell, if they tell both."""
    holder: Holder | None
    """What it holds of its node, under its root's name."""
    replica: Replica | None = None
    instance: Instance | None = None
    """What was last shown of it, at `replica`."""
    state: InstanceState | None = None
    """The same, as far as its job's status is concerned."""

    @classmethod
    def of(cls, pod: Pod, find_root: Callable[[Pod, bool], Root | None]) -> Self:
        """Make a member of a pod: all of it that does not depend on other pods."""
        held = accelerators.of_pod(pod.spec)
        root = find_root(pod, bool(held))
        meta = pod.metadata
        role, index = (kind_of(root.ref).instance_of(pod) if root is not None else None) or ("", None)
        return cls(
            pod,
            accelerators.count(held),
            bool(held),
            root,
            (meta.creation_timestamp or LONG_AGO, meta.name, meta.uid),
            role,
            None if index is None else (role, index),
            holder_of(pod, root.ref.name) if held and root is not None else None,
        )

    def show_as(self, replica: Replica, instance: Instance) -> Instance:
        """Remember what is shown of it at a replica."""
        self.replica, self.instance, self.state = replica, instance, _state(instance)
        return instance

    @property
    def is_alone(self) -> bool:
        """Tell whether it is part of nothing, so that it has a row of its own."""
        return self.root is not None and self.root.key == self.pod.metadata.uid

    @property
    def liveliness(self) -> tuple[int, tuple[datetime, str, str]]:
        """Return a sort key: pods that run or wait after those that have ended, the younger last."""
        return _LIVELINESS.get(self.pod.status.phase, 2), self.age


class JobEntry:
    """A job's object, and how many devices each of its replicas asks for."""

    __slots__ = ("gpus", "job", "podless", "replicas")

    def __init__(self, job: DeclaredJob) -> None:
        """Read what the replicas ask for, once for all that have the same template."""
        by_template = {id(each.template): each.template for each in job.replicas}
        asked = {key: _gpus_of(template) for key, template in by_template.items()}
        self.job = job
        self.replicas = [(each, (each.role, each.index), asked[id(each.template)]) for each in job.replicas]
        """Each replica, its role and index, and the devices that it asks for."""
        self.gpus = {slot: gpus for _, slot, gpus in self.replicas}
        self.podless: dict[_Slot, Instance] = {}
        """What was last shown of a replica without a pod."""


def job_row(
    entry: JobEntry,
    below: Iterable[JobEntry],
    members: Sequence[Member],
    unready: Mapping[str, str],
    before: Job | None = None,
) -> Job:
    """Return the row of a job.

    Args:
        entry: The job.
        below: The jobs that do its work, which may know better what it asks for and how
            often it was started anew.
        members: Its pods and theirs.
        unready: Nodes that are not Ready, each with why in words.
        before: The row made of the same jobs before, if any.
    """
    job, gpus = entry.job, entry.gpus
    for part in below:
        gpus = {**gpus, **{slot: part.gpus[slot] for slot in gpus.keys() & part.gpus.keys()}}
        owner = part.job.meta.controller
        if owner is not None and owner.uid == job.meta.uid and job.restarts_allowed is None:
            restarts = max(job.restarts, part.job.restarts)
            job = replace(job, restarts=restarts, restarts_allowed=part.job.restarts_allowed)
    instances, matched = _instances(entry, members, gpus, unready)
    now = (instances, _held(members), job.started or _first_start(members))
    if before is not None and (before.instances, before.gpus_allocated, before.started) == now:
        return before
    return _row(job, instances, matched, members, sum(gpus[slot] for _, slot, _ in entry.replicas))


def owner_row(
    ref: JobRef, uid: str, meta: Meta | None, members: list[Member], unready: Mapping[str, str]
) -> Job:
    """Return the row of whatever else holds accelerators, of which only the pods are known.

    A pod that nobody owns is a job of one pod, which ends as it does.

    Args:
        ref: Which it is.
        uid: Its uid.
        meta: Its metadata, if they are known.
        members: Its pods that hold or want accelerators, or the one that did.
        unready: Nodes that are not Ready, each with why in words.
    """
    if meta is None:
        meta = Meta(ref.name, ref.namespace, uid)
    if meta.creation_timestamp is None:
        made = [each.pod.metadata.creation_timestamp for each in members]
        oldest = min((at for at in made if at is not None), default=None)
        meta = msgspec.structs.replace(meta, creation_timestamp=oldest)
    known = AnyOwner(ref.kind, ref.api_version).parse({"metadata": msgspec.to_builtins(meta)})
    job = replace(known, ref=ref, has_status=True)
    if members[0].is_alone and (end := _END_BY_PHASE.get(members[0].pod.status.phase)):
        job = replace(job, outcome=end, finished=ended_at(members[0].pod))
    instances, matched = _instances(JobEntry(job), members, {}, unready)
    return _row(job, instances, matched, members, sum(each.gpus for each in members))


def _row(
    job: DeclaredJob,
    instances: tuple[Instance, ...],
    matched: Iterable[Member],
    members: Iterable[Member],
    requested: int,
) -> Job:
    status, reason = job_status(
        DeclaredStatus(
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
        [each.state for each in matched if each.state is not None],
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
        started=job.started or _first_start(members),
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
        replicas=job.replicas,
    )


def _first_start(members: Iterable[Member]) -> datetime | None:
    """Return when the first of the pods began, for jobs that do not say so themselves."""
    return min([at for each in members if (at := each.pod.status.start_time) is not None], default=None)


def _held(members: Iterable[Member]) -> int:
    return sum([each.holder.gpus for each in members if each.holder is not None])


def _instances(
    entry: JobEntry, members: Iterable[Member], gpus: Mapping[_Slot, int], unready: Mapping[str, str]
) -> tuple[tuple[Instance, ...], list[Member]]:
    """Match the pods with the replicas that the job has for them; the newest pod of a replica wins.

    Pods without a number take the replicas left of their role, or any if they have none, those
    that still do something first; of those that are left then, the ones that still do
    something have replicas of their own.

    Returns:
        All replicas, and the pods in them.
    """
    container = kind_of(entry.job.ref).container
    placed: dict[_Slot, Member] = {}
    unnumbered: dict[str, list[Member]] = {}
    for member in members:
        slot = member.slot
        if slot is None:
            unnumbered.setdefault(member.role, []).append(member)
        elif slot not in placed or placed[slot].age < member.age:
            placed[slot] = member
    for of_role in unnumbered.values():
        of_role.sort(key=lambda member: member.liveliness)
    found: list[Instance] = []
    matched: list[Member] = []
    for replica, slot, gpus_of_template in entry.replicas:
        here = placed.pop(slot, None)
        if here is None and unnumbered:
            takers = unnumbered.get(replica.role) or unnumbered.get("")
            here = takers.pop() if takers else None
        gpus_asked = gpus.get(slot, gpus_of_template)
        if here is None:
            found.append(_podless(entry, replica, slot, gpus_asked))
        else:
            matched.append(here)
            shown = here.instance
            if shown is None or here.replica is not replica or shown.gpus != gpus_asked:
                shown = here.show_as(replica, _instance(here.pod, replica, container, gpus_asked, unready))
            found.append(shown)
    for slot, member in _surplus(entry, placed, unnumbered) if placed or unnumbered else ():
        replica = _replica_of_surplus(member, slot)
        if member.instance is None or member.replica is not replica or member.instance.gpus != member.gpus:
            member.show_as(replica, _instance(member.pod, replica, container, member.gpus, unready))
        if member.instance is not None:
            matched.append(member)
            found.append(member.instance)
    return tuple(found), matched


def _surplus(
    entry: JobEntry, placed: Mapping[_Slot, Member], unnumbered: Mapping[str, Iterable[Member]]
) -> list[tuple[_Slot, Member]]:
    """Return the pods for which the job has no replica, with replicas of their own."""
    found = sorted(placed.items(), key=lambda each: each[0])
    for role_label, members in sorted(unnumbered.items()):
        role = role_label or "pod"
        taken = (*entry.gpus, *(slot for slot, _ in found))
        free = count(1 + max((index for each, index in taken if each == role), default=-1))
        found += [
            ((role, next(free)), member)
            for member in members
            if member.is_alone or not member.pod.is_finished
        ]
    return found


def _replica_of_surplus(member: Member, slot: _Slot) -> Replica:
    """Return a replica for a pod that its job no longer asks for, or never did."""
    name = member.pod.metadata.name
    replica = member.replica
    if replica is not None and (replica.role, replica.index, replica.name) == (*slot, name):
        return replica
    return Replica(name, *slot, False, (), "none", {}, "Never")


def _podless(entry: JobEntry, replica: Replica, slot: _Slot, gpus: int) -> Instance:
    """Return the instance of a replica that has no pod, the same value while nothing changes."""
    shown = entry.podless.get(slot)
    if shown is None or shown.gpus != gpus:
        shown = _instance(None, replica, "", gpus, {})
        if entry.job.outcome is not None:
            # How it ended went with it, as a cleanPodPolicy wants it; none is to come.
            shown = msgspec.structs.replace(shown, status=Status.UNKNOWN, reason="its pod is gone")
        entry.podless[slot] = shown
    return shown


def _instance(
    pod: Pod | None, replica: Replica, container: str, gpus: int, unready: Mapping[str, str]
) -> Instance:
    status, reason = (Status.PENDING, "no pod yet") if pod is None else pod_status(pod, unready)
    return Instance(
        name=replica.instance,
        role=replica.role,
        index=replica.index,
        is_chief=replica.is_chief,
        ranks=replica.ranks,
        ranks_proof=replica.ranks_proof,
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


def _state(instance: Instance) -> InstanceState:
    return InstanceState(
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
