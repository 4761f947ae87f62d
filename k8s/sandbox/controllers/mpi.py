"""What an mpi-operator would do for one job, from its object, its workers and its launcher's Job. Pure.

Written after kubeflow/mpi-operator v0.8.0 and v0.2.3, `mpi_job_controller.go`. It knows no kind: what
differs between them is what `kind.run_of` says. A real launcher reaches the workers by SSH or by
kubectl; here the node agent's `ssh` and `kubexec` do, so there is no Secret with keys and no Role.
`decide_by_pods` is for the training operator, which makes the launcher's pod itself: conditions, policies
and restarts are those of its other kinds. Source: v1.9.0, `pkg/controller.v1/mpi/mpijob_controller.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from k8s.kinds import MPIKind, MPIRun, PodMPIKind
from k8s.models.resources import CONFIG_MAPS, JOBS, SERVICES, Resource
from k8s.sandbox.controller_runtime import PROCESSES, Manifest, now_text
from k8s.sandbox.controllers import replicated
from k8s.sandbox.controllers.reconcile import (
    GANG,
    ObservedJob,
    Plan,
    is_true,
    owner_reference,
    phase_of,
    set_condition,
)

OWNED = (JOBS, CONFIG_MAPS, SERVICES)
"""What it makes besides workers."""
OWNED_BY_PODS = (CONFIG_MAPS,)
"""What the training operator makes besides pods."""


def decide(observed: ObservedJob) -> Plan:
    """Return what is to be done for a job.

    Raises:
        TypeError: Its kind is not one of MPI.
    """
    if not isinstance(observed.kind, MPIKind):
        raise TypeError(f"{observed.kind.title} is not for MPI")
    plan = Plan(deepcopy(observed.job.get("status") or {}))
    decision = _MPIDecision(observed, observed.kind.run_of(observed.job), plan)
    if decision.run.has_conditions:
        is_new = decision.say("Created", "is created.", event=True)
        if is_new and decision.run.problem:
            words = f"Found validation errors: {decision.run.problem}"
            plan.events.append(("ValidationError", words, True))
    if decision.is_finished:
        decision.clean_up()
    elif not decision.run.problem:
        _carry_out(decision)
    if decision.run.has_conditions:
        plan.status["conditions"] = decision.conditions
    return plan


class _MPIDecision:
    """A job under consideration: its parts at hand, its conditions as they become."""

    def __init__(self, observed: ObservedJob, run: MPIRun, plan: Plan) -> None:
        meta = observed.job["metadata"]
        self.observed = observed
        self.run = run
        self.plan = plan
        self.status = plan.status
        self.title = f"MPIJob {meta['namespace']}/{meta['name']}"
        self.conditions: list[Manifest] = list(plan.status.get("conditions") or ())
        self.launcher = self.child(JOBS, run.launcher)
        self.workers = {
            str(pod["metadata"]["name"]): pod
            for pod in observed.pods
            if not pod["metadata"].get("deletionTimestamp")
        }
        self.leaving = {
            str(pod["metadata"]["name"]) for pod in observed.pods if pod["metadata"].get("deletionTimestamp")
        }

    @property
    def is_finished(self) -> bool:
        """Tell whether the job's status says that it is over."""
        if self.run.has_conditions:
            return is_true(self.conditions, "Succeeded") or is_true(self.conditions, "Failed")
        return self.status.get("launcherStatus") in ("Succeeded", "Failed")

    def child(self, resource: Resource, asked: Manifest) -> Manifest | None:
        """Return what the job controls by the name of what it asks for, if it is there."""
        name, found = asked["metadata"]["name"], self.observed.children.get(resource, ())
        return next((each for each in found if each["metadata"]["name"] == name), None)

    def say(
        self, condition: str, words: str, *, value: bool = True, reason: str = "", event: bool = False
    ) -> bool:
        """Set a condition; tell whether it is new."""
        reason = reason or f"MPIJob{condition}"
        message = words if words[0].isupper() else f"{self.title} {words}"
        before = self.conditions
        after = set_condition(before, condition, value, reason, message)
        if after is before:
            return False
        if condition in ("Succeeded", "Failed"):
            now = now_text()
            after = [
                {**each, "status": "False", "lastUpdateTime": now, "lastTransitionTime": now}
                if each["type"] == "Running" and each["status"] == "True"
                else each
                for each in after
            ]
        self.conditions = after
        if event:
            self.plan.events.append((reason, message, condition == "Failed"))
        return True

    def count_ready(self) -> int:
        """Return how many workers are ready."""
        return sum(
            is_true((pod.get("status") or {}).get("conditions") or [], "Ready")
            for pod in self.workers.values()
        )

    def delete_workers(self) -> None:
        """Remove the workers; the policy Running keeps those that have ended."""
        keeps_ended = self.run.clean_policy == "Running"
        self.plan.delete = [
            pod for pod in self.workers.values() if not keeps_ended or phase_of(pod) in ("Running", "Pending")
        ]

    def clean_up(self) -> None:
        """Remove the workers that the clean-up policy does not keep."""
        if self.run.clean_policy == "None":
            return
        keeps_ended = self.run.clean_policy == "Running"
        self.plan.delete = [
            pod for pod in self.workers.values() if not keeps_ended or phase_of(pod) in ("Running", "Pending")
        ]
        if self.run.has_conditions:
            _counts(self.status, "Worker").pop("active", None)
        else:
            self.status.pop("workerReplicas", None)

    def owned(self, obj: Manifest) -> Manifest:
        """Return an object as the job's own."""
        meta = {
            **obj["metadata"],
            "namespace": self.observed.job["metadata"]["namespace"],
            "ownerReferences": [owner_reference(self.observed.kind.resource, self.observed.job)],
        }
        return {**obj, "metadata": meta}


