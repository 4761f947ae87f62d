"""Controller of Kubeflow's PyTorchJob and of all versions of MPIJob. Pure.

The launcher of an MPIJob is a pod of the job, and its end is the job's. A real launcher reaches the workers
by SSH or kubectl; here the node agent's `ssh` and `kubexec` do, so there is no Secret with keys and no Role.
Source: training-operator v1.9.0, `pkg/controller.v1/common/job.go` and `pkg/util/status.go`; mpi-operator
v0.8.0 and v0.2.3, `mpi_job_controller.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from k8s.kinds import MPIKind, MPIRun, Replica
from k8s.kinds.kubeflow.kubeflow_job import run_policy
from k8s.models.resources import CONFIG_MAPS
from k8s.sandbox.controller_runtime import ENDED, PROCESSES, Manifest, now_text
from k8s.sandbox.controllers.reconcile import (
    GANG,
    JobReplicas,
    ObservedJob,
    Plan,
    Rules,
    ends_of,
    is_ready,
    is_true,
    owned_by,
    phase_of,
    set_condition,
)

# Exit codes from here on are retryable under the policy ExitCode.
_LOWEST_RETRYABLE = 128
_COUNTS = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
_LIMITS = {
    "BackoffLimitExceeded": "has failed because it has reached the specified backoff limit",
    "DeadlineExceeded": "has failed because it was active longer than specified deadline",
}
_LAUNCHER_RETRIES = 6


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a PyTorchJob."""
    job = KubeflowJob(observed, observed.kind.replicas(observed.job), rules_of(observed))
    job.decide()
    return job.plan


def rules_of(observed: ObservedJob) -> Rules:
    """Return the rules of a job, by its run policy."""
    policy = run_policy(observed.job)
    return Rules(
        is_retryable,
        backoff_limit=policy.get("backoffLimit"),
        deadline_s=policy.get("activeDeadlineSeconds"),
        clean_policy=policy.get("cleanPodPolicy") or "None",
    )


def is_retryable(replica: Replica, pod: Manifest) -> bool:
    """Return True if the replica's restart policy lets a pod that has ended be replaced."""
    if phase_of(pod) != "Failed" or replica.restart_policy == "Never":
        return False
    if replica.restart_policy != "ExitCode":
        return True
    return any(int(each.get("exitCode") or 0) >= _LOWEST_RETRYABLE for each in ends_of(pod))


class KubeflowJob:
    """Job with Kubeflow's conditions and run policy."""

    def __init__(self, observed: ObservedJob, replicas: Sequence[Replica], rules: Rules) -> None:
        self.plan = Plan.of(observed.job)
        self.conditions: list[Manifest] = self.plan.status["conditions"]
        self.replicas = JobReplicas(observed, replicas, rules, self.plan)
        self._policy = run_policy(observed.job)
        self._title = observed.kind.resource.kind
        self._name = str(observed.job["metadata"]["name"])

    @property
    def is_finished(self) -> bool:
        """Return True once the job has succeeded or failed."""
        return any(is_true(self.conditions, end) for end in ENDED)

    def decide(self) -> None:
        """Plan the pods and write the status."""
        status = self.plan.status
        self.set_condition("Created", "is created.")
        if not self.is_finished:
            if self._policy.get("suspend"):
                self.replicas.delete_all()
                if is_true(self.conditions, "Running"):
                    self.set_condition("Running", "is suspended.", value=False, reason="Suspended")
                self.set_condition("Suspended", "is suspended.", event=False)
            else:
                self._reconcile()
            self._count()
        if self.is_finished:
            self.replicas.clean_up()
            if ended := status.get("completionTime"):
                ttl_s = self._policy.get("ttlSecondsAfterFinished")
                self.plan.delete_job = self.plan.has_expired(ttl_s, ended)
        status["conditions"] = self.conditions

    def set_condition(
        self, condition: str, message: str, *, value: bool = True, reason: str = "", event: bool | None = None
    ) -> None:
        """Set a condition; `event` is None for no event, True for a warning."""
        reason = f"{self._title}{reason or condition}"
        message = f"{self._title} {self._name} {message}"
        after = set_condition(self.conditions, condition, value, reason, message)
        if after is self.conditions:
            return
        rival = {"Running": "Restarting", "Restarting": "Running"}.get(condition)
        self.conditions = [each for each in after if not value or each["type"] != rival]
        if event is not None:
            self.plan.events.append((reason, message, event))

    def _reconcile(self) -> None:
        status = self.plan.status
        if is_true(self.conditions, "Suspended"):
            status["startTime"] = now_text()
            self.set_condition("Suspended", "is resumed.", value=False, reason="Resumed", event=False)
        end = self.replicas.reconcile(status.setdefault("startTime", now_text()))
        if end is not None:
            status.setdefault("completionTime", now_text())
            if is_true(self.conditions, "Running"):
                self.set_condition("Running", "has ended.", value=False, reason=end.reason)
            if end.reason == "Succeeded":
                self.set_condition("Succeeded", "is successfully completed.", event=False)
            else:
                message = _LIMITS.get(end.reason) or f"is failed {self._failures(end.pods)}"
                self.set_condition("Failed", message, event=False)
        elif retried := [each for each in self.plan.delete if each["metadata"]["uid"] in self.plan.replaced]:
            self.set_condition("Restarting", f"is restarting {self._failures(retried)}", event=True)
        elif "Running" in self.replicas.phases(self.replicas.chief):
            self.set_condition("Running", "is running.")

    def _failures(self, pods: Sequence[Manifest]) -> str:
        role = self.replicas.wanted[pods[0]["metadata"]["name"]].role.capitalize()
        return f"because {len(pods)} {role} replica(s) failed."

    def _count(self) -> None:
        roles = dict.fromkeys(each.role for each in self.replicas.wanted.values())
        phases = {role: self.replicas.phases(role) for role in roles}
        self.plan.status["replicaStatuses"] = {
            role.capitalize(): {
                count: found.count(phase) for phase, count in _COUNTS.items() if phase in found
            }
            for role, found in phases.items()
        }


