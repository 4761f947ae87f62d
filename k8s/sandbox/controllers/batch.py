"""What Kubernetes' own controller would do for one `batch/v1` Job, from its object and its pods. Pure.

Written after kubernetes 1.33, `pkg/controller/job/job_controller.go`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from k8s.kinds.batch_job import INDEX
from k8s.resources import JOBS
from k8s.sandbox.control import Manifest, now_text, seconds_since
from k8s.sandbox.controllers.plans import GANG, Plan, is_true, owner_reference, set_condition

RETRY_DELAY_S, LONGEST_RETRY_DELAY_S = 10.0, 600.0
"""Before a failed pod is replaced, doubled with each failure."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def decide(job: Manifest, pods: Sequence[Manifest]) -> Plan:
    """Return what is to be done for a Job whose pods are `pods`."""
    status = deepcopy(job.get("status") or {})
    plan = Plan(status)
    spec = job.get("spec") or {}
    is_indexed = spec.get("completionMode") == "Indexed"
    conditions: list[Manifest] = list(status.get("conditions") or ())
    if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
        _expire(spec, plan)
        return plan
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    active = [pod for pod in present if _phase(pod) in ("Pending", "Running")]
    done = _indices(status.get("completedIndexes")) | {_index(p) for p in pods if _phase(p) == "Succeeded"}
    failed = max(int(status.get("failed") or 0), sum(_phase(pod) == "Failed" for pod in pods))
    if is_indexed:
        succeeded = len(done := {index for index in done if 0 <= index < int(spec.get("completions") or 0)})
        if done:
            status["completedIndexes"] = _ranges(done)
    else:
        counted = sum(_phase(pod) == "Succeeded" for pod in pods)
        succeeded = max(int(status.get("succeeded") or 0), counted)
    if spec.get("suspend"):
        if not is_true(conditions, "Suspended"):
            conditions = set_condition(conditions, "Suspended", True, "JobSuspended", "Job suspended")
            plan.events.append(("Suspended", "Job suspended", False))
        status.pop("startTime", None)
        plan.delete, active = active, []
    else:
        if is_true(conditions, "Suspended"):
            conditions = set_condition(conditions, "Suspended", False, "JobResumed", "Job resumed")
            plan.events.append(("Resumed", "Job resumed", False))
            status["startTime"] = now_text()
        status.setdefault("startTime", now_text())
        verdict = _verdict(spec, status, pods, failed, plan)
        completions = spec.get("completions")
        is_complete = succeeded >= completions if completions is not None else succeeded > 0 and not active
        if verdict:
            conditions = set_condition(conditions, "Failed", True, *verdict)
            plan.events.append((*verdict, True))
            plan.delete, active = active, []
        elif is_complete:
            words = "Reached expected number of succeeded pods"
            conditions = set_condition(conditions, "Complete", True, "CompletionsReached", words)
            plan.events.append(("Completed", "Job completed", False))
            status["completionTime"] = now_text()
            plan.delete, active = active, []
        else:
            _create(job, spec, pods, active, done, succeeded, plan)
    if conditions:
        status["conditions"] = conditions
    ready = sum(_is_ready(pod) for pod in active)
    for name, number in (("active", len(active)), ("succeeded", succeeded), ("failed", failed)):
        if number:
            status[name] = number
        else:
            status.pop(name, None)
    status["ready"] = ready
    if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
        _expire(spec, plan)
    return plan


def _verdict(
    spec: Manifest, status: Manifest, pods: Sequence[Manifest], failed: int, plan: Plan
) -> tuple[str, str] | None:
    """Return why the Job fails; None when it does not."""
    limit = spec.get("backoffLimit")
    limit = 6 if limit is None else int(limit)
    restarts = sum(
        int(each.get("restartCount") or 0)
        for pod in pods
        if _phase(pod) in ("Pending", "Running")
        for each in (pod.get("status") or {}).get("containerStatuses") or ()
    )
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    is_past = policy == "OnFailure" and restarts > 0 and restarts >= limit
    if failed > limit or is_past:
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline_s = spec.get("activeDeadlineSeconds")
    if deadline_s is not None:
        left_s = deadline_s - seconds_since(status["startTime"])
        if left_s <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        plan.again_in(left_s)
    return None