def _carry_out(decision: _MPIDecision) -> None:
    run, status, launcher = decision.run, decision.status, decision.launcher
    if run.has_conditions and not run.is_suspended:
        status.setdefault("startTime", now_text())
    if not (_has_ended(launcher, "Complete") or _has_ended(launcher, "Failed")):
        _create_missing(decision)
    if launcher is not None and bool(launcher["spec"].get("suspend")) != run.is_suspended:
        change = {"spec": {"suspend": run.is_suspended}}
        decision.plan.patches.append((JOBS, str(launcher["metadata"]["name"]), change))
    if run.has_conditions:
        _write_conditions(decision)
    else:
        _write_word(decision)
    if run.is_suspended:
        decision.delete_workers()
    elif decision.is_finished:
        decision.clean_up()


def _create_missing(decision: _MPIDecision) -> None:
    run, plan = decision.run, decision.plan
    objects = [(CONFIG_MAPS, run.config), *([(SERVICES, run.service)] if run.service else ())]
    plan.objects += [
        (resource, decision.owned(obj)) for resource, obj in objects if decision.child(resource, obj) is None
    ]
    if not run.is_suspended:
        _create_workers(decision)
    if decision.launcher is None and (
        not run.waits_for_workers or run.is_suspended or decision.count_ready() >= len(run.workers)
    ):
        plan.objects.append((JOBS, decision.owned(run.launcher)))


def _create_workers(decision: _MPIDecision) -> None:
    run, plan = decision.run, decision.plan
    wanted = {str(pod["metadata"]["name"]): pod for pod in run.workers}
    plan.delete += [pod for name, pod in decision.workers.items() if name not in wanted]
    uid = str(decision.observed.job["metadata"]["uid"])
    for name, pod in wanted.items():
        present = decision.workers.get(name)
        if present is not None:
            if run.replaces_workers and phase_of(present) in ("Failed", "Succeeded"):
                plan.delete.append(present)
        elif name not in decision.leaving and decision.observed.owners.get(name, uid) == uid:
            made = decision.owned(pod)
            notes = {GANG: str(len(wanted)), PROCESSES: str(max(1, run.slots))}
            made["metadata"]["annotations"] = {**(made["metadata"].get("annotations") or {}), **notes}
            plan.create.append(made)


def _write_conditions(decision: _MPIDecision) -> None:
    """Say how the job is, as Kubeflow's operators do."""
    run, status, launcher = decision.run, decision.status, decision.launcher
    if run.is_suspended:
        decision.say("Suspended", "MPIJob suspended", event=True)
    elif any(each["type"] == "Suspended" for each in decision.conditions) and decision.say(
        "Suspended", "MPIJob resumed", value=False, reason="MPIJobResumed", event=True
    ):
        status["startTime"] = now_text()
    running_launchers = 0
    if launcher is not None:
        running_launchers = _write_launcher(decision, launcher)
    words = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
    phases = [phase_of(pod) for pod in decision.workers.values()]
    workers = _counts(status, "Worker")
    workers.clear()
    workers |= {word: phases.count(phase) for phase, word in words.items() if phase in phases}
    if run.is_suspended:
        workers.pop("active", None)
        decision.say("Running", "is suspended.", value=False, reason="MPIJobSuspended")
    elif (
        running_launchers
        and phases.count("Running") == len(decision.run.workers)
        and not decision.is_finished
    ):
        decision.say("Running", "is running.", event=True)