def decide_mpi(observed: ObservedJob) -> Plan:
    """Return the plan for an MPIJob of any version."""
    assert isinstance(observed.kind, MPIKind)
    run = observed.kind.run_of(observed.job)
    job = KubeflowJob(observed, run.replicas, _rules_of_mpi(observed, run))
    plan, status = job.plan, job.plan.status
    if run.problem:
        job.set_condition("Created", f"is created, but invalid: {run.problem}", event=True)
        status["conditions"] = job.conditions
        return plan
    # v1alpha1 has one word for the launcher instead of conditions.
    if not run.has_conditions and status.get("launcherStatus") in ENDED:
        job.conditions = [{"type": status["launcherStatus"], "status": "True"}]
    job.decide()
    is_idle = job.is_finished or is_true(job.conditions, "Suspended")
    if not is_idle and not observed.children.get(CONFIG_MAPS):
        plan.objects.append((CONFIG_MAPS, owned_by(observed, run.config)))
    if not run.has_conditions:
        for condition, word in (("Running", "Active"), ("Succeeded", "Succeeded"), ("Failed", "Failed")):
            if is_true(job.conditions, condition):
                status["launcherStatus"] = word
        del status["conditions"]
    launcher = run.replicas[0].name
    for pod in plan.create:
        annotations = pod["metadata"]["annotations"]
        annotations[PROCESSES] = str(max(1, run.slots))
        if pod["metadata"]["name"] == launcher and (run.waits_for_workers or observed.restarts):
            # The workers have their nodes already, and some may have ended.
            annotations[GANG] = "1"
        elif run.waits_for_workers:
            annotations[GANG] = str(len(run.replicas) - 1)
    return plan


def _rules_of_mpi(observed: ObservedJob, run: MPIRun) -> Rules:
    rules = replace(rules_of(observed), clean_policy=run.clean_policy)
    if not run.has_launcher_job:
        return rules
    ready = sum(is_ready(pod) for pod in observed.pods)
    waits = run.waits_for_workers and ready < len(run.replicas) - 1

    def is_retried(replica: Replica, pod: Manifest) -> bool:
        # The launcher is retried up to the backoff limit whatever its restart policy, as in a Job.
        return phase_of(pod) == "Failed" if replica.is_chief else run.replaces_workers

    return replace(
        rules,
        is_retryable=is_retried,
        backoff_limit=_LAUNCHER_RETRIES if rules.backoff_limit is None else rules.backoff_limit,
        waiting=(run.replicas[0].name,) if waits else (),
        kept_role="launcher",
        has_deciding_chief=True,
    )
