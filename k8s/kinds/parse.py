"""Read jobs tolerantly: fields that many kinds share, and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from k8s.kinds.base import MOST_REPLICAS, DeclaredJob, JobKind, JobRef, Manifest, Replica
from k8s.kinds.job_spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION
from k8s.models import Condition, ListMeta, Meta, Reader, convert, meta_of
from k8s.models.base import shared
from k8s.models.reader import AnyObject, convert_readable
from k8s.models.resources import Resource
from k8s.status import Status

# Annotations by which systems record the creator.
USERS = (
    USER_ANNOTATION,
    "arena.kubeflow.org/username",
    "notebooks.kubeflow.org/creator",
    "opendatahub.io/username",
)
# Labels or annotations that name the queue.
QUEUES = (
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
)
# Labels with the priority.
_PRIORITIES = ("kueue.x-k8s.io/priority-class", "ray.io/priority-class-name")
# Annotation of `arena submit --queue`: kube-queue starts the job when there is capacity.
_KUBE_QUEUE = "scheduling.x-k8s.io/suspend"

# `managedBy` of a job that Kueue runs on another cluster. Source: KEP-4368; Kueue, "MultiKueue".
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_MOST_RANKS = 2**16
# The fields that decide where a pod can run.
_KEPT_OF_CONTAINER = ("name", "image", "resources", "restartPolicy")


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of `status` shared by the jobs of Kubeflow and Kubernetes."""

    conditions: list[Condition] | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None


class _WithStatus(msgspec.Struct, frozen=True):
    # Decoded as a whole, so that errors have the full path.
    status: JobStatus


class JobOutcome(msgspec.Struct, frozen=True):
    """Outcome of a job; empty while it has none."""

    status: Status | None = None
    reason: str = ""
    finished: datetime | None = None


def nested(obj: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the object at a path of fields, as client-go's `NestedMap`; empty if there is none.

    Raises:
        TypeError: A value on the path is no object.
    """
    for depth, name in enumerate(names, 1):
        obj = obj.get(name) or {}
        if not isinstance(obj, dict | Mapping):  # the first is checked much faster
            raise TypeError(f"Expected an object at `{'.'.join(names[:depth])}`")
    return obj


def text_of(value: object) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """Return `value` if it is a non-negative integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def replica_count(value: object, default: int = 1) -> int:
    """Return `value` if it is a number of pods, else `default`; at most `MOST_REPLICAS`."""
    found = value if isinstance(value, int) and not isinstance(value, bool) else default
    return min(max(found, 0), MOST_REPLICAS)


@lru_cache(maxsize=4096)
def ranks_from(first: int, processes: int) -> tuple[int, ...]:
    """Return the ranks of a pod's processes; none beyond the size of any real job."""
    return tuple(range(first, first + processes)) if first + processes <= _MOST_RANKS else ()


def time_of(value: object) -> datetime | None:
    """Return the time of an RFC 3339 string; None for anything else."""
    try:
        found: datetime = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return None
    return found


def read_status(obj: Manifest) -> JobStatus:
    """Decode `status` as most kinds write it.

    Raises:
        msgspec.ValidationError: Its fields are of wrong types.
    """
    found: _WithStatus = convert({"status": obj.get("status") or {}}, _WithStatus)
    return found.status


def outcome_of_conditions(status: JobStatus, *, succeeded: str, failed: str) -> JobOutcome:
    """Return the outcome of the conditions that are true, whatever their order."""
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
    labels: tuple[tuple[str, str], ...] = (),
) -> Replica:
    """Return a pod that a job requests; its restart policy defaults to the template's."""
    policy = text_of(restart_policy) or text_of(nested(template, "spec").get("restartPolicy"))
    proof = ranks_proof if ranks else "none"
    return Replica(name, role, index, is_chief, ranks, proof, template, policy or "Never", labels=labels)


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
    """Return the `DeclaredJob` from values that the kind has read and fields that all kinds share.

    Standard labels and annotations have precedence over `queue` and `log_dir`, `priority` over templates.
    """
    meta = meta_of(obj)
    status = read_status(obj)
    waits_for_kube_queue = meta.annotation(_KUBE_QUEUE) == "true"
    managers = (nested(obj, "spec").get("managedBy"), nested(obj, "spec", "runPolicy").get("managedBy"))
    return DeclaredJob(
        ref=JobRef(meta.namespace, meta.name, resource.kind, resource.api_version),
        meta=meta, replicas=replicas, outcome=outcome.status, outcome_reason=outcome.reason,
        is_suspended=is_suspended or waits_for_kube_queue,
        started=status.start_time, finished=outcome.finished,
        conditions=tuple(status.conditions or ()),
        priority=priority or _priority(replicas) or _first(meta, _PRIORITIES),
        log_dir=meta.annotation(LOG_DIR_ANNOTATION) or log_dir,
        trainer=meta.annotation(TRAINER_ANNOTATION),
        user=next((user for key in USERS if (user := meta.annotation(key))), ""),
        queue=_first(meta, QUEUES) or queue or ("kube-queue" if waits_for_kube_queue else ""),
        has_status=bool(obj.get("status")), is_elsewhere=_MULTIKUEUE in managers,
    )  # fmt: skip


