"""Suspend, resume and scale jobs: each sets one field that the job's kind names.

The change applies to the object with the given uid, and the answer is checked: a server that does not
know the field drops it silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.kinds import DeclaredJob, ElasticKind, ElasticSize, JobKind, JobRef, Manifest, kind_of
from k8s.kinds.parse import JobReader
from k8s.snapshot import Job
from k8s.status import Status
from k8s.status.job import TOLD_TO_SUSPEND
from k8s.text.errors import Conflict, KubeError

# Attempts at a change that conflicts with others.
TRIES = 3
# Label of a job that Kueue suspends and resumes, overriding others.
_KUEUE = "kueue.x-k8s.io/queue-name"
# Queue of a job that is held by an annotation, not by its field.
_KUBE_QUEUE = "kube-queue"


def suspend_patch(kind: JobKind, *, is_suspended: bool) -> Manifest | None:
    """Return the merge patch that suspends or resumes a job; None if its kind has no field for it."""
    return _patch(kind.suspend_field, is_suspended) if kind.suspend_field else None


def _patch(field: str, value: Any) -> Manifest:
    for name in reversed(field.split(".")):
        value = {name: value}
    patch: Manifest = value
    return patch


def why_not(job: Job, *, is_suspended: bool) -> str:
    """Return the reason why a job cannot be suspended or resumed; empty if it can be tried."""
    if not kind_of(job.ref).suspend_field:
        return _no_field(kind_of(job.ref))
    if why := _why_over(job):
        return why
    if _KUEUE in job.labels:
        # It reverts the change: it resumes jobs that it has admitted, and suspends others.
        return f"Kueue decides when it runs, by queue {job.labels[_KUEUE]}: change its Workload instead."
    if job.queue == _KUBE_QUEUE and job.status is Status.QUEUED:
        return "It is suspended until kube-queue has room for it."
    waits = job.status in (Status.SUSPENDED, Status.QUEUED)
    if is_suspended:
        return "It is already suspended." if waits else ""
    return "" if waits or job.reason.startswith(TOLD_TO_SUSPEND) else "It is not suspended."


def _why_over(job: Job) -> str:
    if job.status.is_final:
        return "It has ended."
    return "It is being deleted." if job.status is Status.TERMINATING else ""


async def suspend_job(client: Client, ref: JobRef, uid: str, *, is_suspended: bool) -> None:
    """Suspend or resume a job if it still has this uid.

    Raises:
        NotFound: The job does not exist.
        Conflict: The name belongs to another object now, or the job changes all the time.
        KubeError: Its kind does not support it, or the server did not apply the change.
    """
    kind = kind_of(ref)
    what = f"Could not {'suspend' if is_suspended else 'resume'} {ref.kind} {ref.name}."
    patch = suspend_patch(kind, is_suspended=is_suspended)
    if patch is None:
        raise KubeError(what, _no_field(kind))

    def patch_for(obj: Manifest) -> Manifest:
        if is_suspended and (why := _read(kind, obj, what).unsuspendable):
            raise KubeError(what, why)
        return patch

    answer = await _modify(client, ref, uid, what, patch_for)
    if _read(kind, answer, what).is_suspended != is_suspended:
        raise KubeError(what, _not_done(kind, is_suspended=is_suspended))


def _read(kind: JobKind, obj: Manifest, what: str) -> DeclaredJob:
    try:
        return JobReader(kind).read(msgspec.json.encode(obj))
    except msgspec.DecodeError as error:
        raise KubeError(what, f"Its object cannot be read: {error}.") from error


def _no_field(kind: JobKind) -> str:
    return f"A {kind.title} has no field that suspends it."


def _not_done(kind: JobKind, *, is_suspended: bool) -> str:
    if not is_suspended:
        return f"The cluster accepted the change of {kind.suspend_field}, but the job is still suspended."
    return (
        f"The cluster accepted the change but dropped {kind.suspend_field}: "
        f"it is too old for that field of a {kind.title}."
    )


def size_of(kind: JobKind, obj: Manifest) -> ElasticSize | None:
    """Return the size of an elastic job; None for others."""
    return kind.elastic_size(obj) if isinstance(kind, ElasticKind) else None


def why_not_scaled(job: Job, obj: Manifest, replicas: int) -> str:
    """Return the reason why a job cannot be scaled to a size; empty if it can be tried."""
    kind = kind_of(job.ref)
    if not isinstance(kind, ElasticKind):
        return f"The number of pods of a {kind.title} is fixed."
    if why := _why_over(job):
        return why
    size = size_of(kind, obj)
    if size is None:
        return "It is not elastic: submit it with --elastic MIN-MAX."
    if (size.least is not None and replicas < size.least) or (size.most is not None and replicas > size.most):
        return f"It is elastic from {_or_any(size.least)} to {_or_any(size.most)} replicas."
    return f"It already has {replicas} replicas." if replicas == size.replicas else ""


async def scale_job(client: Client, ref: JobRef, uid: str, replicas: int) -> None:
    """Scale an elastic job if it still has this uid.

    Raises:
        NotFound: The job does not exist.
        Conflict: The name belongs to another object now, or the job changes all the time.
        KubeError: The job is not elastic, or the server did not apply the change.
    """
    kind = kind_of(ref)
    what = f"Could not scale {ref.kind} {ref.name}."

    def patch_for(obj: Manifest) -> Manifest:
        size = size_of(kind, obj)
        if size is None:
            raise KubeError(what, "It is not elastic.")
        return _patch(size.field, replicas)

    changed = size_of(kind, await _modify(client, ref, uid, what, patch_for))
    if changed is None or changed.replicas != replicas:
        raise KubeError(what, "The cluster accepted the change of replicas but did not store it.")


async def _modify(
    client: Client, ref: JobRef, uid: str, what: str, patch_for: Callable[[Manifest], Manifest]
) -> Manifest:
    resource = kind_of(ref).resource
    for tries_left in reversed(range(TRIES)):
        obj = await client.get(resource, ref.name, ref.namespace)
        meta = obj.get("metadata") or {}
        if meta.get("uid") != uid:
            raise Conflict(what, "Another object has its name now.")
        # uid and version make the server refuse if the object was replaced or changed in between.
        same = {"metadata": {"uid": uid, "resourceVersion": meta.get("resourceVersion")}}
        try:
            return await client.patch(resource, ref.name, {**same, **patch_for(obj)}, ref.namespace)
        except Conflict:
            if not tries_left:
                raise
    raise AssertionError("unreachable")


def _or_any(bound: int | None) -> str:
    return "any number" if bound is None else str(bound)
