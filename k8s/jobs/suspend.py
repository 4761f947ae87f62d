"""Suspends jobs, so that their pods end and what these hold is freed, and resumes them.

It sets the one field that the job's kind names for that, on the very object that was meant,
and reads the answer: a server that does not know the field drops it without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from k8s.client.client import Client
from k8s.errors import Conflict, KubeError
from k8s.kinds import DeclaredJob, JobKind, JobRef, Manifest, kind_of
from k8s.kinds.parse import JobReader
from k8s.snapshot import Job
from k8s.status import Status

TRIES = 3
"""How often a change is sent, when each time somebody else was faster."""
_KUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a job that Kueue suspends and resumes, whatever anybody else does."""
_KUBE_QUEUE = "kube-queue"
"""Queue of a job that an annotation holds back, not its field."""


def suspend_patch(kind: JobKind, *, is_suspended: bool) -> Manifest | None:
    """Return the merge patch that suspends a job or resumes it; None where its kind has no field for that."""
    if not kind.suspend_field:
        return None
    patch: Any = is_suspended
    for name in reversed(kind.suspend_field.split(".")):
        patch = {name: patch}
    found: Manifest = patch
    return found


class _Rule(NamedTuple):
    """One reason why a job is left as it is."""

    holds: Callable[[Job, bool], bool]
    """Tells whether it holds for a job that is to be suspended, or else resumed."""
    why: Callable[[Job], str]


_RULES = (
    _Rule(lambda job, _: not kind_of(job.ref).suspend_field, lambda job: _no_field(kind_of(job.ref))),
    _Rule(lambda job, _: job.status.is_final, lambda _: "It has ended."),
    _Rule(lambda job, _: job.status is Status.TERMINATING, lambda _: "It is being deleted."),
    # Kueue starts again at once what it has admitted, and suspends again what it has not.
    _Rule(
        lambda job, _: _KUEUE in job.labels,
        lambda job: (
            f"Kueue decides when it runs, by queue {job.labels[_KUEUE]}: change its Workload instead."
        ),
    ),
    _Rule(
        lambda job, _: job.queue == _KUBE_QUEUE and job.status is Status.QUEUED,
        lambda _: "It is suspended until kube-queue has room for it.",
    ),
    _Rule(
        lambda job, is_suspended: is_suspended and job.status in (Status.SUSPENDED, Status.QUEUED),
        lambda _: "It is already suspended.",
    ),
    _Rule(
        lambda job, is_suspended: not is_suspended and job.status not in (Status.SUSPENDED, Status.QUEUED),
        lambda _: "It is not suspended.",
    ),
)
"""The first that holds is told."""


def why_not(job: Job, *, is_suspended: bool) -> str:
    """Return why a job cannot be suspended, or resumed, as a sentence; nothing where it can be tried."""
    return next((rule.why(job) for rule in _RULES if rule.holds(job, is_suspended)), "")


async def suspend_job(client: Client, ref: JobRef, uid: str, *, is_suspended: bool) -> None:
    """Suspend a job, or resume it, if it still is the one with this uid.

    Raises:
        NotFound: It is gone.
        Conflict: Another one has its name now, or somebody changes it all the time.
        KubeError: It cannot be done, or the server has not done it.
    """
    kind = kind_of(ref)
    what = f"Could not {'suspend' if is_suspended else 'resume'} {ref.kind} {ref.name}."
    patch = suspend_patch(kind, is_suspended=is_suspended)
    if patch is None:
        raise KubeError(what, _no_field(kind))
    for tries_left in reversed(range(TRIES)):
        found = await client.get(kind.resource, ref.name, ref.namespace)
        meta = found.get("metadata") or {}
        if meta.get("uid") != uid:
            raise Conflict(what, "Another one has its name now.")
        if is_suspended and (why := _read(kind, found, what).unsuspendable):
            raise KubeError(what, why)
        # With these two a namesake made in between, or a change, makes the server refuse.
        same = {"metadata": {"uid": uid, "resourceVersion": meta.get("resourceVersion")}}
        try:
            answer = await client.patch(kind.resource, ref.name, {**same, **patch}, ref.namespace)
        except Conflict:
            if not tries_left:
                raise
            continue
        if _read(kind, answer, what).is_suspended != is_suspended:
            raise KubeError(what, _not_done(kind, is_suspended=is_suspended))
        return


def _read(kind: JobKind, obj: Manifest, what: str) -> DeclaredJob:
    try:
        return JobReader(kind).read(msgspec.json.encode(obj))
    except msgspec.DecodeError as error:
        raise KubeError(what, f"Its object makes no sense: {error}.") from error


def _no_field(kind: JobKind) -> str:
    return f"A {kind.title} has no field that suspends it."


def _not_done(kind: JobKind, *, is_suspended: bool) -> str:
    if not is_suspended:
        return f"The cluster took the change of {kind.suspend_field}, but the job still asks to be suspended."
    return (
        f"The cluster took the change but dropped {kind.suspend_field}: "
        f"it is too old for that field of a {kind.title}."
    )
