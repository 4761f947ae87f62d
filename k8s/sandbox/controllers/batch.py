"""Controllers of Kubernetes itself: plans for one Job, and for one Deployment. Pure.

Deployments run as far as TensorBoards need it: no ReplicaSets between, no rollout.

Source: kubernetes 1.33, `pkg/controller/job/job_controller.go`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace

import msgspec

from k8s.kinds import Replica
from k8s.kinds.batch_job import INDEX
from k8s.kinds.parse import make_replica
from k8s.models.resources import DEPLOYMENTS
from k8s.sandbox.controller_runtime import ENDED, Manifest, now_text, seconds_since
from k8s.sandbox.controllers.reconcile import (
    RESTARTS,
    End,
    JobReplicas,
    ObservedJob,
    Plan,
    Rules,
    attempt_of,
    ends_of,
    is_ready,
    is_true,
    owned_pod,
    phase_of,
    set_condition,
)

# Annotation of a pod: its number in a Job that is not indexed.
NUMBER = "gpuconsole.dev/number"
# Delay before a failed pod is replaced, doubled with each failure.
RETRY_DELAY_S, LONGEST_RETRY_DELAY_S = 10.0, 600.0
_RETRIES = 6
_ENDS = {
    "Succeeded": ("Complete", "CompletionsReached", "Reached expected number of succeeded pods"),
    "BackoffLimitExceeded": ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    "DeadlineExceeded": ("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"),
}
_ENDINGS = ("Complete", "Failed")
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
HASH = "pod-template-hash"


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a Job."""
    spec = observed.job["spec"]
    plan = Plan.of(observed.job)
    status = plan.status
    if not _is_over(plan):
        _count(spec, observed.pods, status)
        _run(observed, plan)
    if _is_over(plan):
        ends = [each["lastTransitionTime"] for each in status["conditions"] if each["type"] in _ENDINGS]
        plan.delete_job = plan.has_expired(spec.get("ttlSecondsAfterFinished"), max(ends))
    plan.status = {name: value for name, value in status.items() if value or name == "ready"}
    return plan


def _is_over(plan: Plan) -> bool:
    return any(is_true(plan.status["conditions"], end) for end in _ENDINGS)


def _count(spec: Manifest, pods: Sequence[Manifest], status: Manifest) -> None:
    # Deleted pods stay counted. A pod that was deleted by a suspension has not failed.
    phases = [phase_of(pod) for pod in pods if not _is_suspended_pod(pod, spec, status)]
    status["failed"] = max(int(status.get("failed") or 0), phases.count("Failed"))
    done = _indices(status.get("completedIndexes"))
    done |= {int(_number(pod)) for pod in pods if phase_of(pod) == "Succeeded"}
    if spec.get("completions") is not None:
        done &= set(range(int(spec["completions"])))
    status["succeeded"], status["completedIndexes"] = len(done), _ranges(done)


def _is_suspended_pod(pod: Manifest, spec: Manifest, status: Manifest) -> bool:
    meta = pod["metadata"]
    is_earlier = str(meta.get("creationTimestamp", "")) < str(status.get("startTime", ""))
    is_held = spec.get("suspend") or is_true(status["conditions"], "Suspended") or is_earlier
    return bool(meta.get("deletionTimestamp") and is_held)


