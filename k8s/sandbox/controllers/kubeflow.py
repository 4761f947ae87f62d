"""Controller of Kubeflow's PyTorchJob and of all versions of MPIJob. Pure.

The launcher of an MPIJob is a pod of the job, and its end is the job's. A real launcher reaches the workers
by SSH or kubectl; here the node agent's `ssh` and `kubexec` do, so there is no Secret with keys and no Role.
Source: training-operator v1.9.0, `pkg/controller.v1/common/job.go` and `pkg/util/status.go`; mpi-operator
v0.8.0 and v0.2.3, `mpi_job_controller.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy

from k8s.kinds import MPIKind, MPIRun, PodMPIKind, Replica
from k8s.kinds.kubeflow.kubeflow_job import run_policy
from k8s.models.resources import CONFIG_MAPS, SERVICES, Resource
from k8s.sandbox.controller_runtime import ENDED, PROCESSES, Manifest, now_text
from k8s.sandbox.controllers.reconcile import (
    GANG,
    ObservedJob,
    Plan,
    ends_of,
    is_ready,
    is_true,
    owned_by,
    phase_of,
    set_condition,
)
from k8s.sandbox.controllers.replicas import JobReplicas, Rules

# Exit codes from here on are retryable under the policy ExitCode.
_LOWEST_RETRYABLE = 128
_COUNTS = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
_LIMITS = {
    "BackoffLimitExceeded": "has failed because it has reached the specified backoff limit",
    "DeadlineExceeded": "has failed because it was active longer than specified deadline",
}
OWNED = (CONFIG_MAPS, SERVICES)
_LAUNCHER_RETRIES = 6


def decide(observed: ObservedJob) -> Plan:
    """Return the plan for a PyTorchJob."""
    job = KubeflowJob(observed, observed.kind.replicas(observed.job), rules_of(observed))
    job.decide()
    for pod in job.plan.create:
        service = _service(job.replicas.wanted[pod["metadata"]["name"]])
        job.plan.objects.append((SERVICES, owned_by(observed, service)))
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
        self.plan = Plan(deepcopy(observed.job.get("status") or {}))
        self.conditions: list[Manifest] = list(self.plan.status.get("conditions") or ())
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


def _service(replica: Replica) -> Manifest:
    # Gives the pod its name on a real cluster.
    port = dict(replica.env).get("MASTER_PORT", "")
    spec: Manifest = {"clusterIP": "None", "selector": dict(replica.labels)}
    if port.isdecimal():
        spec["ports"] = [{"name": "master", "port": int(port)}]
    meta = {"name": replica.name, "labels": dict(replica.labels)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def decide_mpi(observed: ObservedJob) -> Plan:
    """Return the plan for an MPIJob of any version."""
    kind = observed.kind
    if isinstance(kind, MPIKind):
        return _decide_run(observed, kind.run_of(observed.job))
    assert isinstance(kind, PodMPIKind)
    replicas = kind.run_replicas(observed.job)
    job = KubeflowJob(observed, replicas, rules_of(observed))
    job.decide()
    workers = {each.name for each in replicas if each.role == "worker"}
    running = {name for name, pod in job.replicas.pods.items() if phase_of(pod) == "Running"}
    config = kind.config_of(observed.job, sorted(workers & running))
    _create_objects(observed, job, [(CONFIG_MAPS, config)])
    _set_processes(job.plan, observed.job["spec"].get("slotsPerWorker") or 1)
    return job.plan


def _decide_run(observed: ObservedJob, run: MPIRun) -> Plan:
    job = KubeflowJob(observed, list(_replicas_of(run)), _rules_of(observed, run))
    status = job.plan.status
    if run.problem:
        job.set_condition("Created", f"is created, but invalid: {run.problem}", event=True)
        status["conditions"] = job.conditions
        return job.plan
    # v1alpha1 has one word for the launcher instead of conditions.
    if not run.has_conditions and status.get("launcherStatus") in ENDED:
        job.conditions = [{"type": status["launcherStatus"], "status": "True"}]
    job.decide()
    if not run.has_conditions:
        for condition, word in (("Running", "Active"), ("Succeeded", "Succeeded"), ("Failed", "Failed")):
            if is_true(job.conditions, condition):
                status["launcherStatus"] = word
        del status["conditions"]
    _create_objects(observed, job, [(CONFIG_MAPS, run.config), (SERVICES, run.service)])
    _set_processes(job.plan, run.slots)
    for pod in job.plan.create:
        is_launcher = pod["metadata"]["name"] == run.launcher["metadata"]["name"]
        if is_launcher and (run.waits_for_workers or observed.restarts):
            # The workers have their nodes already, and some may have ended.
            pod["metadata"]["annotations"][GANG] = "1"
        elif run.waits_for_workers:
            pod["metadata"]["annotations"][GANG] = str(len(run.workers))
    return job.plan


def _replicas_of(run: MPIRun) -> Iterable[Replica]:
    template = run.launcher["spec"]["template"]
    launcher = {**template, "metadata": {**template["metadata"], "name": run.launcher["metadata"]["name"]}}
    for number, pod in enumerate((launcher, *run.workers)):
        yield Replica(
            name=pod["metadata"]["name"],
            role="worker" if number else "launcher",
            index=max(0, number - 1),
            is_chief=number == 0,
            ranks=(),
            ranks_proof="none",
            template=pod,
            restart_policy=pod["spec"]["restartPolicy"],
        )


def _rules_of(observed: ObservedJob, run: MPIRun) -> Rules:
    limit = run_policy(observed.job).get("backoffLimit")
    ready = sum(is_ready(pod) for pod in observed.pods)
    waits = run.waits_for_workers and ready < len(run.workers)

    def is_retryable(replica: Replica, pod: Manifest) -> bool:
        # The launcher is retried up to the backoff limit whatever its restart policy, as in a Job.
        return phase_of(pod) == "Failed" if replica.is_chief else run.replaces_workers

    return Rules(
        is_retryable,
        backoff_limit=_LAUNCHER_RETRIES if limit is None else limit,
        deadline_s=run_policy(observed.job).get("activeDeadlineSeconds"),
        clean_policy=run.clean_policy,
        waiting=(run.launcher["metadata"]["name"],) if waits else (),
        kept_role="launcher",
        has_deciding_chief=True,
    )


def _create_objects(
    observed: ObservedJob, job: KubeflowJob, objects: Iterable[tuple[Resource, Manifest | None]]
) -> None:
    if job.is_finished or is_true(job.conditions, "Suspended"):
        return
    for resource, obj in objects:
        if obj is None:
            continue
        name = obj["metadata"]["name"]
        existing: Mapping[str, Manifest] = {
            each["metadata"]["name"]: each for each in observed.children.get(resource, ())
        }
        if name not in existing:
            job.plan.objects.append((resource, owned_by(observed, obj)))
        elif resource is CONFIG_MAPS and existing[name].get("data") != obj["data"]:
            job.plan.patches.append((resource, name, {"data": obj["data"]}))


def _set_processes(plan: Plan, slots: int) -> None:
    for pod in plan.create:
        pod["metadata"]["annotations"][PROCESSES] = str(max(1, int(slots)))
