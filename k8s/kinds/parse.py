"""Reads jobs, whatever nonsense some hold: what many kinds write in the same way, and whole lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from k8s.job_spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION
from k8s.kinds.base import MOST_REPLICAS, DeclaredJob, JobKind, JobRef, Manifest, Replica
from k8s.models import Condition, ListMeta, Meta, Reader, convert, meta_of
from k8s.models.resources import Resource
from k8s.status import Status

USERS = (
    USER_ANNOTATION,
    "arena.kubeflow.org/username",
    "notebooks.kubeflow.org/creator",
    "opendatahub.io/username",
)
"""Where systems write who made an object, as an annotation."""
QUEUES = (
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
)
"""Where they write in which queue it waits, as a label or an annotation."""
_PRIORITIES = ("kueue.x-k8s.io/priority-class", "ray.io/priority-class-name")
"""Where they write its priority, as a label."""
_KUBE_QUEUE = "scheduling.x-k8s.io/suspend"
"""An annotation of `arena submit --queue`: kube-queue starts the job when there is room."""

_MOST_RANKS = 2**16
_KEPT_OF_CONTAINER = ("name", "image", "resources", "restartPolicy")
"""What is kept of a container in a pod template: what decides where it can run."""


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `status` that Kubeflow's and Kubernetes' own jobs have in common."""

    conditions: list[Condition] | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended, as far as its object tells; nothing while it has not."""

    status: Status | None = None
    """Succeeded or Failed once the operator has said so."""
    reason: str = ""
    finished: datetime | None = None


def nested(obj: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the object under a path of fields, as client-go's `NestedMap`; empty where there is none."""
    for name in names:
        obj = obj.get(name) or {}
    return obj


def text_of(value: object) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """Return `value` if it is a whole number and not negative, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def replica_count(value: object, default: int = 1) -> int:
    """Return `value` if it is a number of pods, else `default`; at most `MOST_REPLICAS`."""
    found = value if isinstance(value, int) and not isinstance(value, bool) else default
    return min(max(found, 0), MOST_REPLICAS)


def ranks_from(first: int, processes: int) -> tuple[int, ...]:
    """Return the ranks of a pod's processes; none past what any job has, as a slip may ask for billions."""
    return tuple(range(first, first + processes)) if first + processes <= _MOST_RANKS else ()


def time_of(value: object) -> datetime | None:
    """Return the time that an RFC 3339 string says; None for anything else."""
    try:
        found: datetime = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return None
    return found


def read_status(obj: Manifest) -> JobStatus:
    """Decode `status` as most kinds write it.

    Raises:
        msgspec.ValidationError: Its fields are of the wrong types.
    """
    status: JobStatus = convert(obj.get("status") or {}, JobStatus)
    return status


def outcome_of_conditions(status: JobStatus, *, succeeded: str, failed: str) -> JobOutcome:
    """Return the outcome that the conditions hold true, in whatever order they are listed."""
    true = {found.type: found for found in status.conditions or () if found.status == "True"}
    last = true.get(failed) or true.get(succeeded)
    if last is None:
        return JobOutcome(finished=status.completion_time)
    return JobOutcome(
        Status.FAILED if last.type == failed else Status.SUCCEEDED,
        last.message or last.reason or "",
        status.completion_time or last.last_transition_time,
    )


def make_replica(
    role: str,
    index: int,
    template: Mapping[str, Any],
    *,
    name: str = "",
    is_chief: bool = False,
    ranks: tuple[int, ...] = (),
    ranks_proof: str = "none",
    restart_policy: object = None,
) -> Replica:
    """Return one pod that a job asks for; its restart policy is the template's unless the job has one."""
    policy = text_of(restart_policy) or text_of(nested(template, "spec").get("restartPolicy"))
    return Replica(
        name, role, index, is_chief, ranks, ranks_proof if ranks else "none", template, policy or "Never"
    )


