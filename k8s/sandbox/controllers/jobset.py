"""JobSet controller: plan for one JobSet, from its object and its Jobs. Pure.

Jobs start together, after their dependencies; if one fails, all are recreated as far as the failure policy
allows. Source: kubernetes-sigs/jobset v0.12, `pkg/controllers/jobset_controller.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from k8s.kinds.job_set import GROUP, GROUP_SIZE, JOB_INDEX, SET_NAME
from k8s.models.resources import JOBS, SERVICES, Resource
from k8s.sandbox.controller_runtime import Manifest
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan, is_true, owned_by

ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
OWNED = (JOBS, SERVICES)
_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a JobSet."""
    job_set, spec = observed.job, observed.job["spec"]
    plan = Plan(deepcopy(job_set.get("status") or {}))
    status = plan.status
    status["conditions"] = list(status.get("conditions") or ())
    status.setdefault("restarts", 0)
    present = [job for job in observed.children.get(JOBS, ()) if not job["metadata"].get("deletionTimestamp")]
    jobs = {str(job["metadata"]["name"]): job for job in present if _attempt(job) == status["restarts"]}
    if not any(is_true(status["conditions"], end) for end in ("Completed", "Failed")):
        _judge(plan, spec, list(jobs.values()))
    if status.get("terminalState"):
        active = [job for job in present if not _is_over(job)]
        plan.removals = [(JOBS, job) for job in active]
        ends = [each["lastTransitionTime"] for each in status["conditions"] if each["status"] == "True"]
        plan.delete_job = plan.has_expired(spec.get("ttlSecondsAfterFinished"), max(ends))
    else:
        plan.removals = [(JOBS, job) for job in present if _attempt(job) != status["restarts"]]
        _start(plan, observed, jobs)
    status["replicatedJobsStatus"] = _counts(spec, jobs)
    return plan


def _judge(plan: Plan, spec: Manifest, jobs: Sequence[Manifest]) -> None:
    failed = [job for job in jobs if _is(job, "Failed")]
    if failed:
        name = failed[0]["metadata"]["name"]
        if plan.status["restarts"] < int((spec.get("failurePolicy") or {}).get("maxRestarts") or 0):
            plan.status["restarts"] += 1
            plan.events.append(("Restarting", f"restarting jobset, as job {name} failed", True))
            return
        message = f"jobset failed due to one or more job failures (first failed job: {name})"
        plan.set_condition("Failed", "FailedJobs", message)
        plan.status["terminalState"] = "Failed"
        return
    policy = spec.get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [each["name"] for each in spec["replicatedJobs"]]
    wanted = sum(int(each.get("replicas", 1)) for each in spec["replicatedJobs"] if each["name"] in targets)
    done = sum(_is(job, "Complete") for job in jobs if job["metadata"]["labels"].get(GROUP) in targets)
    if done >= (min(1, wanted) if policy.get("operator") == "Any" else wanted) and done:
        plan.set_condition("Completed", "AllJobsCompleted", "jobset completed successfully")
        plan.status["terminalState"] = "Completed"
        return
    is_suspended = is_true(plan.status["conditions"], "Suspended")
    if spec.get("suspend") and not is_suspended:
        plan.set_condition("Suspended", "SuspendedJobs", "jobset is suspended")
    elif not spec.get("suspend") and is_suspended:
        plan.set_condition("Suspended", "ResumeJobs", "jobset is resumed", value=False)


def _start(plan: Plan, observed: ObservedJob, jobs: dict[str, Manifest]) -> None:
    job_set, spec = observed.job, observed.job["spec"]
    name = str(job_set["metadata"]["name"])
    is_suspended = bool(spec.get("suspend"))
    if not observed.children.get(SERVICES):
        selector = {SET_NAME: name}
        service = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
        subdomain = str((spec.get("network") or {}).get("subdomain") or name)
        plan.objects.append((SERVICES, _owned(observed, SERVICES, subdomain, selector, service)))
    leaving = {str(job["metadata"]["name"]) for job in observed.children.get(JOBS, ())} - jobs.keys()
    for group in spec["replicatedJobs"]:
        if not all(_is_met(each, jobs, spec) for each in group.get("dependsOn") or ()):
            continue
        for index in range(int(group.get("replicas", 1))):
            job_name = f"{name}-{group['name']}-{index}"
            job = jobs.get(job_name)
            if job is None:
                if job_name not in leaving:
                    plan.objects.append((JOBS, _job(observed, group, index, plan.status["restarts"])))
            elif bool(job["spec"].get("suspend")) != is_suspended and not _is_over(job):
                plan.patches.append((JOBS, job_name, {"spec": {"suspend": is_suspended}}))


