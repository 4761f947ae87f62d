"""Replica controller: creates, replaces and deletes the pods of a job, whatever its kind. Pure.

A kind's controller passes the replicas (`kind.replicas()`) and the rules of its operator, and turns the
result into the status of its kind: `batch`, `kubeflow` and `trainer` into conditions, `tensorstack` into
phases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from k8s.kinds import Replica
from k8s.sandbox.controller_runtime import ENDED, Manifest
from k8s.sandbox.controllers.reconcile import (
    GANG,
    RESTARTS,
    ObservedJob,
    Plan,
    owned_pod,
    phase_of,
    restarts_of,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one job's operator."""

    is_retryable: Callable[[Replica, Manifest], bool]
    backoff_limit: int | None
    """None: no limit."""
    deadline_s: float | None
    clean_policy: str
    """Pods to delete after the end: None, Running (those that have not ended) or All."""
    is_outdated: Callable[[Manifest], bool] = lambda pod: False
    """Return True if a running pod is to be replaced because its job has changed."""
    waiting: Collection[str] = ()
    kept_role: str = ""
    """Role whose pods stay after the end, whatever the clean policy."""
    has_deciding_chief: bool = False
    """A failed pod fails the job only if it has the chief's role."""
    keeps_failed: bool = False
    """Pods that have ended stay, with their logs; a failed one gets a successor of another name."""
    name_of: Callable[[Manifest], str] = lambda pod: str(pod["metadata"]["name"])
    """Return the name of a pod's replica."""


class End(NamedTuple):
    """End of a job."""

    reason: str
    """Succeeded, PodFailed, BackoffLimitExceeded or DeadlineExceeded."""
    pods: tuple[Manifest, ...] = ()
    """Pods that caused it."""


class JobReplicas:
    """Pods of one job beside the replicas that it should have. Changes go into the plan."""

    def __init__(
        self,
        observed: ObservedJob,
        replicas: Iterable[Replica],
        rules: Rules,
        plan: Plan,
        make_pod: Callable[[ObservedJob, Replica], Manifest] | None = None,
    ) -> None:
        self.wanted = {each.name: each for each in replicas}
        self.chief = next((each.role for each in self.wanted.values() if each.is_chief), "")
        # The watch may still show a pod that was already deleted to be replaced.
        present = [pod for pod in observed.pods if pod["metadata"]["uid"] not in observed.replaced]
        self.pods = {
            rules.name_of(pod): pod
            for pod in sorted(present, key=attempt_of)
            if not pod["metadata"].get("deletionTimestamp")
        }
        self.leaving = {rules.name_of(pod) for pod in observed.pods} - self.pods.keys()
        self._observed = observed
        self._rules = rules
        self._plan = plan
        self._make_pod = make_pod or self._standard_pod

    def phases(self, role: str) -> list[str]:
        """Return the phases of a role's pods; empty strings for missing pods."""
        return [
            phase_of(self.pods[name]) if name in self.pods else ""
            for name, replica in self.wanted.items()
            if replica.role == role
        ]

    def reconcile(self, started: str) -> End | None:
        """Plan the pods of a job that runs since `started`; or return its end."""
        rules, plan = self._rules, self._plan
        chiefs = self.phases(self.chief)
        if chiefs and set(chiefs) == {"Succeeded"}:
            return End("Succeeded")
        if plan.has_expired(rules.deadline_s, started):
            return End("DeadlineExceeded")
        retried, fatal = [], []
        for name, replica in self.wanted.items():
            phase = phase_of(self.pods[name]) if name in self.pods else ""
            is_chief = replica.role == self.chief
            if phase not in ENDED or (phase == "Succeeded" and is_chief):
                continue
            if rules.is_retryable(replica, self.pods[name]):
                retried.append(self.pods[name])
            elif phase == "Failed" and (is_chief or not rules.has_deciding_chief):
                fatal.append(self.pods[name])
        if fatal:
            return End("PodFailed", tuple(fatal))
        if self._is_past_limit(has_failures=bool(retried)):
            return End("BackoffLimitExceeded", tuple(retried))
        if not rules.keeps_failed:
            plan.replaced = [str(pod["metadata"]["uid"]) for pod in retried]
            plan.delete = list(retried)
        for name, pod in self.pods.items():
            has_ended = phase_of(pod) in ENDED
            if (name not in self.wanted and not (has_ended and rules.keeps_failed)) or (
                not has_ended and rules.is_outdated(pod)
            ):
                plan.delete.append(pod)
        for name, replica in self.wanted.items():
            # While a pod of that name belongs to an earlier job, the server refuses another.
            is_free = name not in self.pods or (rules.keeps_failed and self.pods[name] in retried)
            if is_free and name not in self.leaving and name not in rules.waiting:
                plan.create.append(self._make_pod(self._observed, replica))
        return None

    def delete_all(self) -> None:
        """Delete the pods of a suspended job."""
        keeps = self._rules.keeps_failed
        self._plan.delete = [pod for pod in self.pods.values() if not (keeps and phase_of(pod) in ENDED)]

    def clean_up(self) -> None:
        """Delete the pods that the clean policy does not keep after the end."""
        rules = self._rules
        self._plan.create.clear()
        self._plan.delete = [
            pod
            for name, pod in self.pods.items()
            if rules.clean_policy == "All" or (rules.clean_policy == "Running" and phase_of(pod) not in ENDED)
            if name not in self.wanted or self.wanted[name].role != rules.kept_role
        ]

    def _is_past_limit(self, *, has_failures: bool) -> bool:
        limit = self._rules.backoff_limit
        if limit is None:
            return False
        in_place = restarts_of(
            self.pods[name]
            for name, replica in self.wanted.items()
            if name in self.pods and replica.restart_policy != "Never"
        )
        return (has_failures and self._observed.restarts >= limit) or in_place >= max(1, limit)

    def _standard_pod(self, observed: ObservedJob, replica: Replica) -> Manifest:
        spec = dict(replica.template.get("spec") or {})
        spec["restartPolicy"] = "Never" if replica.restart_policy == "ExitCode" else replica.restart_policy
        added = [{"name": name, "value": value} for name, value in replica.env]
        spec["containers"] = [
            {**container, "env": [*(container.get("env") or ()), *added]}
            for container in spec.get("containers") or ()
        ]
        annotations = {GANG: str(len(self.wanted)), RESTARTS: str(observed.restarts)}
        return owned_pod(observed, replica.template, replica.name, spec, dict(replica.labels), annotations)


def attempt_of(pod: Manifest) -> int:
    """Return the number of pods that were replaced before a pod."""
    return int((pod["metadata"].get("annotations") or {}).get(RESTARTS) or 0)
