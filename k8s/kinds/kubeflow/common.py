"""What Kubeflow's operators have in common: the labels of their pods, the policies of their jobs.

Source: kubeflow/trainer v1.9.4, `pkg/apis/kubeflow.org/v1/common_types.go`; kubeflow/mpi-operator v0.8.0.
"""

from __future__ import annotations

from dataclasses import replace

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import (
    count_of,
    nested,
    outcome_of_conditions,
    read_job,
    read_status,
    text_of,
)
from k8s.models.resources import Resource

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"


def run_policy(obj: Manifest) -> Manifest:
    """Return a job's run policy; the CRDs of older operators have its fields in `spec` itself."""
    spec = obj.get("spec") or {}
    return {**spec, **nested(spec, "runPolicy")}


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
    return replace(job, restarts_allowed=count_of(policy.get("backoffLimit")))