def _run(observed: ObservedJob, plan: Plan) -> None:
    job, spec, status = observed.job, observed.job["spec"], plan.status
    is_suspended = is_true(status["conditions"], "Suspended")
    completions, limit = spec.get("completions"), spec.get("backoffLimit")
    limit = _RETRIES if limit is None else int(limit)
    # The pods of every Job have numbers here; those of an indexed one can see theirs.
    is_indexed = spec.get("completionMode") == "Indexed"
    counted = spec.get("parallelism", 1) if completions is None else completions
    numbered = {**spec, "completionMode": "Indexed", "completions": counted}
    done = _indices(status["completedIndexes"])
    wanted = [
        msgspec.structs.replace(
            each,
            name=str(each.index),
            env=each.env if is_indexed else (),
            labels=each.labels if is_indexed else (),
        )
        for each in observed.kind.replicas({**job, "spec": numbered, "status": status})
        if each.index not in done
    ]
    # Without a number of completions, the first success is the sign that no more pods are needed.
    is_served = completions is None and bool(done)
    wait_s = _retry_wait_s(observed.pods)
    rules = Rules(
        lambda replica, pod: phase_of(pod) == "Failed",
        backoff_limit=limit,
        deadline_s=spec.get("activeDeadlineSeconds"),
        clean_policy="Running",
        waiting=[each.name for each in wanted] if is_served or wait_s > 0 else (),
        keeps_failed=True,
        name_of=_number,
    )
    pods = JobReplicas(replace(observed, restarts=0, replaced=()), wanted, rules, plan)
    if spec.get("suspend"):
        pods.delete_all()
        if not is_suspended:
            _report(plan, "Suspended", "JobSuspended", "Job suspended", "Suspended")
        status.pop("startTime", None)
    else:
        if is_suspended:
            _report(plan, "Suspended", "JobResumed", "Job resumed", "Resumed", value=False)
            status["startTime"] = now_text()
        end = pods.reconcile(status.setdefault("startTime", now_text()))
        if status["failed"] > limit:
            end = End("BackoffLimitExceeded")
        is_idle = all(phase_of(pod) in ENDED for pod in pods.pods.values())
        if end is None and (is_idle if is_served else completions is not None and len(done) >= completions):
            end = End("Succeeded")
        if end is not None:
            _report(plan, *_ENDS[end.reason], "Completed" if end.reason == "Succeeded" else end.reason)
            if end.reason == "Succeeded":
                status["completionTime"] = now_text()
            pods.clean_up()
        elif wait_s > 0 and wanted:
            plan.requeue_after(wait_s)
    active = [pod for pod in pods.pods.values() if phase_of(pod) not in ENDED and pod not in plan.delete]
    status["active"], status["ready"] = len(active), sum(map(is_ready, active))
    for pod in plan.create:
        _name(pod, observed)


def _report(plan: Plan, condition: str, reason: str, message: str, event: str, *, value: bool = True) -> None:
    conditions = plan.status["conditions"]
    plan.status["conditions"] = set_condition(conditions, condition, value, reason, message)
    message = "Job completed" if condition == "Complete" else message
    plan.events.append((event, message, condition == "Failed"))


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


def _number(pod: Manifest) -> str:
    annotations = pod["metadata"].get("annotations") or {}
    return str(annotations.get(INDEX) or annotations.get(NUMBER) or "-1")


def _name(pod: Manifest, observed: ObservedJob) -> None:
    """Name a pod by its Job, number and attempt, so that a stale list does not lead to a second pod."""
    job, meta, number = observed.job["metadata"], pod["metadata"], pod["metadata"]["name"]
    attempt = 1 + max((attempt_of(each) for each in observed.pods if _number(each) == number), default=-1)
    digest = hashlib.sha256(f"{job['uid']}/{number}.{attempt}".encode()).digest()
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
    is_indexed = observed.job["spec"].get("completionMode") == "Indexed"
    meta["name"] = f"{job['name'][:57]}{f'-{number}' if is_indexed else ''}-{suffix}"
    meta["annotations"] |= {RESTARTS: str(attempt), INDEX if is_indexed else NUMBER: number}
    if is_indexed:
        pod["spec"].setdefault("hostname", f"{job['name']}-{number}")


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


class DeploymentKind:
    """Deployments, beside the job kinds of the operators."""

    resource = DEPLOYMENTS
    operator = "deployment-controller"


def decide_deployment(observed: ObservedJob) -> Plan:
    """Return the plan for a Deployment; pods that have ended or have an older template go at once."""
    deployment, template = observed.job, observed.job["spec"]["template"]
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    prefix = f"{deployment['metadata']['name'][:46]}-{digest}"
    wanted = [
        make_replica("pod", number, template, name=f"{prefix}-{number}")
        for number in range(int(deployment["spec"]["replicas"]))
    ]

    def make_pod(observed: ObservedJob, replica: Replica) -> Manifest:
        return owned_pod(observed, template, replica.name, deepcopy(template["spec"]), {HASH: digest})

    plan = Plan.of(deployment)
    rules = Rules(lambda replica, pod: True, backoff_limit=None, deadline_s=None, clean_policy="None")
    pods = JobReplicas(observed, wanted, rules, plan, make_pod)
    pods.reconcile("")
    live = [pod for pod in pods.pods.values() if phase_of(pod) not in ENDED]
    plan.status = _deployment_status(deployment, live, sum(name in pods.pods for name in pods.wanted))
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
