"""Controllers of Kubernetes itself: plans for one Job, and for one Deployment. Pure.

Deployments run as far as TensorBoards need it: no ReplicaSets between, no rollout.

Source: kubernetes 1.33, `pkg/controller/job/job_controller.go`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from k8s.kinds.batch_job import INDEX
from k8s.models.resources import DEPLOYMENTS
from k8s.sandbox.controller_runtime import ENDED, Manifest, now_text, seconds_since
from k8s.sandbox.controllers.reconcile import (
    GANG,
    ObservedJob,
    Plan,
    ends_of,
    is_ready,
    is_true,
    owned_pod,
    phase_of,
    restarts_of,
    set_condition,
)

# Delay before a failed pod is replaced, doubled with each failure.
RETRY_DELAY_S, LONGEST_RETRY_DELAY_S = 10.0, 600.0
_ENDS = ("Complete", "Failed")
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a Job."""
    job, pods = observed.job, observed.pods
    status = deepcopy(job.get("status") or {})
    plan = Plan(status)
    status["conditions"] = list(status.get("conditions") or ())
    if not _is_over(plan):
        _count(job["spec"], pods, status)
        _run(observed, plan)
    if _is_over(plan):
        ends = [each["lastTransitionTime"] for each in status["conditions"] if each.get("type") in _ENDS]
        plan.delete_job = plan.has_expired(job["spec"].get("ttlSecondsAfterFinished"), max(ends))
    plan.status = {name: value for name, value in status.items() if value or name == "ready"}
    return plan


def _is_over(plan: Plan) -> bool:
    return any(is_true(plan.status["conditions"], end) for end in _ENDS)


def _count(spec: Manifest, pods: Sequence[Manifest], status: Manifest) -> None:
    # Deleted pods stay counted. A pod that was deleted by a suspension has not failed.
    phases = [phase_of(pod) for pod in pods if not _is_suspended_pod(pod, spec, status)]
    status["failed"] = max(int(status.get("failed") or 0), phases.count("Failed"))
    if spec.get("completionMode") != "Indexed":
        status["succeeded"] = max(int(status.get("succeeded") or 0), phases.count("Succeeded"))
        return
    done = _indices(status.get("completedIndexes")) | {
        _index(pod) for pod in pods if phase_of(pod) == "Succeeded"
    }
    done &= set(range(int(spec.get("completions") or 0)))
    status["succeeded"], status["completedIndexes"] = len(done), _ranges(done)


def _is_suspended_pod(pod: Manifest, spec: Manifest, status: Manifest) -> bool:
    meta = pod["metadata"]
    is_earlier = str(meta.get("creationTimestamp", "")) < str(status.get("startTime", ""))
    is_held = spec.get("suspend") or is_true(status["conditions"], "Suspended") or is_earlier
    return bool(meta.get("deletionTimestamp") and is_held)


def _run(observed: ObservedJob, plan: Plan) -> None:
    pods, spec, status = observed.pods, observed.job["spec"], plan.status
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    active = [pod for pod in present if phase_of(pod) in ("Pending", "Running")]
    is_suspended = is_true(status["conditions"], "Suspended")
    if not spec.get("suspend"):
        if is_suspended:
            _report(plan, "Suspended", "JobResumed", "Job resumed", "Resumed", value=False)
            status["startTime"] = now_text()
        status.setdefault("startTime", now_text())
        if verdict := _verdict(spec, status, pods, plan):
            _report(plan, "Failed", *verdict, verdict[0])
        elif _is_complete(spec, status, active):
            message = "Reached expected number of succeeded pods"
            _report(plan, "Complete", "CompletionsReached", message, "Completed")
            status["completionTime"] = now_text()
    else:
        if not is_suspended:
            _report(plan, "Suspended", "JobSuspended", "Job suspended", "Suspended")
        status.pop("startTime", None)
    if spec.get("suspend") or _is_over(plan):
        plan.delete, active = active, []
    else:
        _create(observed, active, plan)
    status["active"], status["ready"] = len(active), sum(map(is_ready, active))


def _report(plan: Plan, condition: str, reason: str, message: str, event: str, *, value: bool = True) -> None:
    conditions = plan.status["conditions"]
    plan.status["conditions"] = set_condition(conditions, condition, value, reason, message)
    message = "Job completed" if condition == "Complete" else message
    plan.events.append((event, message, condition == "Failed"))


def _is_complete(spec: Manifest, status: Manifest, active: Sequence[Manifest]) -> bool:
    if spec.get("completions") is None:
        return status["succeeded"] > 0 and not active
    return bool(status["succeeded"] >= spec["completions"])


