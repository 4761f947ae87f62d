"""Builds the rows of jobs from their replicas and the pods that fill them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any, Self

import msgspec
from msgspec.structs import force_setattr, replace

from k8s import models
from k8s.cluster.node_rows import holder_of
from k8s.cluster.owners import Root
from k8s.kinds import AnyOwner, DeclaredJob, is_pod_group, kind_of
from k8s.kinds.base import MOST_REPLICAS, Replica
from k8s.models import LONG_AGO, Meta, Pod, PodSpec, accelerators
from k8s.models.base import shared
from k8s.models.gpu_sharing import fraction_of, reserves_gpu
from k8s.snapshot import Holder, Instance, Job
from k8s.status import Status
from k8s.status.job import DeclaredStatus, InstanceState, job_status
from k8s.status.pod import began_at, ended_at, exit_code, main_container, pod_status
from k8s.text.sanitize import parse_integer

# Phase to sort key; every other phase is 2.
_LIVELINESS = {"Failed": 0, "Succeeded": 1}
_END_BY_PHASE = {"Failed": Status.FAILED, "Succeeded": Status.SUCCEEDED}
_Slot = tuple[str, int]
# Fields of a declared job that its status depends on, and that its row has too.
_DECLARED = set(DeclaredJob.__struct_fields__)
_OF_STATUS = _DECLARED & set(DeclaredStatus.__struct_fields__)
_OF_ROW = _DECLARED & set(Job.__struct_fields__) - {"user", "started", "finished"}


class RankEvidence(msgspec.Struct, frozen=True):
    """Ranks and restarts of a job that lines prove."""

    ranks: Mapping[str, tuple[int, ...]]
    """Proven ranks by pod UID; no two pods have the same one."""
    has_lines: Mapping[str, bool]
    """True for each pod that has printed, by UID of those that were read."""
    restarts: Mapping[str, Sequence[str]]
    """Failures by pod, as `rank 3 exit 1`, after each of which its launcher restarted its ranks."""

    def apply(self, instances: tuple[Instance, ...]) -> tuple[Instance, ...]:
        """Return the instances with these ranks and restarts, and the chief where rank 0 runs.

        Ranks that no line proves go to the pods left. If no line proves any and the chief has printed
        nothing, the first pod that has printed is assumed to run its ranks.
        """
        if has_assumed_ranks(instances):
            instances = self._with_ranks(instances)
        return tuple(map(self._with_restarts, instances)) if self.restarts else instances

    def _with_ranks(self, instances: tuple[Instance, ...]) -> tuple[Instance, ...]:
        pods = [each for each in instances if each.pod]
        found = {each.pod_uid: self.ranks[each.pod_uid] for each in pods if each.pod_uid in self.ranks}
        chief = next((each for each in pods if each.is_chief), pods[0])
        proof = "observed" if found else "assumed"
        if not found and self.has_lines.get(chief.pod_uid) is False:
            ranks, chief = (
                chief.ranks,
                next((each for each in pods if self.has_lines.get(each.pod_uid)), chief),
            )
            found = {chief.pod_uid: ranks}
        taken = {rank for ranks in found.values() for rank in ranks}
        free = [each.ranks for each in pods if taken.isdisjoint(each.ranks)]
        staying = [each.ranks for each in pods if each.pod_uid not in found]
        moved = iter([ranks for ranks in free if ranks not in staying])
        placed: list[Instance] = []
        for each in instances:
            ranks, proved = each.ranks, each.ranks_proof
            if each.pod_uid in found:
                ranks, proved = found[each.pod_uid], proof
            elif each.pod and ranks not in free:
                ranks = next(moved, ())
            proved = proved if ranks else "none"
            placed.append(msgspec.structs.replace(each, ranks=ranks, ranks_proof=proved))
        uid = next((each.pod_uid for each in placed if each.pod and 0 in each.ranks), chief.pod_uid)
        return tuple([msgspec.structs.replace(each, is_chief=each.pod_uid == uid) for each in placed])

    def _with_restarts(self, instance: Instance) -> Instance:
        if not (found := self.restarts.get(instance.pod)):
            return instance
        restarts = instance.restarts - instance.rank_restarts + len(found)
        reason = f"{found[-1]}, its launcher restarted the ranks"
        if instance.status is not Status.RUNNING or (instance.reason and not instance.rank_restarts):
            reason = instance.reason
        return msgspec.structs.replace(instance, restarts=restarts, rank_restarts=len(found), reason=reason)


def has_assumed_ranks(instances: Sequence[Instance]) -> bool:
    """Return True if only the lines of a job's pods show which of them runs which rank."""
    pods = [each for each in instances if each.pod]
    is_launched = any(each.role == "launcher" for each in pods)
    return len(pods) > 1 and not is_launched and any(each.ranks_proof != "declared" for each in pods)


