"""Joins nodes, pods and jobs into one picture in which the GPUs add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from k8s import devices, models
from k8s.kinds import KINDS, kind_of
from k8s.kinds.base import DeclaredJob, Replica
from k8s.models import Node, Pod, PodSpec
from k8s.nodes import holder_of, node_row, silent_nodes
from k8s.snapshot import Holder, Instance, Job, NodeRow
from k8s.status import Declaration, Part, Status, ended_at, job_status, pod_status

_LIVELINESS = {"Failed": 0, "Succeeded": 1}
"""Phase to how little a pod still does, below 2 for all others."""
_QUEUE = "kueue.x-k8s.io/queue-name"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def join(
    nodes: Iterable[Node], pods: Iterable[Pod], declared: Iterable[DeclaredJob]
) -> tuple[tuple[NodeRow, ...], tuple[Job, ...]]:
    """Return the nodes with who holds their GPUs, and the jobs with their instances, newest first."""
    nodes = list(nodes)
    silent = silent_nodes(nodes)
    jobs = list(declared)
    job_by_uid = {job.meta.uid: job for job in jobs}
    job_by_name = {(job.ref.kind, job.ref.namespace, job.ref.name): job for job in jobs}
    pods_by_job: dict[str, list[Pod]] = {}
    held_by_job: dict[str, int] = {}
    holders: dict[str, list[Holder]] = {}
    for pod in pods:
        job = _job_of(pod, job_by_uid, job_by_name)
        if job is not None:
            pods_by_job.setdefault(job.meta.uid, []).append(pod)
        holder = holder_of(pod, job.ref.name if job is not None else _owner_name(pod))
        if holder is not None:
            if job is not None:
                held_by_job[job.meta.uid] = held_by_job.get(job.meta.uid, 0) + holder.gpus
            holders.setdefault(pod.spec.node_name, []).append(holder)
    node_rows = [node_row(node, holders.get(node.metadata.name, ())) for node in nodes]
    node_rows.sort(key=lambda row: row.name)
    job_rows = [
        _job_row(job, pods_by_job.get(job.meta.uid, []), held_by_job.get(job.meta.uid, 0), silent)
        for job in jobs
    ]
    job_rows.sort(key=lambda job: (job.created or _LONG_AGO, job.ref.name), reverse=True)
    return tuple(node_rows), tuple(job_rows)


def _job_of(
    pod: Pod, by_uid: Mapping[str, DeclaredJob], by_name: Mapping[tuple[str, str, str], DeclaredJob]
) -> DeclaredJob | None:
    """Return a pod's job: its controller, or else the one that its labels name.

    A pod whose controller is an earlier job of the same name belongs to none.
    """
    owner = pod.metadata.controller
    if owner is not None and owner.uid in by_uid:
        return by_uid[owner.uid]
    for kind in KINDS:
        if name := kind.job_of(pod):
            if owner is not None and owner.kind == kind.resource.kind:
                return None
            return by_name.get((kind.resource.kind, pod.metadata.namespace, name))
    return None


def _owner_name(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.name if owner is not None else pod.metadata.name


def _job_row(job: DeclaredJob, pods: list[Pod], held: int, silent: Mapping[str, str]) -> Job:
    asked = _Asked()
    instances = _instances(job, pods, asked, silent)
    status, reason = job_status(
        Declaration(
            outcome=job.outcome,
            outcome_reason=job.outcome_reason,
            is_suspended=job.is_suspended,
            queue=job.queue or job.meta.label(_QUEUE),
            is_deleting=job.meta.deletion_timestamp is not None,
            total=len(job.replicas),
            enough=job.enough,
            restarts=job.restarts,
            restarts_allowed=job.restarts_allowed,
            has_status=job.has_status,
        ),
        [
            Part(
                each.name,
                each.ranks,
                each.status,
                each.reason,
                each.gpus,
                each.finished,
                bool(each.node),
                each.restarts,
            )
            for each in instances
            if each.pod
        ],
    )
    return Job(
        ref=job.ref,
        uid=job.meta.uid,
        status=status,
        reason=reason,
        gpus_requested=sum(asked.gpus(replica) for replica in job.replicas),
        gpus_allocated=held,
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
    )


def _instances(
    job: DeclaredJob, pods: list[Pod], asked: _Asked, silent: Mapping[str, str]
) -> tuple[Instance, ...]:
    """Match the pods with the places that the job has for them; the newest pod of a place wins.

    Pods without a number take the places left, those that still do something first.
    """
    kind = kind_of(job.ref)
    pods = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or _LONG_AGO)
    placed: dict[tuple[str, int], Pod] = {}
    unnumbered: list[Pod] = []
    for pod in pods:
        place = kind.instance_of(pod)
        if place is None:
            unnumbered.append(pod)
        else:
            placed[place] = pod
    unnumbered.sort(key=lambda pod: _LIVELINESS.get(pod.status.phase, 2))
    found = []
    for replica in job.replicas:
        pod_here = placed.pop((replica.role, replica.index), None)
        if pod_here is None and unnumbered:
            pod_here = unnumbered.pop()
        found.append(_instance(replica, pod_here, kind.container, asked.gpus(replica), silent))
    found.extend(
        _extra(role, index, pod, kind.container, silent) for (role, index), pod in sorted(placed.items())
    )
    return tuple(found)


def _instance(
    replica: Replica, pod: Pod | None, container: str, gpus: int, silent: Mapping[str, str]
) -> Instance:
    status, reason = pod_status(pod, silent) if pod is not None else (Status.PENDING, "no pod yet")
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
        restarts=_restarts(pod),
        created=pod.metadata.creation_timestamp if pod is not None else None,
        pod=pod.metadata.name if pod is not None else "",
        pod_uid=pod.metadata.uid if pod is not None else "",
        containers=_containers(pod, container),
        finished=ended_at(pod) if pod is not None else None,
    )


def _extra(role: str, index: int, pod: Pod, container: str, silent: Mapping[str, str]) -> Instance:
    """Return the instance of a pod that its job no longer asks for."""
    replica = Replica(pod.metadata.name, role, index, False, (), "none", {}, "Never")
    return _instance(replica, pod, container, devices.count(devices.of_pod(pod.spec)), silent)


def _restarts(pod: Pod | None) -> int:
    return sum(each.restart_count for each in pod.status.container_statuses or ()) if pod is not None else 0


def _containers(pod: Pod | None, first: str) -> tuple[str, ...]:
    if pod is None:
        return ()
    names = [each.name for each in pod.spec.containers]
    names.sort(key=lambda name: name != first)
    return (*names, *(each.name for each in pod.spec.init_containers or ()))


class _Asked:
    """What the replicas of one job ask for, read once for all that have the same template."""

    def __init__(self) -> None:
        self._gpus_by_template: dict[int, int] = {}

    def gpus(self, replica: Replica) -> int:
        """Return the devices that a replica's pod template asks for."""
        key = id(replica.template)
        if key not in self._gpus_by_template:
            self._gpus_by_template[key] = _gpus_of(replica.template)
        return self._gpus_by_template[key]


def _gpus_of(template: Mapping[str, Any]) -> int:
    try:
        spec: PodSpec = models.convert(template.get("spec") or {}, PodSpec, strict=False)
    except (msgspec.ValidationError, AttributeError):  # a template can be anything
        return 0
    return devices.count(devices.of_pod(spec))