def read_job(
    obj: Manifest,
    resource: Resource,
    replicas: tuple[Replica, ...],
    outcome: JobOutcome,
    *,
    is_suspended: bool = False,
    queue: str = "",
    priority: str = "",
    log_dir: str = "",
) -> DeclaredJob:
    """Make the `DeclaredJob` of an object from what its kind has read and what all kinds write alike.

    Args:
        obj: The job.
        resource: Its kind.
        replicas: The pods it asks for.
        outcome: How it ended.
        is_suspended: It asks not to run.
        queue: Where it waits, if the kind has a field for that.
        priority: Its priority, if the kind has a field for that.
        log_dir: Where its event files are, if the kind has a field for that.
    """
    meta = meta_of(obj)
    status = read_status(obj)
    waits_for_kube_queue = meta.annotation(_KUBE_QUEUE) == "true"
    return DeclaredJob(
        ref=JobRef(meta.namespace, meta.name, resource.kind, resource.api_version),
        meta=meta,
        replicas=replicas,
        outcome=outcome.status,
        outcome_reason=outcome.reason,
        is_suspended=is_suspended or waits_for_kube_queue,
        started=status.start_time,
        finished=outcome.finished,
        conditions=tuple(status.conditions or ()),
        priority=priority or _priority(replicas) or _first(meta, _PRIORITIES),
        log_dir=meta.annotation(LOG_DIR_ANNOTATION) or log_dir,
        trainer=meta.annotation(TRAINER_ANNOTATION),
        user=next((user for key in USERS if (user := meta.annotation(key))), ""),
        queue=_first(meta, QUEUES) or queue or ("kube-queue" if waits_for_kube_queue else ""),
        has_status=bool(obj.get("status")),
    )


def _first(meta: Meta, keys: Iterable[str]) -> str:
    return next((found for key in keys if (found := meta.label(key) or meta.annotation(key))), "")


def _priority(replicas: Iterable[Replica]) -> str:
    templates = {id(replica.template): replica.template for replica in replicas}
    found = (text_of(nested(each, "spec").get("priorityClassName")) for each in templates.values())
    return next(filter(None, found), "")


class JobReader:
    """Turns the bytes of a kind's objects into `DeclaredJob`s."""

    def __init__(self, kind: JobKind) -> None:
        """Prepare to read jobs of `kind`."""
        self._kind = kind
        self._objects: Reader[Manifest] = Reader(dict)

    def read(self, body: bytes | msgspec.Raw) -> DeclaredJob:
        """Decode one job.

        Raises:
            msgspec.DecodeError: It is not JSON, or its fields are of the wrong types.
        """
        return self._parse(self._objects.read(body))

    def read_list(self, body: bytes) -> tuple[ListMeta, list[DeclaredJob], int]:
        """Decode a list; a job that makes no sense is left out and counted.

        Raises:
            msgspec.DecodeError: The body is not a list at all.
        """
        where, objects, unreadable = self._objects.read_list(body)
        jobs = []
        for obj in objects:
            try:
                jobs.append(self._parse(obj))
            except msgspec.ValidationError:
                unreadable += 1
        return where, jobs, unreadable

    def _parse(self, obj: Manifest) -> DeclaredJob:
        try:
            return _trimmed(self._kind.parse(obj))
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise msgspec.ValidationError(f"not a {self._kind.title}: {error}") from error


def _trimmed(job: DeclaredJob) -> DeclaredJob:
    """Return a job whose replicas keep only what a snapshot of a thousand jobs needs of them."""
    templates = {id(each.template): _trimmed_template(each.template) for each in job.replicas}
    return replace(job, replicas=tuple([_with_trimmed_template(each, templates) for each in job.replicas]))


def _with_trimmed_template(replica: Replica, templates: Mapping[int, Mapping[str, Any]]) -> Replica:
    return Replica(
        replica.name,
        replica.role,
        replica.index,
        replica.is_chief,
        replica.ranks,
        replica.ranks_proof,
        templates[id(replica.template)],
        replica.restart_policy,
    )


def _trimmed_template(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what decides where a template's pods can run; nothing of one that makes no sense."""
    try:
        spec = template.get("spec") or {}
        kept = {
            field: [
                {key: each[key] for key in _KEPT_OF_CONTAINER if key in each}
                for each in spec.get(field) or ()
            ]
            for field in ("containers", "initContainers")
        }
        return {"spec": {**spec, **kept}}
    except (AttributeError, TypeError):
        return {}