class Member(msgspec.Struct, gc=False, eq=False):
    """A pod, with everything about it that is computed once."""

    pod: Pod
    gpus: int
    has_accelerators: bool
    root: Root | None
    role: str
    index: int | None
    holder: Holder | None
    began: datetime | None
    """Start of its first container that ran; None before."""
    replica: Replica | None = None
    instance: Instance | None = None

    @classmethod
    def of(cls, pod: Pod, find_root: Callable[[Pod, bool], Root | None]) -> Self:
        """Create the member of a pod; nothing in it depends on other pods."""
        held = accelerators.of_pod(pod.spec)
        meta = pod.metadata
        fraction = fraction_of(meta) if meta.annotations else None
        is_reserved = bool(held) and reserves_gpu(meta)
        has_part = bool(held) or fraction is not None
        root = find_root(pod, has_part) if not is_reserved else None
        role, index = (kind_of(root.ref).instance_of(pod) if root is not None else None) or ("", None)
        return cls(
            pod,
            accelerators.count(held),
            has_part,
            root,
            role,
            index,
            holder_of(pod, root.ref.name if root is not None else "", fraction)
            if has_part and (root is not None or is_reserved)
            else None,
            began_at(pod),
        )

    @property
    def age(self) -> tuple[datetime, str, str]:
        """Return a sort key: creation time, name, uid."""
        meta = self.pod.metadata
        return meta.creation_timestamp or LONG_AGO, meta.name, meta.uid

    @property
    def is_alone(self) -> bool:
        """Return True if the pod belongs to nothing and so has a row of its own."""
        return self.root is not None and self.root.key == self.pod.metadata.uid

    @property
    def liveliness(self) -> tuple[int, tuple[datetime, str, str]]:
        """Return a sort key: finished pods first, then the older ones."""
        return _LIVELINESS.get(self.pod.status.phase, 2), self.age


class JobEntry:
    """A job's object, with the devices that each replica requests, and what its logs show of its ranks."""

    __slots__ = ("_gpus", "evidence", "job", "podless")

    def __init__(self, job: DeclaredJob, evidence: RankEvidence | None = None) -> None:
        by_template = {id(each.template): each.template for each in job.replicas}
        self._gpus = {key: _gpus_of(template) for key, template in by_template.items()}
        self.job, self.evidence = job, evidence
        self.podless: dict[_Slot, Instance] = {}

    @property
    def replicas(self) -> list[tuple[Replica, _Slot, int]]:
        """Return the replicas with their slots and GPUs, as their templates request them."""
        gpus = self._gpus
        return [(each, (each.role, each.index), gpus[id(each.template)]) for each in self.job.replicas]

    @property
    def gpus(self) -> dict[_Slot, int]:
        """Return the GPUs by slot."""
        return {slot: gpus for _, slot, gpus in self.replicas}


