"""Deployment controller, as far as TensorBoards need it: no ReplicaSets between, no rollout. Pure."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy

from k8s.models.resources import DEPLOYMENTS
from k8s.sandbox.controller_runtime import ENDED, Manifest
from k8s.sandbox.controllers.reconcile import (
    ObservedJob,
    Plan,
    is_ready,
    owned_pod,
    phase_of,
    set_condition,
)

HASH = "pod-template-hash"


class DeploymentKind:
    """Deployments, beside the job kinds of the operators."""

    resource = DEPLOYMENTS
    operator = "deployment-controller"


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a Deployment; pods that have ended or have an older template go at once."""
    deployment, spec = observed.job, observed.job["spec"]
    wanted, name = int(spec["replicas"]), str(deployment["metadata"]["name"])
    template = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
    present = [pod for pod in observed.pods if not pod["metadata"].get("deletionTimestamp")]
    live = [pod for pod in present if phase_of(pod) not in ENDED]
    current = [pod for pod in live if (pod["metadata"].get("labels") or {}).get(HASH) == template][:wanted]
    plan = Plan(_status(deployment, live, len(current)))
    plan.delete = [pod for pod in present if pod not in current]
    # Numbered names, so that a stale list does not lead to a second pod.
    taken = {pod["metadata"]["name"] for pod in observed.pods}
    names = (f"{name[:46]}-{template}-{number}" for number in range(wanted + len(taken)))
    for pod_name in [each for each in names if each not in taken][: wanted - len(current)]:
        pod_spec = deepcopy(spec["template"]["spec"])
        plan.create.append(owned_pod(observed, spec["template"], pod_name, pod_spec, {HASH: template}))
    return plan


def _status(deployment: Manifest, live: list[Manifest], updated: int) -> Manifest:
    wanted, ready = int(deployment["spec"]["replicas"]), sum(map(is_ready, live))
    counts = {"replicas": len(live), "updatedReplicas": updated, "readyReplicas": ready}
    counts |= {"availableReplicas": ready, "unavailableReplicas": max(0, wanted - ready)}
    is_available = ready >= wanted
    has = "has" if is_available else "does not have"
    conditions = list((deployment.get("status") or {}).get("conditions") or ())
    return {
        **{name: count for name, count in counts.items() if count},
        "observedGeneration": deployment["metadata"]["generation"],
        "conditions": set_condition(
            conditions,
            "Available",
            is_available,
            "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            f"Deployment {has} minimum availability.",
        ),
    }