def _verdict(
    spec: Manifest, status: Manifest, pods: Sequence[Manifest], plan: Plan
) -> tuple[str, str] | None:
    limit = spec.get("backoffLimit")
    limit = 6 if limit is None else int(limit)
    restarts = restarts_of(pods) if spec["template"]["spec"].get("restartPolicy") == "OnFailure" else 0
    if status["failed"] > limit or 0 < restarts >= limit:
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if plan.has_expired(spec.get("activeDeadlineSeconds"), status["startTime"]):
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _create(observed: ObservedJob, active: Sequence[Manifest], plan: Plan) -> None:
    # Names follow from job, index and attempt, so that a stale list does not lead to a second pod.
    pods, spec, succeeded = observed.pods, observed.job["spec"], plan.status["succeeded"]
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    wanted = parallelism if completions is None else min(parallelism, int(completions) - succeeded)
    if completions is None and succeeded:
        wanted = len(active)
    missing = wanted - len(active)
    if missing < 0:
        plan.delete = list(active[missing:])
    if missing <= 0:
        return
    wait_s = _retry_wait_s(pods)
    if wait_s > 0:
        plan.requeue_after(wait_s)
        return
    if spec.get("completionMode") == "Indexed":
        taken = _indices(plan.status["completedIndexes"]) | {_index(pod) for pod in active}
        free = [index for index in range(int(completions or 0)) if index not in taken]
        for index in free[:missing]:
            tries = sum(_index(pod) == index for pod in pods)
            plan.create.append(_pod(observed, index, f"{index}.{tries}", wanted))
    else:
        for number in range(len(pods), len(pods) + missing):
            plan.create.append(_pod(observed, None, str(number), wanted))


def _retry_wait_s(pods: Sequence[Manifest]) -> float:
    ends = sorted(filter(None, (_failed_at(pod) for pod in pods)))
    if not ends:
        return 0.0
    delay_s: float = min(RETRY_DELAY_S * 2.0 ** min(len(ends) - 1, 10), LONGEST_RETRY_DELAY_S)
    return delay_s - seconds_since(ends[-1])


def _failed_at(pod: Manifest) -> str:
    if phase_of(pod) != "Failed":
        return ""
    ends = [str(each["finishedAt"]) for each in ends_of(pod) if each.get("finishedAt")]
    return max(ends, default=str(pod["metadata"].get("creationTimestamp") or now_text()))


def _pod(observed: ObservedJob, index: int | None, attempt: str, gang: int) -> Manifest:
    meta, template = observed.job["metadata"], observed.job["spec"].get("template") or {}
    uid, name, middle = str(meta["uid"]), str(meta["name"]), ""
    # The server has labelled the template with the Job's name and uid.
    labels: dict[str, str] = {}
    annotations = {GANG: str(gang)}
    pod_spec: dict[str, Any] = deepcopy(template.get("spec") or {})
    if index is not None:
        middle = f"-{index}"
        labels[INDEX] = annotations[INDEX] = str(index)
        pod_spec.setdefault("hostname", f"{name}-{index}")
        variable = {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
        }
        for part in ("initContainers", "containers"):
            for container in pod_spec.get(part) or ():
                container["env"] = [*(container.get("env") or ()), variable]
    pod_name = f"{name[:57]}{middle}-{_suffix(uid, attempt)}"
    return owned_pod(observed, template, pod_name, pod_spec, labels, annotations)


def _suffix(uid: str, attempt: str) -> str:
    """Return five random-looking letters, always the same for one attempt of one job."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])


def _index(pod: Manifest) -> int:
    text = str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))
    return int(text) if text.isdecimal() else -1


def _ranges(indices: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _indices(text: str | None) -> set[int]:
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found |= set(range(int(first), int(last or first) + 1))
    return found


HASH = "pod-template-hash"


class DeploymentKind:
    """Deployments, beside the job kinds of the operators."""

    resource = DEPLOYMENTS
    operator = "deployment-controller"


def decide_deployment(observed: ObservedJob) -> Plan:
    """Return the plan for a Deployment; pods that have ended or have an older template go at once."""
    deployment, spec = observed.job, observed.job["spec"]
    wanted, name = int(spec["replicas"]), str(deployment["metadata"]["name"])
    template = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
    present = [pod for pod in observed.pods if not pod["metadata"].get("deletionTimestamp")]
    live = [pod for pod in present if phase_of(pod) not in ENDED]
    current = [pod for pod in live if (pod["metadata"].get("labels") or {}).get(HASH) == template][:wanted]
    plan = Plan(_deployment_status(deployment, live, len(current)))
    plan.delete = [pod for pod in present if pod not in current]
    # Numbered names, so that a stale list does not lead to a second pod.
    taken = {pod["metadata"]["name"] for pod in observed.pods}
    names = (f"{name[:46]}-{template}-{number}" for number in range(wanted + len(taken)))
    for pod_name in [each for each in names if each not in taken][: wanted - len(current)]:
        pod_spec = deepcopy(spec["template"]["spec"])
        plan.create.append(owned_pod(observed, spec["template"], pod_name, pod_spec, {HASH: template}))
    return plan


def _deployment_status(deployment: Manifest, live: list[Manifest], updated: int) -> Manifest:
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