def _is_met(dependency: Manifest, jobs: dict[str, Manifest], spec: Manifest) -> bool:
    groups = {each["name"]: each for each in spec["replicatedJobs"]}
    group: Manifest = groups.get(dependency.get("name"), {})
    members = [job for job in jobs.values() if job["metadata"]["labels"].get(GROUP) == group.get("name")]
    met = [
        _is(job, "Complete") or (dependency.get("status") == "Ready" and _is_ready(job)) for job in members
    ]
    return bool(sum(met) >= int(group.get("replicas", 1)))


def _job(observed: ObservedJob, group: Manifest, index: int, attempt: int) -> Manifest:
    job_set = observed.job
    name = str(job_set["metadata"]["name"])
    labels = {
        SET_NAME: name,
        GROUP: str(group["name"]),
        GROUP_SIZE: str(group.get("replicas", 1)),
        JOB_INDEX: str(index),
        ATTEMPT: str(attempt),
    }
    meta, spec = group["template"].get("metadata") or {}, deepcopy(group["template"]["spec"])
    spec.setdefault("completionMode", "Indexed")
    spec.setdefault("completions", spec.setdefault("parallelism", 1))
    spec["suspend"] = bool(job_set["spec"].get("suspend"))
    template = spec["template"]
    pod_meta = template.setdefault("metadata", {})
    pod_meta["labels"] = {**(pod_meta.get("labels") or {}), **labels}
    pod_meta["annotations"] = {**(pod_meta.get("annotations") or {}), **labels}
    template["spec"].setdefault("restartPolicy", "OnFailure")
    template["spec"].setdefault("subdomain", name)
    job_name = f"{name}-{group['name']}-{index}"
    all_labels = {**(meta.get("labels") or {}), **labels}
    made = _owned(observed, JOBS, job_name, all_labels, spec)
    made["metadata"]["annotations"] = {**(meta.get("annotations") or {}), **labels}
    return made


def _owned(
    observed: ObservedJob, resource: Resource, name: str, labels: Mapping[str, str], spec: Manifest
) -> Manifest:
    meta = {"name": name, "labels": dict(labels)}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
    return owned_by(observed, obj)


def _counts(spec: Manifest, jobs: dict[str, Manifest]) -> list[Manifest]:
    found = []
    for group in spec["replicatedJobs"]:
        members = [job for job in jobs.values() if job["metadata"]["labels"].get(GROUP) == group["name"]]
        counts: Manifest = {"name": group["name"], **dict.fromkeys(_COUNTS, 0)}
        for job in members:
            if _is(job, "Complete"):
                counts["succeeded"] += 1
            elif _is(job, "Failed"):
                counts["failed"] += 1
            elif job["spec"].get("suspend"):
                counts["suspended"] += 1
            else:
                counts["active"] += bool((job.get("status") or {}).get("active"))
                counts["ready"] += _is_ready(job)
        found.append(counts)
    return found


def _attempt(job: Manifest) -> int:
    return int((job["metadata"].get("labels") or {}).get(ATTEMPT) or 0)


def _is(job: Manifest, condition: str) -> bool:
    return is_true((job.get("status") or {}).get("conditions") or [], condition)


def _is_over(job: Manifest) -> bool:
    return _is(job, "Complete") or _is(job, "Failed")


def _is_ready(job: Manifest) -> bool:
    status = job.get("status") or {}
    ready = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
    return ready >= int(job["spec"].get("parallelism") or 1)