def build_job(
    entry: JobEntry,
    below: Iterable[JobEntry],
    members: Sequence[Member],
    unready: Mapping[str, str],
    before: Job | None = None,
    is_partial: bool = False,
) -> Job:
    """Return the row of a job; `before` itself if nothing changed since that was made of the same jobs.

    `below` are the jobs that it owns and that do its work: they may know requests and restarts better.
    `members` are the pods of all of these, `unready` the nodes that are not Ready, with the reason. Of
    a job with more replicas the status is unknown if `is_partial`: its other pods may not be listed yet.
    """
    job, gpus = entry.job, dict[_Slot, int]()
    for part in below:
        gpus.update(part.gpus)
        owner = part.job.meta.controller
        if owner is not None and owner.uid == job.meta.uid and job.restarts_allowed is None:
            restarts = max(job.restarts, part.job.restarts)
            job = replace(
                job,
                restarts=restarts,
                restarts_allowed=part.job.restarts_allowed,
                counts_pod_restarts=part.job.counts_pod_restarts,
            )
    instances, matched = _instances(entry, members, gpus, unready, is_partial)
    is_partial = is_partial and lacks_pods(job.replicas, instances)
    now = (instances, _held(members), _started(job, members))
    if before is not None and (before.instances, before.gpus_allocated, before.started) == now:
        return before
    requested = sum([each.gpus for each in instances[: len(job.replicas)]])
    if is_partial:
        requested = sum([gpus.get(slot, number) for _, slot, number in entry.replicas])
    return _row(job, instances, matched, members, requested, is_partial)


def lacks_pods(replicas: Sequence[Replica], instances: Sequence[Instance]) -> bool:
    """Return True if not all replicas are among the instances, which are in their order, or none is known."""
    last = len(replicas) - 1
    return not (0 <= last < len(instances) and instances[last].name == replicas[last].instance)


def build_owner_job(
    meta: Meta | None,
    members: list[Member],
    unready: Mapping[str, str],
    evidence: RankEvidence | None,
    is_partial: bool = False,
) -> Job:
    """Return the row of an owner that is not a job but has pods (`members`) with accelerators.

    A pod without an owner is a job of one pod, which ends when the pod does. `meta` is the owner's
    metadata, None if unknown.
    """
    roots = [each.root for each in members if each.root is not None]
    ref, uid = min(each.ref for each in roots), roots[0].key
    if meta is None:
        meta = Meta(ref.name, ref.namespace, uid)
    if meta.creation_timestamp is None:
        made = [each.pod.metadata.creation_timestamp for each in members]
        oldest = min((at for at in made if at is not None), default=None)
        meta = msgspec.structs.replace(meta, creation_timestamp=oldest)
    known = AnyOwner(ref.kind, ref.api_version).parse({"metadata": msgspec.to_builtins(meta)})
    job = replace(known, ref=ref, has_status=True)
    if is_pod_group(ref):
        job = _group_of_pods(job, members)
    if members[0].is_alone and (end := _END_BY_PHASE.get(members[0].pod.status.phase)):
        job = replace(job, outcome=end, finished=ended_at(members[0].pod))
    instances, matched = _instances(JobEntry(job, evidence), members, {}, unready)
    requested = sum(each.gpus for each in instances)
    return _row(job, instances, matched, members, requested, is_partial)


def _group_of_pods(job: DeclaredJob, members: Sequence[Member]) -> DeclaredJob:
    # The pods of a group are usually alike: those that are still to come are taken to be like the first.
    first = members[0].pod
    total = max(_group_size(each.pod.metadata) for each in members)
    limits = accelerators.of_pod(first.spec)
    template = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    replicas = [Replica("", "pod", index, False, (), "none", template, "Never") for index in range(total)]
    found = Counter(each.pod.status.phase for each in members)
    is_over = len(members) >= total and found["Succeeded"] + found["Failed"] == len(members)
    outcome = (Status.FAILED if found["Failed"] else Status.SUCCEEDED) if is_over else None
    metas = [each.pod.metadata for each in members]
    queue = next((queue for meta in metas if (queue := meta.label("kueue.x-k8s.io/queue-name"))), "")
    return replace(job, replicas=tuple(replicas), outcome=outcome, queue=queue)


def _group_size(meta: Meta) -> int:
    text = meta.annotation("kueue.x-k8s.io/pod-group-total-count")
    return min(parse_integer(text) or 1, MOST_REPLICAS)


