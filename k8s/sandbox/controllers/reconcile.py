"""What an operator wants done for one job, and the doing of it, in an order that may be cut anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from k8s.client.client import Client
from k8s.errors import Conflict, KubeError, NotFound
from k8s.kinds import JobKind
from k8s.models.resources import PODS, SERVICES, Resource
from k8s.sandbox.controller_runtime import Informer, Manifest, Recorder, now_text, seconds_since

GANG = "gpuconsole.dev/gang"
"""Annotation of a pod: how many pods its job must have before any is bound."""
RESTARTS = "gpuconsole.dev/restarts"
"""Annotation of a pod: how many pods of its job were replaced before it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A job as an operator finds it."""

    kind: JobKind
    """How to read it."""
    job: Manifest
    """The object."""
    pods: Sequence[Manifest]
    """The pods that it controls."""
    restarts: int = 0
    """How many of its pods were replaced so far."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Pod names in its namespace, and the uid of what controls each."""
    children: Mapping[Resource, Sequence[Manifest]] = field(default_factory=dict)
    """What else it controls, of the resources that its operator owns."""
    known: Mapping[Resource, Sequence[Manifest]] = field(default_factory=dict)
    """All objects of the resources that its operator reads."""


@dataclass(slots=True)
class Plan:
    """What is to be done for one job; empty when all is well."""

    status: Manifest
    """How the job's status shall be."""
    create: list[Manifest] = field(default_factory=list)
    """Pods to create."""
    services: list[Manifest] = field(default_factory=list)
    """Services to create with them."""
    delete: list[Manifest] = field(default_factory=list)
    """Pods to delete."""
    objects: list[tuple[Resource, Manifest]] = field(default_factory=list)
    """Other objects to create."""
    patches: list[tuple[Resource, str, Manifest]] = field(default_factory=list)
    """Merge patches of other objects, by name."""
    removals: list[tuple[Resource, Manifest]] = field(default_factory=list)
    """Other objects to delete."""
    events: list[tuple[str, str, bool]] = field(default_factory=list)
    """Reason, message, and whether it is a warning."""
    delete_job: bool = False
    replaced: list[str] = field(default_factory=list)
    """Uids of the deleted pods that failed and shall be made anew."""
    requeue_after_s: float | None = None
    """After how long to look again, though nothing changes."""

    def set_condition(self, condition: str, reason: str, words: str, *, is_so: bool = True) -> None:
        """Set a condition of the job's status, and tell of it in an event."""
        self.status["conditions"] = set_condition(self.status["conditions"], condition, is_so, reason, words)
        self.events.append((reason, words, condition == "Failed"))

    def requeue_after(self, seconds: float) -> None:
        """Ask to look again after so long, or sooner."""
        seconds = max(0.0, seconds) + 0.01
        self.requeue_after_s = seconds if self.requeue_after_s is None else min(self.requeue_after_s, seconds)

    def has_expired(self, limit_s: float | None, since: str) -> bool:
        """Tell whether a time limit has passed, if there is one; else ask to look again when it will have."""
        if limit_s is None:
            return False
        left_s = limit_s - seconds_since(since)
        self.requeue_after(left_s)
        return left_s <= 0


async def apply_plan(
    plan: Plan, resource: Resource, job: Manifest, client: Client, recorder: Recorder, jobs: Informer
) -> None:
    """Do what a plan says: first the status, so that nothing done later is misread."""
    meta = job["metadata"]
    name, namespace = str(meta["name"]), str(meta["namespace"])
    if plan.status != (job.get("status") or {}):
        change = {"status": changes(job.get("status") or {}, plan.status)}
        try:
            jobs.remember(await client.patch(resource, name, change, namespace, subresource="status"))
        except NotFound:
            return
    for reason, message, is_warning in plan.events:
        await recorder.record(resource, job, reason, message, is_warning=is_warning)
    for owned, obj in [*((SERVICES, service) for service in plan.services), *plan.objects]:
        await _create(client, owned, obj, namespace)
    for owned, owned_name, patch in plan.patches:
        with suppress(NotFound):
            await client.patch(owned, owned_name, patch, namespace)
    for owned, obj in plan.removals:
        with suppress(NotFound, Conflict):
            await client.delete(owned, obj["metadata"]["name"], namespace, uid=obj["metadata"]["uid"])
    for pod in plan.create:
        pod_name = pod["metadata"]["name"]
        try:
            if await _create(client, PODS, pod, namespace):
                await recorder.record(resource, job, "SuccessfulCreatePod", f"Created pod: {pod_name}")
        except KubeError as error:
            words = f"Error creating pod {pod_name}: {error.why or error.what}"
            await recorder.record(resource, job, "FailedCreatePod", words, is_warning=True)
            raise
    for pod in plan.delete:
        pod_meta = pod["metadata"]
        try:
            await client.delete(PODS, pod_meta["name"], namespace, uid=pod_meta["uid"])
        except (NotFound, Conflict):
            continue
        await recorder.record(resource, job, "SuccessfulDeletePod", f"Deleted pod: {pod_meta['name']}")
    if plan.delete_job:
        try:
            await client.delete(resource, name, namespace, uid=str(meta["uid"]))
        except (NotFound, Conflict):
            return


async def _create(client: Client, resource: Resource, obj: Manifest, namespace: str) -> bool:
    """Create an object; tell whether it was not there already."""
    try:
        await client.create(resource, obj, namespace)
    except Conflict:
        return False
    return True


def changes(old: Manifest, new: Manifest) -> Manifest:
    """Return the merge patch from one status to another, whose lists are replaced as a whole."""
    patch: Manifest = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if value != before:
                patch[key] = changes(before, value)
        elif value != before:
            patch[key] = value
    return patch


def owner_reference(resource: Resource, job: Manifest) -> Manifest:
    """Return what a job's pods carry so that they go when it goes."""
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
    """Return the conditions with this one set; one that says the same already stays as it is."""
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
    """Tell whether a condition is there and true."""
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def phase_of(pod: Manifest) -> str:
    """Return a pod's phase; one of which nothing is known yet is pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def restarts_of(pods: Iterable[Manifest]) -> int:
    """Return how often containers of these pods were restarted in place, of those that are not over."""
    return sum(
        int(each.get("restartCount") or 0)
        for pod in pods
        if phase_of(pod) in ("Pending", "Running")
        for part in ("initContainerStatuses", "containerStatuses")
        for each in (pod.get("status") or {}).get(part) or ()
    )


def ends_of(pod: Manifest) -> list[Manifest]:
    """Return how a pod's containers ended, of those that have."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return [each["state"]["terminated"] for each in statuses if (each.get("state") or {}).get("terminated")]