def _write_launcher(decision: _MPIDecision, launcher: Manifest) -> int:
    """Say what the launcher's Job says; return how many of its pods run."""
    status, of_launcher = decision.status, launcher.get("status") or {}
    counts = _counts(status, "Launcher")
    counts.clear()
    if failed := of_launcher.get("failed"):
        counts["failed"] = failed
    if _has_ended(launcher, "Complete"):
        counts["succeeded"] = 1
        status.setdefault("completionTime", of_launcher.get("completionTime") or now_text())
        decision.say("Succeeded", "successfully completed.", event=True)
        return 0
    if why := _has_ended(launcher, "Failed"):
        status.setdefault("completionTime", now_text())
        message = str(why.get("message") or "has failed")
        decision.say("Failed", message, reason=str(why.get("reason") or "MPIJobFailed"), event=True)
        return 0
    ready = int(of_launcher.get("ready") or 0)
    if ready:
        counts["active"] = ready
    return ready


def _write_word(decision: _MPIDecision) -> None:
    """Say how the job is, as the operator of v1alpha1 does: by the launcher's state alone."""
    status, launcher = decision.status, decision.launcher
    if launcher is not None:
        of_launcher = launcher.get("status") or {}
        if of_launcher.get("active"):
            status["launcherStatus"] = "Active"
            status.setdefault("startTime", now_text())
        elif of_launcher.get("succeeded"):
            status["launcherStatus"] = "Succeeded"
            status.setdefault("completionTime", now_text())
        elif _has_ended(launcher, "Failed"):
            # A launcher that is tried again has failed too, for a while; here the word is the end.
            status["launcherStatus"] = "Failed"
    if ready := decision.count_ready():
        status["workerReplicas"] = ready
    else:
        status.pop("workerReplicas", None)


def _has_ended(launcher: Manifest | None, how: str) -> Mapping[str, object]:
    """Return the launcher's condition that it has ended in this way; nothing while it has not."""
    conditions = ((launcher or {}).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == how and each["status"] == "True"), {})


def _counts(status: Manifest, role: str) -> Manifest:
    counts: Manifest = status.setdefault("replicaStatuses", {}).setdefault(role, {})
    return counts


def decide_by_pods(observed: ObservedJob) -> Plan:
    """Return what is to be done for a job.

    Raises:
        TypeError: Its kind is not one of MPI whose operator makes all pods.
    """
    kind, job = observed.kind, observed.job
    if not isinstance(kind, PodMPIKind):
        raise TypeError(f"{kind.title} is not for MPI by pods")
    replicas = kind.run_replicas(job)
    plan = replicated.decide(kind, job, observed.pods, observed.restarts, observed.owners, replicas)
    plan.services.clear()
    slots = str(job["spec"].get("slotsPerWorker") or 1)
    for pod in plan.create:
        pod["metadata"]["annotations"][PROCESSES] = slots
    conditions = plan.status["conditions"]
    if not any(is_true(conditions, each) for each in ("Succeeded", "Failed", "Suspended")):
        _write_config(observed, kind, plan)
    return plan


def _write_config(observed: ObservedJob, kind: PodMPIKind, plan: Plan) -> None:
    """Have the ConfigMap say which workers there are, and which of them run."""
    workers = {each.name for each in kind.run_replicas(observed.job) if each.role == "worker"}
    names = {str(pod["metadata"]["name"]) for pod in observed.pods if phase_of(pod) == "Running"}
    wanted = kind.config_of(observed.job, sorted(workers & names))
    name, namespace = wanted["metadata"]["name"], observed.job["metadata"]["namespace"]
    found = next((each for each in observed.children[CONFIG_MAPS] if each["metadata"]["name"] == name), None)
    if found is None:
        owner = [owner_reference(kind.resource, observed.job)]
        meta = {**wanted["metadata"], "namespace": namespace, "ownerReferences": owner}
        plan.objects.append((CONFIG_MAPS, {**wanted, "metadata": meta}))
    elif found.get("data") != wanted["data"]:
        plan.patches.append((CONFIG_MAPS, name, {"data": wanted["data"]}))