def _create(
    job: Manifest,
    spec: Manifest,
    pods: Sequence[Manifest],
    active: Sequence[Manifest],
    done: set[int],
    succeeded: int,
    plan: Plan,
) -> None:
    """Ask for the pods that are missing.

    Their names follow from the job, the index and the number of the try, so that asking
    twice on a stale view makes no second pod.
    """
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
        plan.again_in(wait_s)
        return
    if spec.get("completionMode") == "Indexed":
        running = {_index(pod) for pod in active}
        free = [index for index in range(int(completions or 0)) if index not in done | running]
        for index in free[:missing]:
            tries = sum(_index(pod) == index for pod in pods)
            plan.create.append(_pod(job, index, f"{index}.{tries}", wanted))
    else:
        for number in range(len(pods), len(pods) + missing):
            plan.create.append(_pod(job, None, str(number), wanted))


def _retry_wait_s(pods: Sequence[Manifest]) -> float:
    """Return how long a failed pod's successor must still wait."""
    ends = sorted(filter(None, (_failed_at(pod) for pod in pods)))
    if not ends:
        return 0.0
    delay_s: float = min(RETRY_DELAY_S * 2.0 ** min(len(ends) - 1, 10), LONGEST_RETRY_DELAY_S)
    return delay_s - seconds_since(ends[-1])


def _failed_at(pod: Manifest) -> str:
    if _phase(pod) != "Failed":
        return ""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in statuses]
    return max(filter(None, ends), default=str(pod["metadata"].get("creationTimestamp") or now_text()))


def _pod(job: Manifest, index: int | None, attempt: str, gang: int) -> Manifest:
    meta, spec = job["metadata"], job["spec"]
    template = spec.get("template") or {}
    named = template.get("metadata") or {}
    uid = str(meta["uid"])
    labels: dict[str, str] = {
        **(named.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": uid,
        "job-name": meta["name"],
    }
    annotations = {**(named.get("annotations") or {}), GANG: str(gang)}
    pod_spec: dict[str, Any] = deepcopy(template.get("spec") or {})
    middle = ""
    if index is not None:
        middle = f"-{index}"
        labels[INDEX] = annotations[INDEX] = str(index)
        pod_spec.setdefault("hostname", f"{meta['name']}-{index}")
        variable = {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
        }
        for part in ("initContainers", "containers"):
            for container in pod_spec.get(part) or ():
                container["env"] = [*(container.get("env") or ()), variable]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name'][:57]}{middle}-{_suffix(uid, attempt)}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(JOBS, job)],
        },
        "spec": pod_spec,
    }


def _suffix(uid: str, attempt: str) -> str:
    """Return five letters that look random and are always the same for this try of this job."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])


def _expire(spec: Manifest, plan: Plan) -> None:
    ttl_s = spec.get("ttlSecondsAfterFinished")
    if ttl_s is None:
        return
    conditions = plan.status.get("conditions") or ()
    ends = [each["lastTransitionTime"] for each in conditions if each.get("type") in ("Complete", "Failed")]
    left_s = ttl_s - seconds_since(max(ends))
    plan.delete_job = left_s <= 0
    plan.again_in(left_s)


def _phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _is_ready(pod: Manifest) -> bool:
    return is_true((pod.get("status") or {}).get("conditions") or [], "Ready")


def _index(pod: Manifest) -> int:
    text = str((pod["metadata"].get("annotations") or {}).get(INDEX, ""))
    return int(text) if text.isdecimal() else -1


def _ranges(indices: Iterable[int]) -> str:
    """Return `0-2,5` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _indices(text: str | None) -> set[int]:
    """Return what `_ranges` wrote."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found |= set(range(int(first), int(last or first) + 1))
    return found
