"""What Kubeflow's training operator would do for one job, from its object and its pods. Pure.

Written after training-operator v1.9: `pkg/controller.v1/common/{job,pod}.go`,
`pytorch/pytorchjob_controller.go`, `pkg/util/status.go`, `pkg/core`.
It knows no kind: pods, labels and variables are what `kind.replicas` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from k8s.kinds import JobKind, Replica
from k8s.sandbox.controller_runtime import Manifest, now_text
from k8s.sandbox.controllers.reconcile import (
    GANG,
    RESTARTS,
    Plan,
    ends_of,
    is_true,
    owner_reference,
    phase_of,
    restarts_of,
    set_condition,
)

_LOWEST_RETRYABLE = 128
"""Exit codes from here on are worth another try under the policy ExitCode."""


def decide(
    kind: JobKind,
    job: Manifest,
    pods: Sequence[Manifest],
    restarts: int,
    owners: Mapping[str, str],
    replicas: Sequence[Replica] | None = None,
) -> Plan:
    """Return what is to be done for a job.

    Args:
        kind: How to read it.
        job: The object.
        pods: The pods that it controls.
        restarts: How many pods were replaced so far.
        owners: Pod names in its namespace, and the uid of what controls each.
        replicas: The pods it shall have; else those that `kind` reads in it.
    """
    status = deepcopy(job.get("status") or {})
    plan = Plan(status)
    decision = _Decision(kind, job, pods, plan, kind.replicas(job) if replicas is None else replicas)
    decision.say("Created", "is created.")
    policy = _run_policy(job)
    if decision.is_finished:
        _clean_up(decision, policy)
    elif policy.get("suspend"):
        _suspend(decision)
    else:
        _run(decision, policy, restarts, owners)
    status["conditions"] = decision.conditions
    if status.get("replicaStatuses") is None:
        status["replicaStatuses"] = {}
    return plan


class _Decision:
    """A job under consideration: its parts at hand, its conditions as they become."""

    def __init__(
        self,
        kind: JobKind,
        job: Manifest,
        pods: Sequence[Manifest],
        plan: Plan,
        replicas: Sequence[Replica],
    ) -> None:
        self.kind = kind
        self.job = job
        self.name = str(job["metadata"]["name"])
        self.uid = str(job["metadata"]["uid"])
        self.pods = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        self.leaving = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        self.plan = plan
        self.replicas = replicas
        self.conditions: list[Manifest] = list(plan.status.get("conditions") or ())

    @property
    def is_finished(self) -> bool:
        return is_true(self.conditions, "Succeeded") or is_true(self.conditions, "Failed")

    def say(
        self, condition: str, words: str, *, value: bool = True, reason: str = "", event: bool | None = None
    ) -> None:
        """Set a condition by the operator's rules; with `event`, also tell it (True: as a warning)."""
        if is_true(self.conditions, "Failed"):
            return
        title = self.kind.resource.kind
        reason = f"{title}{reason or condition}"
        message = f"{title} {self.name} {words}"
        before = self.conditions
        after = set_condition(before, condition, value, reason, message)
        if after is before:
            return
        rival = {"Running": "Restarting", "Restarting": "Running"}.get(condition)
        if value:
            after = [each for each in after if each["type"] != rival]
        if condition in ("Succeeded", "Failed"):
            after = [
                {**each, "status": "False", "lastTransitionTime": now_text()}
                if each["type"] == "Running" and each["status"] == "True"
                else each
                for each in after
            ]
        self.conditions = after
        if event is not None:
            self.plan.events.append((reason, message, event))

    def fail(self, words: str) -> None:
        """Give the job up, with the operator's sentence."""
        self.plan.status.setdefault("completionTime", now_text())
        self.say("Failed", words, event=False)


def _run(decision: _Decision, policy: Manifest, restarts: int, owners: Mapping[str, str]) -> None:
    plan, status = decision.plan, decision.plan.status
    if is_true(decision.conditions, "Suspended"):
        status["startTime"] = now_text()
        decision.say("Suspended", "is resumed.", value=False, reason="Resumed", event=False)
    status.setdefault("startTime", now_text())
    by_name = {pod["metadata"]["name"]: pod for pod in decision.pods}
    failed = [pod for pod in decision.pods if phase_of(pod) == "Failed"]
    limit = policy.get("backoffLimit")
    if limit is not None and (
        (failed and restarts >= limit) or _past_restarts(decision.replicas, by_name, limit)
    ):
        _give_up(decision, policy, "has failed because it has reached the specified backoff limit")
        return
    if plan.has_expired(policy.get("activeDeadlineSeconds"), status["startTime"]):
        _give_up(decision, policy, "has failed because it was active longer than specified deadline")
        return
    wanted = {replica.name: replica for replica in decision.replicas}
    plan.delete += [pod for name, pod in by_name.items() if name not in wanted]
    leaving = {pod["metadata"]["name"] for pod in decision.leaving}
    for name, replica in wanted.items():
        if name in by_name:
            if _is_retryable(replica, by_name[name]):
                plan.delete.append(by_name[name])
                plan.replaced.append(str(by_name[name]["metadata"]["uid"]))
        elif name not in leaving and owners.get(name, decision.uid) == decision.uid:
            plan.services.append(_service(decision, replica))
            plan.create.append(_pod(decision, replica, restarts))
    _count(decision, by_name)
    _judge(decision, by_name)
    if decision.is_finished:
        plan.create.clear()
        plan.services.clear()
        _clean_up(decision, policy)