def _row(
    job: DeclaredJob,
    instances: tuple[Instance, ...],
    matched: Iterable[Member],
    members: Collection[Member],
    requested: int,
    is_partial: bool,
) -> Job:
    status, reason = job_status(
        DeclaredStatus(
            **{name: getattr(job, name) for name in _OF_STATUS},
            is_deleting=job.meta.deletion_timestamp is not None,
            total=len(job.replicas) or len(instances),
            has_started=job.started is not None,
            unreadable=job.meta.unreadable,
            is_partial=is_partial,
        ),
        [_state(each.instance, each.pod) for each in matched if each.instance is not None and not is_partial],
    )
    finished = job.finished if job.outcome is not None else None
    if finished is None and status.is_final:
        finished = max([each.finished for each in instances if each.finished is not None], default=None)
    return Job(
        uid=job.meta.uid, status=status, reason=reason,
        gpus_requested=requested, gpus_allocated=_held(members),
        gpu_fraction=sum([each.holder.fraction for each in members if each.holder is not None]),
        instances=instances,
        instances_running=len([each for each in instances if each.status is Status.RUNNING]),
        user=job.user or job.ref.namespace,
        created=job.meta.creation_timestamp, started=_started(job, members), finished=finished,
        labels=job.meta.labels or {}, annotations=job.meta.annotations or {},
        finalizers=tuple(job.meta.finalizers or ()),
        **{name: getattr(job, name) for name in _OF_ROW},
    )  # fmt: skip


def _started(job: DeclaredJob, members: Collection[Member]) -> datetime | None:
    # The operator's own start time includes the queue and the image pull: it counts only for a job that has
    # ended and whose pods are gone. Its condition Running stays, and turns False, when the job ends.
    runs = [at for each in members if (at := each.began) is not None]
    has_ended = job.outcome is not None
    runs += [
        at
        for each in job.conditions
        if each.type == "Running"
        and (has_ended or each.status == "True")
        and (at := each.last_transition_time) is not None
    ]
    return min(runs, default=None if members or not (has_ended or job.is_elsewhere) else job.started)


def _held(members: Iterable[Member]) -> int:
    return sum([each.holder.gpus for each in members if each.holder is not None])


def _instances(
    entry: JobEntry,
    members: Iterable[Member],
    gpus: Mapping[_Slot, int],
    unready: Mapping[str, str],
    is_partial: bool = False,
) -> tuple[tuple[Instance, ...], list[Member]]:
    """Match pods with the job's replicas; the newest pod of a replica wins.

    Pods without an index fill the free replicas of their role, or of any role if they have none,
    live pods first. Live pods that are left over get replicas of their own.

    Returns:
        All replicas, or if `is_partial` those that have a pod, and the members in them.
    """
    container = kind_of(entry.job.ref).container
    placed: dict[_Slot, Member] = {}
    unnumbered: dict[str, list[Member]] = {}
    for member in members:
        if member.index is None:
            unnumbered.setdefault(member.role, []).append(member)
        elif (slot := (member.role, member.index)) not in placed or placed[slot].age < member.age:
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
        number = gpus.get(slot, gpus_of_template)
        if here is None and is_partial:
            continue
        if here is None:
            found.append(_podless(entry, replica, slot, number))
        else:
            matched.append(here)
            if here.pod.spec.claimed:  # a template does not show what its claims get
                number = max(number, here.gpus)
            shown = here.instance
            if shown is None or here.replica is not replica or shown.gpus != number:
                shown = _instance(here.pod, replica, container, number, unready)
                here.replica, here.instance = replica, shown
            found.append(shown)
    for slot, member in _surplus(entry, placed, unnumbered) if placed or unnumbered else ():
        replica = _replica_of_surplus(member, slot)
        if member.instance is None or member.replica is not replica or member.instance.gpus != member.gpus:
            member.replica = replica
            member.instance = _instance(member.pod, replica, container, member.gpus, unready)
        if member.instance is not None:
            matched.append(member)
            found.append(member.instance)
    return tuple(found) if entry.evidence is None else entry.evidence.apply(tuple(found)), matched


