"""Plan of an operator for one job of any kind, and its execution, which may be interrupted at any point.

A kind's controller passes the replicas (`kind.replicas()`) and the rules of its operator to `JobReplicas`,
which creates, replaces and deletes pods, and turns the result into the status of its kind: `batch`,
`kubeflow` and `trainer` into conditions, `tensorstack` into phases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from k8s.client.client import Client
from k8s.kinds import JobKind, Replica
from k8s.models.resources import PODS, Resource
from k8s.sandbox.controller_runtime import ENDED, Informer, Manifest, Recorder, now_text, seconds_since
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

    @classmethod
    def of(cls, job: Manifest) -> Self:
        """Return a plan that leaves everything as it is; its status may be changed."""
        status = deepcopy(job.get("status") or {})
        return cls({**status, "conditions": list(status.get("conditions") or ())})

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


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one job's operator."""

    is_retryable: Callable[[Replica, Manifest], bool]
    backoff_limit: int | None
    """None: no limit."""
    deadline_s: float | None
    clean_policy: str
    """Pods to delete after the end: None, Running (those that have not ended) or All."""
    is_outdated: Callable[[Manifest], bool] = lambda pod: False
    """Return True if a running pod is to be replaced because its job has changed."""
    waiting: Collection[str] = ()
    kept_role: str = ""
    """Role whose pods stay after the end, whatever the clean policy."""
    has_deciding_chief: bool = False
    """A failed pod fails the job only if it has the chief's role."""
    keeps_failed: bool = False
    """Pods that have ended stay, with their logs; a failed one gets a successor of another name."""
    name_of: Callable[[Manifest], str] = lambda pod: str(pod["metadata"]["name"])
    """Return the name of a pod's replica."""


class End(NamedTuple):
    """End of a job."""

    reason: str
    """Succeeded, PodFailed, BackoffLimitExceeded or DeadlineExceeded."""
    pods: tuple[Manifest, ...] = ()
    """Pods that caused it."""


class JobReplicas:
    """Pods of one job beside the replicas that it should have. Changes go into the plan."""

    def __init__(
        self,
        observed: ObservedJob,
        replicas: Iterable[Replica],
        rules: Rules,
        plan: Plan,
        make_pod: Callable[[ObservedJob, Replica], Manifest] | None = None,
    ) -> None:
        self.wanted = {each.name: each for each in replicas}
        self.chief = next((each.role for each in self.wanted.values() if each.is_chief), "")
        # The watch may still show a pod that was already deleted to be replaced.
        present = [pod for pod in observed.pods if pod["metadata"]["uid"] not in observed.replaced]
        self.pods = {
            rules.name_of(pod): pod
            for pod in sorted(present, key=attempt_of)
            if not pod["metadata"].get("deletionTimestamp")
        }
        self.leaving = {rules.name_of(pod) for pod in observed.pods} - self.pods.keys()
        self._observed = observed
        self._rules = rules
        self._plan = plan
        self._make_pod = make_pod or self._standard_pod

    def phases(self, role: str) -> list[str]:
        """Return the phases of a role's pods; empty strings for missing pods."""
        return [
            phase_of(self.pods[name]) if name in self.pods else ""
            for name, replica in self.wanted.items()
            if replica.role == role
        ]

    def reconcile(self, started: str) -> End | None:
        """Plan the pods of a job that runs since `started`; or return its end."""
        rules, plan = self._rules, self._plan
        chiefs = self.phases(self.chief)
        if chiefs and set(chiefs) == {"Succeeded"}:
            return End("Succeeded")
        if plan.has_expired(rules.deadline_s, started):
            return End("DeadlineExceeded")
        retried, fatal = [], []
        for name, replica in self.wanted.items():
            phase = phase_of(self.pods[name]) if name in self.pods else ""
            is_chief = replica.role == self.chief
            if phase not in ENDED or (phase == "Succeeded" and is_chief):
                continue
            if rules.is_retryable(replica, self.pods[name]):
                retried.append(self.pods[name])
            elif phase == "Failed" and (is_chief or not rules.has_deciding_chief):
                fatal.append(self.pods[name])
        if fatal:
            return End("PodFailed", tuple(fatal))
        if self._is_past_limit(has_failures=bool(retried)):
            return End("BackoffLimitExceeded", tuple(retried))
        if not rules.keeps_failed:
            plan.replaced = [str(pod["metadata"]["uid"]) for pod in retried]
            plan.delete = list(retried)
        for name, pod in self.pods.items():
            has_ended = phase_of(pod) in ENDED
            if (name not in self.wanted and not (has_ended and rules.keeps_failed)) or (
                not has_ended and rules.is_outdated(pod)
            ):
                plan.delete.append(pod)
        for name, replica in self.wanted.items():
            # While a pod of that name belongs to an earlier job, the server refuses another.
            is_free = name not in self.pods or (rules.keeps_failed and self.pods[name] in retried)
            if is_free and name not in self.leaving and name not in rules.waiting:
                plan.create.append(self._make_pod(self._observed, replica))
        return None

    def delete_all(self) -> None:
        """Delete the pods of a suspended job."""
        keeps = self._rules.keeps_failed
        self._plan.delete = [pod for pod in self.pods.values() if not (keeps and phase_of(pod) in ENDED)]

    def clean_up(self) -> None:
        """Delete the pods that the clean policy does not keep after the end."""
        rules = self._rules
        self._plan.create.clear()
        self._plan.delete = [
            pod
            for name, pod in self.pods.items()
            if rules.clean_policy == "All" or (rules.clean_policy == "Running" and phase_of(pod) not in ENDED)
            if name not in self.wanted or self.wanted[name].role != rules.kept_role
        ]

    def _is_past_limit(self, *, has_failures: bool) -> bool:
        limit = self._rules.backoff_limit
        if limit is None:
            return False
        in_place = restarts_of(
            self.pods[name]
            for name, replica in self.wanted.items()
            if name in self.pods and replica.restart_policy != "Never"
        )
        return (has_failures and self._observed.restarts >= limit) or in_place >= max(1, limit)

    def _standard_pod(self, observed: ObservedJob, replica: Replica) -> Manifest:
        spec = dict(replica.template.get("spec") or {})
        spec["restartPolicy"] = "Never" if replica.restart_policy == "ExitCode" else replica.restart_policy
        added = [{"name": name, "value": value} for name, value in replica.env]
        spec["containers"] = [
            {**container, "env": [*(container.get("env") or ()), *added]}
            for container in spec.get("containers") or ()
        ]
        annotations = {GANG: str(len(self.wanted)), RESTARTS: str(observed.restarts)}
        return owned_pod(observed, replica.template, replica.name, spec, dict(replica.labels), annotations)


def attempt_of(pod: Manifest) -> int:
    """Return the number of pods that were replaced before a pod."""
    return int((pod["metadata"].get("annotations") or {}).get(RESTARTS) or 0)