def _count(decision: _Decision, by_name: Mapping[str, Manifest]) -> None:
    """Write how many pods of each role run, have worked, have failed."""
    found: dict[str, Manifest] = {}
    for replica in decision.replicas:
        role = replica.role.capitalize()
        labels = {
            key: value for key, value in replica.labels if not key.endswith(("replica-index", "job-role"))
        }
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        counts = found.setdefault(role, {"selector": selector})
        phase = phase_of(by_name[replica.name]) if replica.name in by_name else ""
        word = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}.get(phase)
        if word:
            counts[word] = counts.get(word, 0) + 1
    decision.plan.status["replicaStatuses"] = found


def _judge(decision: _Decision, by_name: Mapping[str, Manifest]) -> None:
    """Say how the job is, role by role, the chief's first: its success is the job's."""
    chief = next((replica.role for replica in decision.replicas if replica.is_chief), "")
    roles = dict.fromkeys(replica.role for replica in decision.replicas)
    for role in sorted(roles, key=lambda each: each != chief):
        members = [replica for replica in decision.replicas if replica.role == role]
        phases = [phase_of(by_name[each.name]) if each.name in by_name else "" for each in members]
        if role == chief:
            if phases.count("Succeeded") == len(phases):
                decision.plan.status.setdefault("completionTime", now_text())
                decision.say("Succeeded", "is successfully completed.", event=False)
                return
            if "Running" in phases:
                decision.say("Running", "is running.")
        failed = [member for member, phase in zip(members, phases, strict=True) if phase == "Failed"]
        if failed:
            words = f"because {len(failed)} {role.capitalize()} replica(s) failed."
            if all(_is_retryable(member, by_name[member.name]) for member in failed):
                decision.say("Restarting", f"is restarting {words}", event=True)
            else:
                decision.fail(f"is failed {words}")


def _give_up(decision: _Decision, policy: Manifest, words: str) -> None:
    decision.fail(words)
    _count(decision, {pod["metadata"]["name"]: pod for pod in decision.pods})
    _clean_up(decision, policy)


def _clean_up(decision: _Decision, policy: Manifest) -> None:
    """Remove what a finished job leaves, by its policy: None keeps all, Running what has ended."""
    plan, status = decision.plan, decision.plan.status
    which = policy.get("cleanPodPolicy") or "None"
    plan.delete = [
        pod
        for pod in decision.pods
        if which == "All" or (which == "Running" and phase_of(pod) in ("Running", "Pending"))
    ]
    if is_true(decision.conditions, "Succeeded"):
        for counts in (status.get("replicaStatuses") or {}).values():
            if active := counts.pop("active", 0):
                counts["succeeded"] = counts.get("succeeded", 0) + active
    if ended := status.get("completionTime"):
        plan.delete_job = plan.has_expired(policy.get("ttlSecondsAfterFinished"), ended)


def _suspend(decision: _Decision) -> None:
    decision.plan.delete = list(decision.pods)
    for counts in (decision.plan.status.get("replicaStatuses") or {}).values():
        counts.pop("active", None)
    if is_true(decision.conditions, "Running"):
        decision.say("Running", "is suspended.", value=False, reason="Suspended")
    decision.say("Suspended", "is suspended.", event=False)


def _past_restarts(replicas: Sequence[Replica], by_name: Mapping[str, Manifest], limit: int) -> bool:
    """Tell whether containers were restarted in place too often."""
    restarted = [each.name for each in replicas if each.restart_policy != "Never" and each.name in by_name]
    return restarts_of(by_name[name] for name in restarted) >= max(1, limit)


def _is_retryable(replica: Replica, pod: Manifest) -> bool:
    """Tell whether a failed pod shall be replaced."""
    if phase_of(pod) != "Failed" or replica.restart_policy == "Never":
        return False
    if replica.restart_policy != "ExitCode":
        return True
    return any(int(each.get("exitCode") or 0) >= _LOWEST_RETRYABLE for each in ends_of(pod))


def _pod(decision: _Decision, replica: Replica, restarts: int) -> Manifest:
    meta: Mapping[str, Any] = replica.template.get("metadata") or {}
    spec = dict(replica.template.get("spec") or {})
    spec["restartPolicy"] = "Never" if replica.restart_policy == "ExitCode" else replica.restart_policy
    added = [{"name": name, "value": value} for name, value in replica.env]
    spec["containers"] = [
        {**container, "env": [*(container.get("env") or ()), *added]}
        for container in spec.get("containers") or ()
    ]
    pod = _owned(decision, replica, "Pod", spec)
    pod["metadata"]["labels"] = {**(meta.get("labels") or {}), **dict(replica.labels)}
    pod["metadata"]["annotations"] = {
        **(meta.get("annotations") or {}),
        GANG: str(len(decision.replicas)),
        RESTARTS: str(restarts),
    }
    return pod


def _service(decision: _Decision, replica: Replica) -> Manifest:
    """Return the headless service that gives a pod its name."""
    port = dict(replica.env).get("MASTER_PORT", "")
    spec: Manifest = {"clusterIP": "None", "selector": dict(replica.labels)}
    if port.isdecimal():
        spec["ports"] = [{"name": "master", "port": int(port)}]
    return _owned(decision, replica, "Service", spec)


def _owned(decision: _Decision, replica: Replica, kind: str, spec: Manifest) -> Manifest:
    meta = {
        "name": replica.name,
        "namespace": decision.job["metadata"]["namespace"],
        "labels": dict(replica.labels),
        "ownerReferences": [owner_reference(decision.kind.resource, decision.job)],
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}


def _run_policy(job: Manifest) -> Manifest:
    """Return the run policy; older kinds have its fields in `spec` itself."""
    spec = job.get("spec") or {}
    return {**spec, **(spec.get("runPolicy") or {})}