def _surplus(
    entry: JobEntry, placed: Mapping[_Slot, Member], unnumbered: Mapping[str, Iterable[Member]]
) -> list[tuple[_Slot, Member]]:
    found = sorted(placed.items(), key=lambda each: each[0])
    for role_label, members in sorted(unnumbered.items()):
        role = role_label or "pod"
        used = (*entry.gpus, *(slot for slot, _ in found))
        free = count(1 + max((index for each, index in used if each == role), default=-1))
        found += [
            ((role, next(free)), member)
            for member in members
            if member.is_alone or not member.pod.is_finished
        ]
    return found


def _replica_of_surplus(member: Member, slot: _Slot) -> Replica:
    name = member.pod.metadata.name
    replica = member.replica
    if replica is not None and (replica.role, replica.index, replica.name) == (*slot, name):
        return replica
    return Replica(name, *slot, False, (), "none", {}, "Never")


def _podless(entry: JobEntry, replica: Replica, slot: _Slot, gpus: int) -> Instance:
    shown = entry.podless.get(slot)
    if shown is None or shown.gpus != gpus:
        shown = _instance(None, replica, "", gpus, {})
        if entry.job.outcome is Status.SUCCEEDED:
            shown = msgspec.structs.replace(shown, status=Status.SUCCEEDED, reason="its pod was removed")
        elif entry.job.outcome is not None:
            shown = msgspec.structs.replace(shown, status=Status.UNKNOWN, reason="its pod is gone")
        elif entry.job.is_elsewhere:
            shown = msgspec.structs.replace(shown, status=Status.UNKNOWN, reason="in another cluster")
        entry.podless[slot] = shown
    return shown


def _instance(
    pod: Pod | None, replica: Replica, container: str, gpus: int, unready: Mapping[str, str]
) -> Instance:
    status, reason = (Status.PENDING, "no pod yet") if pod is None else pod_status(pod, unready)
    containers = _containers(pod, container) if pod is not None else ()
    finished = ended_at(pod) if pod is not None else None
    has_ended = pod is not None and (pod.is_finished or finished is not None)
    if pod is not None and replica.name == pod.metadata.name:
        force_setattr(replica, "name", pod.metadata.name)  # one text instead of two equal ones
    return Instance(
        name=replica.instance, role=replica.role, index=replica.index, is_chief=replica.is_chief,
        ranks=replica.ranks, ranks_proof=replica.ranks_proof, status=status, reason=reason, gpus=gpus,
        node=pod.spec.node_name if pod is not None else "",
        restarts=sum([each.restart_count for each in pod.status.container_statuses or ()]) if pod else 0,
        created=pod.metadata.creation_timestamp if pod is not None else None,
        pod=pod.metadata.name if pod is not None else "",
        pod_uid=pod.metadata.uid if pod is not None else "",
        containers=containers, finished=finished,
        exit_code=exit_code(pod, (*containers, "")[0]) if pod is not None and has_ended else None,
    )  # fmt: skip


def _state(instance: Instance, pod: Pod) -> InstanceState:
    return InstanceState(
        instance.name,
        instance.ranks,
        instance.status,
        instance.reason,
        instance.gpus,
        instance.finished,
        bool(instance.node),
        # With Never, containers restart by rules, which operators do not count.
        0 if pod.spec.restart_policy == "Never" else instance.restarts,
    )


def _containers(pod: Pod, own: str) -> tuple[str, ...]:
    containers, init_containers = pod.spec.containers, pod.spec.init_containers or ()
    if len(containers) == 1 and not init_containers:
        return shared(containers[0].name, (containers[0].name,))
    names, main = [each.name for each in containers], main_container(pod.metadata, pod.spec, own)
    names.sort(key=lambda name: name != main)
    return (*names, *[each.name for each in init_containers])


@lru_cache(maxsize=4096)
def _pod_spec(template_spec: bytes) -> PodSpec:
    found: PodSpec = models.convert(msgspec.json.decode(template_spec), PodSpec, strict=False)
    return found


def _gpus_of(template: Mapping[str, Any]) -> int:
    try:
        spec = _pod_spec(msgspec.json.encode(template.get("spec") or {}))
    except (msgspec.ValidationError, AttributeError):  # a template can be anything
        return 0
    return accelerators.count(accelerators.of_pod(spec))
