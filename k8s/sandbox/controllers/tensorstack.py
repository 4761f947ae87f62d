"""What TensorStack's controller would do for one job with `replicaSpecs`, from its object and its pods. Pure.

Written after the T9k user manuals: run modes, run policy, torchrun and the status of a job. It restarts pods
itself, so theirs is `Never`. The first role is the master.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from k8s.kinds import Replica
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, SERVICES
from k8s.sandbox.controller_runtime import Manifest
from k8s.sandbox.controllers import tensorboard
from k8s.sandbox.controllers.reconcile import (
    ObservedJob,
    Plan,
    ends_of,
    is_true,
    phase_of,
    set_condition,
)
from k8s.sandbox.controllers.tensorstack_pods import JobPods, launch_of

OWNED = (DEPLOYMENTS, SERVICES, CONFIG_MAPS)
"""What it makes besides pods."""
_RETRYABLE = frozenset({130, 137, 138, 143})
"""Exit codes after which the policy ExitCode tries again: ended by a signal from outside."""
_RETRIES = 3
"""The backoff limit of a job that names none."""
_ENDS = ("Succeeded", "Failed")
_PHASES = ("creating", "pending", "running", "succeeded", "failed", "unknown", "deleted")


def decide(observed: ObservedJob) -> Plan:
    """Return what is to be done for a job."""
    status = deepcopy(observed.job.get("status") or {})
    plan = Plan(status)
    decision = _T9kDecision(observed, plan)
    decision.say("Initialized", True, "The job has been initialized successfully.")
    if not decision.is_over:
        if decision.job_pods.is_on("pause"):
            _pause(decision)
        else:
            _run(decision)
    if decision.is_over:
        _clean_up(decision)
    status["conditions"] = decision.conditions
    _write_tasks(decision)
    _show_curves(observed, plan)
    return plan


def _show_curves(observed: ObservedJob, plan: Plan) -> None:
    """Have the job's TensorBoard be there, and no other than it asks for."""
    found = {resource: observed.children.get(resource, ()) for resource in (DEPLOYMENTS, SERVICES)}
    wanted = tensorboard.objects_for(observed.job, observed.kind.resource)
    if wanted:
        plan.status["tensorboard"] = tensorboard.status_of(found[DEPLOYMENTS], wanted[0][1])
        plan.objects += [(resource, obj) for resource, obj in wanted if not found[resource]]
    elif plan.status.pop("tensorboard", None):
        plan.removals = [(resource, obj) for resource, each in found.items() for obj in each]


class _T9kDecision:
    """A job under consideration: its parts at hand, its conditions as they become."""

    def __init__(self, observed: ObservedJob, plan: Plan) -> None:
        self.observed = observed
        self.job = observed.job
        self.spec: Manifest = observed.job.get("spec") or {}
        self.policy: Manifest = self.spec.get("runPolicy") or {}
        self.plan = plan
        self.name = str(self.job["metadata"]["name"])
        self.job_pods = JobPods(observed)
        self.replicas = self.job_pods.replicas
        self.master = next((each.role for each in self.replicas.values() if each.is_chief), "")
        self.leaving = {
            pod["metadata"]["name"] for pod in observed.pods if pod["metadata"].get("deletionTimestamp")
        }
        self.pods = {
            str(pod["metadata"]["name"]): pod
            for pod in observed.pods
            if not pod["metadata"].get("deletionTimestamp")
        }
        self.conditions: list[Manifest] = list(plan.status.get("conditions") or ())

    @property
    def is_over(self) -> bool:
        return self.plan.status.get("phase") in _ENDS

    def say(self, condition: str, value: bool, message: str, reason: str = "-") -> None:
        """Set a condition."""
        self.conditions = set_condition(self.conditions, condition, value, reason, message)

    def end(self, phase: str, condition: str, message: str, reason: str = "-") -> None:
        """Say that the job is over, and how."""
        self.plan.status["phase"] = phase
        self.say("Running", False, message, reason)
        self.say(condition, True, message, reason)
        self.plan.events.append((phase, message, phase == "Failed"))

    def phases_of(self, role: str) -> list[str]:
        """Return the phases of a role's pods; of those that are not there, none."""
        return [
            phase_of(self.pods[name]) if name in self.pods else ""
            for name, replica in self.replicas.items()
            if replica.role == role
        ]


