"""Gives an elastic job more or fewer replicas, within its bounds.

As in `suspend`, it is sent to the very object that was meant, and the answer is read.
"""

from __future__ import annotations

from typing import Any

from k8s.client.client import Client
from k8s.errors import Conflict, KubeError
from k8s.jobs.suspend import TRIES
from k8s.kinds import ElasticKind, ElasticSize, JobKind, JobRef, Manifest, kind_of
from k8s.snapshot import Job
from k8s.status import Status


def scale_patch(size: ElasticSize, replicas: int) -> Manifest:
    """Return the merge patch that asks for so many replicas."""
    patch: Any = replicas
    for name in reversed(size.field.split(".")):
        patch = {name: patch}
    found: Manifest = patch
    return found


def size_of(kind: JobKind, obj: Manifest) -> ElasticSize | None:
    """Return the size of a job that is elastic; None of all others."""
    return kind.elastic_size(obj) if isinstance(kind, ElasticKind) else None


def why_not_scaled(job: Job, obj: Manifest, replicas: int) -> str:
    """Return why a job cannot have so many replicas, as a sentence; nothing where it can be tried."""
    kind = kind_of(job.ref)
    if not isinstance(kind, ElasticKind):
        return f"A {kind.title} has as many pods as it says, from start to end."
    if job.status.is_final:
        return "It has ended."
    if job.status is Status.TERMINATING:
        return "It is being deleted."
    size = size_of(kind, obj)
    if size is None:
        return "It is not elastic: that is said when it is submitted, by --elastic-min and --elastic-max."
    if (size.least is not None and replicas < size.least) or (size.most is not None and replicas > size.most):
        return f"It is elastic from {_or_any(size.least)} to {_or_any(size.most)} replicas."
    return f"It has {replicas} replicas already." if replicas == size.replicas else ""


async def scale_job(client: Client, ref: JobRef, uid: str, replicas: int) -> None:
    """Ask for so many replicas of an elastic job, if it still is the one with this uid.

    Raises:
        NotFound: It is gone.
        Conflict: Another one has its name now, or somebody changes it all the time.
        KubeError: It is not elastic, or the server has not done it.
    """
    kind = kind_of(ref)
    what = f"Could not scale {ref.kind} {ref.name}."
    for tries_left in reversed(range(TRIES)):
        found = await client.get(kind.resource, ref.name, ref.namespace)
        meta = found.get("metadata") or {}
        if meta.get("uid") != uid:
            raise Conflict(what, "Another one has its name now.")
        size = size_of(kind, found)
        if size is None:
            raise KubeError(what, "It is not elastic.")
        # With these two a namesake made in between, or a change, makes the server refuse.
        same = {"metadata": {"uid": uid, "resourceVersion": meta.get("resourceVersion")}}
        try:
            answer = await client.patch(
                kind.resource, ref.name, {**same, **scale_patch(size, replicas)}, ref.namespace
            )
        except Conflict:
            if not tries_left:
                raise
            continue
        changed = size_of(kind, answer)
        if changed is None or changed.replicas != replicas:
            raise KubeError(what, f"The cluster took the change of {size.field}, but has not kept it.")
        return


def _or_any(bound: int | None) -> str:
    return "any number" if bound is None else str(bound)
