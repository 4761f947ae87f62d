"""Deployment controller, as far as TensorBoards need it: pods without ReplicaSets between."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from copy import deepcopy

from k8s.errors import KubeError
from k8s.models.resources import DEPLOYMENTS, PODS
from k8s.sandbox.controller_runtime import Informer, Informers, Manifest, Recorder, by_controller
from k8s.sandbox.controllers.reconcile import (
    Plan,
    apply_plan,
    is_ready,
    owner_reference,
    phase_of,
    set_condition,
)

HASH = "pod-template-hash"
RETRY_S = 2.0

log = logging.getLogger(__name__)


class Deployments:
    """Controller of all Deployments."""

    def __init__(self, informers: Informers) -> None:
        self._client = informers.client
        self._pods = informers.of(PODS)
        self._deployments = informers.of(DEPLOYMENTS)
        self._recorder = Recorder(informers.client, "deployment-controller")

    @property
    def informers(self) -> list[Informer]:
        """Return the informers that must be synced first."""
        return [self._pods, self._deployments]

    async def reconcile(self) -> float | None:
        """Reconcile every Deployment; an error of one does not affect the others."""
        pods_by_owner = by_controller(self._pods)
        requeue_after_s = None
        for deployment in list(self._deployments):
            if deployment["metadata"].get("deletionTimestamp"):
                continue
            plan = decide(deployment, pods_by_owner.get(str(deployment["metadata"]["uid"]), []))
            try:
                await apply_plan(
                    plan, DEPLOYMENTS, deployment, self._client, self._recorder, self._deployments
                )
            except KubeError as error:
                log.warning("Deployment %s: %s", deployment["metadata"]["name"], error)
                requeue_after_s = RETRY_S
        return requeue_after_s


def decide(deployment: Manifest, pods: Sequence[Manifest]) -> Plan:
    """Return the plan for a Deployment; old pods go once enough new ones are ready."""
    spec = deployment["spec"]
    plan = Plan(deepcopy(deployment.get("status") or {}))
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    ended = [pod for pod in present if phase_of(pod) in ("Succeeded", "Failed")]
    live = [pod for pod in present if pod not in ended]
    template = _template_hash(spec["template"])
    current = [pod for pod in live if (pod["metadata"].get("labels") or {}).get(HASH) == template]
    old = [pod for pod in live if pod not in current]
    wanted = int(spec["replicas"])
    is_rolling = (spec.get("strategy") or {}).get("type") != "Recreate"
    available = [pod for pod in current if is_ready(pod)]
    plan.delete = [*ended, *current[wanted:]]
    if not is_rolling or len(available) >= wanted:
        plan.delete += old
    is_free = is_rolling or (not old and len(present) == len(pods))
    if is_free and not spec.get("paused"):
        made = {pod["metadata"]["name"] for pod in pods}
        names = (_name(deployment, template, number) for number in range(wanted + len(made)))
        free = [name for name in names if name not in made]
        plan.create = [_pod(deployment, template, name) for name in free[: max(0, wanted - len(current))]]
    _write_status(
        plan, deployment, len(live), min(len(current), wanted), [pod for pod in live if is_ready(pod)]
    )
    return plan


def _write_status(
    plan: Plan, deployment: Manifest, live: int, updated: int, ready: Sequence[Manifest]
) -> None:
    wanted = int(deployment["spec"]["replicas"])
    status = plan.status
    conditions = list(status.get("conditions") or ())
    counts = {"replicas": live, "updatedReplicas": updated, "readyReplicas": len(ready)}
    counts |= {"availableReplicas": len(ready), "unavailableReplicas": max(0, wanted - len(ready))}
    for name, count in counts.items():
        status.pop(name, None)
        if count:
            status[name] = count
    status["observedGeneration"] = deployment["metadata"]["generation"]
    is_available = len(ready) >= wanted
    message = (
        "Deployment has minimum availability."
        if is_available
        else "Deployment does not have minimum availability."
    )
    reason = "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable"
    conditions = set_condition(conditions, "Available", is_available, reason, message)
    is_complete = is_available and updated == live == wanted
    reason = "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated"
    message = (
        f'Deployment "{deployment["metadata"]["name"]}" is {"complete" if is_complete else "progressing"}.'
    )
    status["conditions"] = set_condition(conditions, "Progressing", True, reason, message)


def _template_hash(template: Manifest) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _name(deployment: Manifest, template: str, number: int) -> str:
    # The same for each number, so that a stale list does not lead to a second pod.
    name = str(deployment["metadata"]["name"])
    digest = hashlib.sha256(f"{deployment['metadata']['uid']}/{template}/{number}".encode()).hexdigest()
    return f"{name[:46]}-{template}-{digest[:5]}"


def _pod(deployment: Manifest, template: str, name: str) -> Manifest:
    meta = deployment["spec"]["template"].get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), HASH: template},
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [owner_reference(DEPLOYMENTS, deployment)],
        },
        "spec": deepcopy(deployment["spec"]["template"]["spec"]),
    }