def _create_config(decision: _T9kDecision) -> None:
    """Ask for what the pods read, unless it is there."""
    there = {each["metadata"]["name"] for each in decision.observed.children.get(CONFIG_MAPS, ())}
    decision.plan.objects += [
        (CONFIG_MAPS, each) for each in decision.job_pods.configs() if each["metadata"]["name"] not in there
    ]


def _run(decision: _T9kDecision) -> None:
    """Say how a job is that shall run, and what its pods shall be."""
    plan, status = decision.plan, decision.plan.status
    if status.get("phase") == "Paused":
        status["phase"] = "Resuming"
        decision.say("Paused", False, "The job has been resumed.", "Resumed")
        plan.events.append(("Resumed", f"{decision.name} is resumed", False))
    status.setdefault("phase", "Pending")
    if "Succeeded" in (phases := decision.phases_of(decision.master)) and set(phases) == {"Succeeded"}:
        decision.end("Succeeded", "Completed", "The job has been completed successfully.")
        return
    if plan.has_expired(decision.policy.get("activeDeadlineSeconds"), _started(decision.conditions)):
        words = "The job was active longer than specified deadline."
        decision.end("Failed", "Failed", words, "DeadlineExceeded")
        return
    _restart(decision)
    if decision.is_over:
        return
    gone = {str(pod["metadata"]["name"]) for pod in plan.delete}
    for name, pod in decision.pods.items():
        is_live = phase_of(pod) not in _ENDS
        if name not in decision.replicas or (is_live and launch_of(pod) != decision.job_pods.launch):
            plan.delete.append(pod)
            gone.add(name)
    for name in decision.replicas:
        taken = decision.observed.owners.get(name, decision.job["metadata"]["uid"])
        is_free = name not in decision.pods and name not in decision.leaving
        if is_free and taken == decision.job["metadata"]["uid"]:
            plan.create.append(decision.job_pods.pod(name))
    _create_config(decision)
    _judge(decision, gone)


def _restart(decision: _T9kDecision) -> None:
    """Replace what has ended and shall run on; or give the job up."""
    plan, status = decision.plan, decision.plan.status
    known = {
        str(each.get("uid"))
        for task in status.get("tasks") or ()
        for each in task.get("replicas") or ()
        if each.get("phase") == "Deleted"
    }
    counted = int(status.get("backoffCount") or 0)
    limit = decision.policy.get("backoffLimit")
    limit = _RETRIES if limit is None else int(limit)
    for name, replica in decision.replicas.items():
        pod = decision.pods.get(name)
        if pod is None or phase_of(pod) not in _ENDS:
            continue
        if not _is_to_restart(replica, pod, decision.master):
            if phase_of(pod) == "Failed" and replica.role == decision.master:
                decision.end("Failed", "Failed", f"Pod {name} failed: {_why(pod)}.", "ReplicaFailed")
                return
            continue
        uid = str(pod["metadata"]["uid"])
        is_new = uid not in known
        if is_new and counted >= limit:
            words = f"The job has reached the specified backoff limit; pod {name} failed: {_why(pod)}."
            decision.end("Failed", "Failed", words, "BackoffLimitExceeded")
            return
        counted += is_new
        plan.delete.append(pod)
        plan.replaced.append(uid)
        if is_new:
            plan.events.append(("Restarting", f"Pod {name} is replaced: {_why(pod)}", True))
    status["backoffCount"] = counted


def _is_to_restart(replica: Replica, pod: Manifest, master: str) -> bool:
    """Tell whether a pod that has ended shall be replaced; a master's success ends its job instead."""
    if phase_of(pod) == "Succeeded":
        return replica.restart_policy == "Always" and replica.role != master
    if replica.restart_policy == "ExitCode":
        return any(int(each.get("exitCode") or 0) in _RETRYABLE for each in ends_of(pod))
    return replica.restart_policy in ("Always", "OnFailure")


