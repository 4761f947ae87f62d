"""Controller of Kubeflow's MPIJobs of all versions: order of launcher and workers, and the hostfile. Pure.

The launcher is a pod of the job, and its end is the job's. A real launcher reaches the workers by SSH or
kubectl; here the node agent's `ssh` and `kubexec` do, so there is no Secret with keys and no Role.
Source: training-operator v1.9.0, mpi-operator v0.8.0 and v0.2.3, `mpi_job_controller.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from k8s.kinds import MPIKind, MPIRun, PodMPIKind, Replica
from k8s.kinds.kubeflow.kubeflow_job import run_policy
from k8s.models.resources import CONFIG_MAPS, SERVICES, Resource
from k8s.sandbox.controller_runtime import ENDED, PROCESSES, Manifest
from k8s.sandbox.controllers.kubeflow import KubeflowJob, rules_of
from k8s.sandbox.controllers.reconcile import (
    GANG,
    ObservedJob,
    Plan,
    is_ready,
    is_true,
    owned_by,
    phase_of,
)
from k8s.sandbox.controllers.replicas import Rules

OWNED = (CONFIG_MAPS, SERVICES)
_LAUNCHER_RETRIES = 6


def decide(observed: ObservedJob) -> Plan:
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
