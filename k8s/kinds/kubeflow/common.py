"""What Kubeflow's operators have in common: the labels of their pods, the policies of their jobs.

Source: kubeflow/trainer v1.9.4, `pkg/apis/kubeflow.org/v1/common_types.go`; kubeflow/mpi-operator v0.8.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import (
    count_of,
    nested,
    outcome_of_conditions,
    read_job,
    read_status,
    text_of,
)
from k8s.kinds.pods.understood import Understood, drop_defaults, named
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


def run_policy_of(spec: JobSpec, clean_pods: str, gang_size: int) -> Manifest:
    """Return the run policy that asks for `spec`.

    Args:
        spec: The job.
        clean_pods: Which pods go when it ends.
        gang_size: How many pods start together, if it is a gang.
    """
    policy: Manifest = {"cleanPodPolicy": clean_pods, "backoffLimit": spec.retries}
    if spec.running_timeout_s:
        policy["activeDeadlineSeconds"] = spec.running_timeout_s
    if spec.ttl_s:
        policy["ttlSecondsAfterFinished"] = spec.ttl_s
    if spec.suspend:
        policy["suspend"] = True
    if spec.gang:
        policy["schedulingPolicy"] = {"minAvailable": gang_size}
        if spec.priority_class:
            policy["schedulingPolicy"]["priorityClass"] = spec.priority_class
    return policy


def take_run_policy(policy: Manifest, priority_class: str) -> Understood:
    """Take out of a run policy what a spec can say.

    Args:
        policy: It is taken apart.
        priority_class: That of the pods, which the scheduling policy may say again.
    """
    fields: dict[str, Any] = {
        "retries": count_of(policy.pop("backoffLimit", 0)) or 0,
        "clean_pods": str(policy.pop("cleanPodPolicy", None) or "None"),
        "running_timeout_s": count_of(policy.pop("activeDeadlineSeconds", 0)) or 0,
        "ttl_s": count_of(policy.pop("ttlSecondsAfterFinished", 0)) or 0,
        "suspend": policy.pop("suspend", False) is True,
    }
    scheduling = policy.pop("schedulingPolicy", None) or {}
    if scheduling.get("minAvailable"):
        fields["gang"] = True
        del scheduling["minAvailable"]
    drop_defaults(scheduling, {"priorityClass": priority_class})
    return Understood(fields, named(policy) + named(scheduling, prefix="schedulingPolicy."))
