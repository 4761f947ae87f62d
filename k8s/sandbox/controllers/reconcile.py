"""Plan of an operator for one job, and its execution, which may be interrupted at any point."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from k8s.client.client import Client
from k8s.kinds import JobKind
from k8s.models.resources import PODS, Resource
from k8s.sandbox.controller_runtime import Informer, Manifest, Recorder, now_text, seconds_since
from k8s.text.errors import Conflict, KubeError, NotFound

# Annotation of a pod: number of pods that its job must have before any is bound.
GANG = "gpuconsole.dev/gang"
# Annotation of a pod: number of pods of its job that were replaced before it.
RESTARTS = "gpuconsole.dev/restarts"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """Job and the objects around it, as the informers have them."""

    kind: JobKind
    job: Manifest
    pods: Sequence[Manifest]
    restarts: int = 0
    replaced: Collection[str] = ()
    children: Mapping[Resource, Sequence[Manifest]] = field(default_factory=dict)
    """Other objects that the job controls, of the resources that its operator owns."""
    known: Mapping[Resource, Sequence[Manifest]] = field(default_factory=dict)
    """All objects of the resources that its operator reads."""


@dataclass(slots=True)
class Plan:
    """New status of a job, and changes to the objects it controls."""

    status: Manifest
    create: list[Manifest] = field(default_factory=list)
    delete: list[Manifest] = field(default_factory=list)
    objects: list[tuple[Resource, Manifest]] = field(default_factory=list)
    events: list[tuple[str, str, bool]] = field(default_factory=list)
    delete_job: bool = False
    replaced: list[str] = field(default_factory=list)
    """Uids of deleted pods that failed and will be replaced."""
    requeue_after_s: float | None = None

    def set_condition(self, condition: str, reason: str, message: str, *, value: bool = True) -> None:
        """Set a condition of the job's status and record an event."""
        self.status["conditions"] = set_condition(
            self.status["conditions"], condition, value, reason, message
        )
        self.events.append((reason, message, condition == "Failed"))

    def requeue_after(self, seconds: float) -> None:
        """Reconcile again after so many seconds, or sooner."""
        seconds = max(0.0, seconds) + 0.01
        self.requeue_after_s = seconds if self.requeue_after_s is None else min(self.requeue_after_s, seconds)

    def has_expired(self, limit_s: float | None, since: str) -> bool:
        """Return True if a time limit has passed; else reconcile again when it will have."""
        if limit_s is None:
            return False
        left_s = limit_s - seconds_since(since)
        self.requeue_after(left_s)
        return left_s <= 0


async def apply_plan(
    plan: Plan, resource: Resource, job: Manifest, client: Client, recorder: Recorder, jobs: Informer
) -> None:
    """Apply a plan."""
    meta = job["metadata"]
    name, namespace = str(meta["name"]), str(meta["namespace"])
    # The status comes first: it counts the pods that the rest deletes.
    if plan.status != (job.get("status") or {}):
        change = {"status": changes(job.get("status") or {}, plan.status)}
        try:
            jobs.remember(await client.patch(resource, name, change, namespace, subresource="status"))
        except NotFound:
            return
    for reason, message, is_warning in plan.events:
        await recorder.record(resource, job, reason, message, is_warning=is_warning)
    for owned, obj in plan.objects:
        await _create(client, owned, obj, namespace)
    for pod in plan.create:
        pod_name = pod["metadata"]["name"]
        try:
            if await _create(client, PODS, pod, namespace):
                await recorder.record(resource, job, "SuccessfulCreatePod", f"Created pod: {pod_name}")
        except KubeError as error:
            message = f"Error creating pod {pod_name}: {error.why or error.what}"
            await recorder.record(resource, job, "FailedCreatePod", message, is_warning=True)
            raise
    for pod in plan.delete:
        pod_meta = pod["metadata"]
        try:
            await client.delete(PODS, pod_meta["name"], namespace, uid=pod_meta["uid"])
        except (NotFound, Conflict):
            continue
        await recorder.record(resource, job, "SuccessfulDeletePod", f"Deleted pod: {pod_meta['name']}")
    if plan.delete_job:
        with suppress(NotFound, Conflict):
            await client.delete(resource, name, namespace, uid=str(meta["uid"]))


async def _create(client: Client, resource: Resource, obj: Manifest, namespace: str) -> bool:
    """Create an object; return False if it exists."""
    try:
        await client.create(resource, obj, namespace)
    except Conflict:
        return False
    return True


def changes(old: Manifest, new: Manifest) -> Manifest:
    """Return the merge patch from one status to another; lists are replaced."""
    patch: Manifest = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if value != before:
                patch[key] = changes(before, value)
        elif value != before:
            patch[key] = value
    return patch


def owned_by(observed: ObservedJob, obj: Manifest) -> Manifest:
    """Return an object in the job's namespace, with the job as its owner."""
    meta = {
        **obj["metadata"],
        "namespace": observed.job["metadata"]["namespace"],
        "ownerReferences": [owner_reference(observed.kind.resource, observed.job)],
    }
    return {**obj, "metadata": meta}


def owned_pod(
    observed: ObservedJob,
    template: Mapping[str, Any],
    name: str,
    spec: Manifest,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a pod of a job, with its template's labels and annotations and these."""
    found = template.get("metadata") or {}
    meta = {
        "name": name,
        "labels": {**(found.get("labels") or {}), **labels},
        "annotations": {**(found.get("annotations") or {}), **(annotations or {})},
    }
    return owned_by(observed, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def owner_reference(resource: Resource, job: Manifest) -> Manifest:
    """Return the controlling owner reference for a job's objects."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def set_condition(
    conditions: list[Manifest], kind: str, is_true: bool, reason: str, message: str
) -> list[Manifest]:
    """Return the conditions with this one set; one with the same status and reason stays unchanged."""
    status = "True" if is_true else "False"
    old = next((each for each in conditions if each.get("type") == kind), None)
    if old is not None and (old.get("status"), old.get("reason")) == (status, reason):
        return conditions
    now = now_text()
    same_status = old is not None and old.get("status") == status
    since: Any = old.get("lastTransitionTime", now) if old is not None and same_status else now
    new = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": now,
        "lastTransitionTime": since,
    }
    return [*(each for each in conditions if each.get("type") != kind), new]


def is_true(conditions: list[Manifest], kind: str) -> bool:
    """Return True if a condition is present and true."""
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def is_ready(pod: Manifest) -> bool:
    """Return True if a pod has the condition Ready."""
    return is_true((pod.get("status") or {}).get("conditions") or [], "Ready")


def phase_of(pod: Manifest) -> str:
    """Return a pod's phase; Pending until its status is known."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def restarts_of(pods: Iterable[Manifest]) -> int:
    """Return the number of in-place container restarts of the pods that have not ended."""
    return sum(
        int(each.get("restartCount") or 0)
        for pod in pods
        if phase_of(pod) in ("Pending", "Running")
        for part in ("initContainerStatuses", "containerStatuses")
        for each in (pod.get("status") or {}).get(part) or ()
    )


def ends_of(pod: Manifest) -> list[Manifest]:
    """Return the `terminated` state of each container that has ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return [each["state"]["terminated"] for each in statuses if (each.get("state") or {}).get("terminated")]