def _first(meta: Meta, keys: Iterable[str]) -> str:
    return next((found for key in keys if (found := meta.label(key) or meta.annotation(key))), "")


def _priority(replicas: Iterable[Replica]) -> str:
    templates = {id(replica.template): replica.template for replica in replicas}
    found = (text_of(nested(each, "spec").get("priorityClassName")) for each in templates.values())
    return next(filter(None, found), "")


class JobReader:
    """Decoder of a kind's objects."""

    def __init__(self, kind: JobKind) -> None:
        """Prepare to read jobs of `kind`."""
        self._kind = kind
        self._objects: Reader[Manifest] = Reader(dict)

    def read(self, body: bytes | msgspec.Raw) -> DeclaredJob:
        """Decode one job; if fields have wrong types, only the metadata: see `Meta.unreadable`.

        Raises:
            msgspec.DecodeError: The body is not JSON, or not an object with metadata and a name.
        """
        return self._parse(self._objects.read(body))

    def read_list(self, body: bytes) -> tuple[ListMeta, list[DeclaredJob], int]:
        """Decode a list; also return the number of jobs that cannot be read in full.

        Raises:
            msgspec.DecodeError: The body is not a list.
        """
        where, objects, unreadable = self._objects.read_list(body)
        jobs = []
        for obj in objects:
            try:
                job = self._parse(obj)
            except msgspec.ValidationError:
                unreadable += 1
                continue
            jobs.append(job)
            unreadable += bool(job.meta.unreadable)
        return where, jobs, unreadable

    def _parse(self, obj: Manifest) -> DeclaredJob:
        try:
            return _trimmed(self._kind.parse(obj))
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            meta = convert_readable({"metadata": obj.get("metadata")}, AnyObject).metadata
            meta = msgspec.structs.replace(meta, unreadable=meta.unreadable or str(error))
            job = read_job({"metadata": {}}, self._kind.resource, (), JobOutcome())
            return replace(job, ref=replace(job.ref, namespace=meta.namespace, name=meta.name), meta=meta)


def _trimmed(job: DeclaredJob) -> DeclaredJob:
    # A snapshot holds thousands of replicas: only what it shows is kept.
    templates = {id(each): each for each in [replica.template for replica in job.replicas]}
    trimmed = {key: _trimmed_template(template) for key, template in templates.items()}
    for each in job.replicas:  # they were made just now, and nobody else has them
        for name, value in (("template", trimmed[id(each.template)]), ("env", ()), ("labels", ())):
            force_setattr(each, name, value)
    return job


def _trimmed_template(template: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        spec = template.get("spec") or {}
        trimmed = {
            field: [
                {key: each[key] for key in _KEPT_OF_CONTAINER if key in each}
                for each in spec.get(field) or ()
            ]
            for field in ("containers", "initContainers")
        }
        found = {"spec": {**spec, **trimmed}}
    except (AttributeError, TypeError):
        return {}
    return shared(msgspec.json.encode(found), found)  # the jobs of a sweep differ in their commands only