def _judge(decision: _T9kDecision, gone: set[str]) -> None:
    """Say whether a job runs, by its master's pods, and whether a pod of it has failed."""
    status = decision.plan.status
    masters = [name for name, replica in decision.replicas.items() if replica.role == decision.master]
    runs = any(
        name not in gone and name in decision.pods and phase_of(decision.pods[name]) == "Running"
        for name in masters
    )
    if runs:
        status["phase"] = "Running"
        decision.say("Running", True, "The job is running.")
    elif status["phase"] == "Running":
        status["phase"] = "Pending"
        decision.say("Running", False, "No pod of the master is running.", "NotRunning")
    failed = [name for name, pod in decision.pods.items() if phase_of(pod) == "Failed"]
    if failed:
        words = f"Failed pods: {', '.join(failed)}."
        decision.say("ReplicaFailure", True, words, "ReplicaFailed")
    elif is_true(decision.conditions, "ReplicaFailure") or runs:
        decision.say("ReplicaFailure", False, "No pod has failed.")


def _pause(decision: _T9kDecision) -> None:
    """End all pods of a job, and say so once they are gone."""
    plan, status = decision.plan, decision.plan.status
    plan.delete = list(decision.pods.values())
    if plan.delete or decision.leaving:
        status.setdefault("phase", "Pending")
    elif status.get("phase") != "Paused":
        status["phase"] = "Paused"
        decision.say("Running", False, "The job is paused.", "Paused")
        decision.say("Paused", True, "The job is paused.", "Paused")
        plan.events.append(("Paused", f"{decision.name} is paused", False))


def _clean_up(decision: _T9kDecision) -> None:
    """Delete what a finished job leaves, by its policy: None keeps all, Unfinished what has ended."""
    older = "Unfinished" if decision.policy.get("cleanUpWorkers") is True else "None"
    which = decision.policy.get("cleanUpPolicy") or older
    decision.plan.create.clear()
    decision.plan.delete = [
        pod
        for pod in decision.pods.values()
        if which == "All" or (which == "Unfinished" and phase_of(pod) not in _ENDS)
    ]


def _started(conditions: Sequence[Manifest]) -> str:
    """Return since when a job may run: since it was initialized, or last resumed."""
    since = {str(each["type"]): str(each["lastTransitionTime"]) for each in conditions}
    return max(since["Initialized"], since.get("Paused", ""))


def _why(pod: Manifest) -> str:
    codes = [f"exit code {each.get('exitCode')}" for each in ends_of(pod)]
    return str((pod.get("status") or {}).get("reason") or ", ".join(codes) or phase_of(pod))


def _write_tasks(decision: _T9kDecision) -> None:
    """Write how each role's pods are, and how many are so; what is being replaced counts as deleted."""
    status = decision.plan.status
    replaced = set(decision.plan.replaced)
    before = {str(task.get("type")): task for task in status.get("tasks") or ()}
    aggregate = dict.fromkeys(_PHASES, 0)
    tasks: dict[str, Manifest] = {
        role: {"type": role, "restartCount": 0, "replicas": []}
        for role in dict.fromkeys(each.role for each in decision.replicas.values())
    }
    for name, replica in decision.replicas.items():
        task = tasks[replica.role]
        old = {each.get("name"): each for each in before.get(replica.role, {}).get("replicas") or ()}
        entry = _entry(name, decision.pods.get(name), old.get(name) or {})
        if entry["uid"] in replaced:
            is_new = (old.get(name) or {}).get("phase") != "Deleted"
            entry["phase"] = "Deleted"
            task["restartCount"] += is_new
        task["replicas"].append(entry)
        aggregate[entry["phase"].lower()] += 1
    for role, task in tasks.items():
        task["restartCount"] += int(before.get(role, {}).get("restartCount") or 0)
    status["tasks"] = list(tasks.values())
    status["aggregate"] = aggregate
    status.setdefault("backoffCount", 0)


def _entry(name: str, pod: Manifest | None, old: Manifest) -> Manifest:
    """Return one pod's line in the status; of a pod that is gone, what is known of it."""
    if pod is None:
        phase = "Deleted" if old.get("uid") else "Pending"
        return {"name": name, "uid": "", **old, "phase": phase}
    found = pod.get("status") or {}
    phase = phase_of(pod)
    if phase == "Pending" and found.get("startTime"):
        phase = "Creating"
    containers = []
    for each in found.get("containerStatuses") or ():
        ((state, about),) = (each.get("state") or {"waiting": {}}).items()
        line = {"name": each.get("name"), "state": state.capitalize()}
        if state == "terminated":
            line["exitCode"] = about.get("exitCode", 0)
        containers.append(line)
    return {"name": name, "uid": str(pod["metadata"]["uid"]), "phase": phase, "containers": containers}
