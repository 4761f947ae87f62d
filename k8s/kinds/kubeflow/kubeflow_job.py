"""Labels of pods and policies of jobs that Kubeflow's operators share.

Source: kubeflow/trainer v1.9.4, `pkg/apis/kubeflow.org/v1/common_types.go`; kubeflow/mpi-operator v0.8.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import count_of, nested, outcome_of_conditions, read_job, read_status, text_of
from k8s.kinds.pod_template import run_limits
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.text.sanitize import parse_integer

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"


def run_policy(obj: Manifest) -> Manifest:
    """Return a job's run policy; CRDs of older operators have its fields in `spec`."""
    spec = obj.get("spec") or {}
    return {**spec, **nested(spec, "runPolicy")}


def replica_specs(obj: Manifest, field: str) -> dict[str, Manifest]:
    """Return the replica specs of a job by type, as `Worker`; operators accept types in any case."""
    found = nested(obj, "spec", field)
    return {str(role).capitalize(): each or {} for role, each in found.items()}


def read_kubeflow_job(obj: Manifest, resource: Resource, replicas: tuple[Replica, ...]) -> DeclaredJob:
    """Read a job with Kubeflow's conditions and run policy."""
    policy = run_policy(obj)
    scheduling = nested(policy, "schedulingPolicy")
    job = read_job(
        obj,
        resource,
        replicas,
        outcome_of_conditions(read_status(obj), succeeded="Succeeded", failed="Failed"),
        is_suspended=policy.get("suspend") is True,
        queue=text_of(scheduling.get("queue")),
        priority=text_of(scheduling.get("priorityClass")),
    )
    limit, is_gang = count_of(policy.get("backoffLimit")), "minAvailable" in scheduling
    return replace(job, restarts_allowed=limit, is_gang=is_gang)


def run_policy_of(spec: JobSpec, clean_pods: str, gang_size: int) -> Manifest:
    """Return the run policy for `spec`; `gang_size` pods start together, if it is a gang."""
    policy: Manifest = {"cleanPodPolicy": clean_pods, "backoffLimit": spec.retries, **run_limits(spec)}
    if spec.gang:
        policy["schedulingPolicy"] = {"minAvailable": gang_size}
        if spec.priority_class:
            policy["schedulingPolicy"]["priorityClass"] = spec.priority_class
    return policy


class OperatorPods:
    """Mixin of kinds whose pods the training-operator, or an older operator, labels."""

    operator_name: str
    old_labels: tuple[str, str, str]

    def pod_selector(self, name: str) -> str:
        """Return a selector that excludes other operators' jobs of the same name."""
        return f"{JOB_NAME}={name},{OPERATOR_NAME}={self.operator_name}"

    def job_of(self, pod: Pod) -> str:
        """Return the job's name, from either operator's labels."""
        if pod.metadata.label(OPERATOR_NAME) == self.operator_name:
            return pod.metadata.label(JOB_NAME)
        return pod.metadata.label(self.old_labels[0])

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number."""
        role = pod.metadata.label(REPLICA_TYPE) or pod.metadata.label(self.old_labels[1])
        index = parse_integer(pod.metadata.label(REPLICA_INDEX) or pod.metadata.label(self.old_labels[2]))
        return (role, index) if role and index is not None else None
