"""Reads what the objects of many kinds of jobs say in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from k8s.kinds.base import MOST_REPLICAS, DeclaredJob, JobRef, Manifest, Replica
from k8s.models import Condition, Meta, convert, meta_of
from k8s.models.job_spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION
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


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `status` that Kubeflow's and Kubernetes' own jobs have in common."""

    conditions: list[Condition] | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, as far as its object tells; nothing while it has not."""

    outcome: Status | None = None
    reason: str = ""
    at: datetime | None = None


def part(obj: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return what an object has under a path of fields, an empty object where it has nothing."""
    for name in names:
        obj = obj.get(name) or {}
    return obj


def words(value: object) -> str:
    """Return a text, nothing for anything else."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """Return a whole number that is not negative, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def pods_asked(value: object, default: int = 1) -> int:
    """Return a number of pods, within what is listed of one job."""
    found = value if isinstance(value, int) and not isinstance(value, bool) else default
    return min(max(found, 0), MOST_REPLICAS)


def ranks_from(first: int, processes: int) -> tuple[int, ...]:
    """Return the ranks of a pod's processes; none past what any job has, as a slip may ask for billions."""
    return tuple(range(first, first + processes)) if first + processes <= _MOST_RANKS else ()


def number(text: str) -> int | None:
    """Return the number that a label holds; None when it holds none that a cluster would write."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def moment(value: object) -> datetime | None:
    """Return a time, None for anything else."""
    try:
        found: datetime = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return None
    return found


def status_of(obj: Manifest) -> JobStatus:
    """Return what a job's status says, as most kinds write it."""
    status: JobStatus = convert(obj.get("status") or {}, JobStatus)
    return status


def by_conditions(status: JobStatus, *, succeeded: str, failed: str) -> Ending:
    """Return the ending that the conditions hold true, in whatever order they are listed."""
    true = {found.type: found for found in status.conditions or () if found.status == "True"}
    last = true.get(failed) or true.get(succeeded)
    if last is None:
        return Ending(at=status.completion_time)
    return Ending(
        Status.FAILED if last.type == failed else Status.SUCCEEDED,
        last.message or last.reason or "",
        status.completion_time or last.last_transition_time,
    )


def place(
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
    policy = words(restart_policy) or words(part(template, "spec").get("restartPolicy"))
    return Replica(
        name, role, index, is_chief, ranks, ranks_proof if ranks else "none", template, policy or "Never"
    )


def declared(
    obj: Manifest,
    resource: Resource,
    replicas: tuple[Replica, ...],
    ending: Ending,
    *,
    is_suspended: bool = False,
    queue: str = "",
    priority: str = "",
    log_dir: str = "",
) -> DeclaredJob:
    """Read what all kinds have in common.

    Args:
        obj: The job.
        resource: Its kind.
        replicas: The pods it asks for.
        ending: How it ended.
        is_suspended: It asks not to run.
        queue: Where it waits, if the kind has a field for that.
        priority: Its priority, if the kind has a field for that.
        log_dir: Where its event files are, if the kind has a field for that.
    """
    meta = meta_of(obj)
    status = status_of(obj)
    waits_for_kube_queue = meta.annotation(_KUBE_QUEUE) == "true"
    return DeclaredJob(
        ref=JobRef(meta.namespace, meta.name, resource.kind, resource.api_version),
        meta=meta,
        replicas=replicas,
        outcome=ending.outcome,
        outcome_reason=ending.reason,
        is_suspended=is_suspended or waits_for_kube_queue,
        started=status.start_time,
        finished=ending.at,
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
    found = (words(part(each, "spec").get("priorityClassName")) for each in templates.values())
    return next(filter(None, found), "")
