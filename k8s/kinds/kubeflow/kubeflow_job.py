"""Labels of pods and policies of jobs that Kubeflow's operators share; and TFJob, which is read only.

Source: kubeflow/trainer v1.9.4, `pkg/apis/kubeflow.org/v1/common_types.go` and
`pkg/controller.v1/tensorflow/tfjob_controller.go`; kubeflow/mpi-operator v0.8.0; kubeflow/tf-operator v1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.kinds import building
from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import (
    count_of,
    make_replica,
    nested,
    outcome_of_conditions,
    read_job,
    read_status,
    replica_count,
    text_of,
)
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
    limits = building.run_limits(spec)
    policy: Manifest = {"cleanPodPolicy": clean_pods, "backoffLimit": spec.retries, **limits}
    if spec.gang:
        policy["schedulingPolicy"] = {"minAvailable": gang_size}
        if spec.priority_class:
            policy["schedulingPolicy"]["priorityClass"] = spec.priority_class
    return policy


class OperatorPods:
    """Mixin of kinds whose pods the training-operator, or an older operator, labels."""

    operator_name: str
    old_labels: tuple[str, str, str]
    pod_names = "-(chief|master|ps|worker|evaluator)-[0-9]+"

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


TF_JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")

# In lower case, as in labels and pod names; a job has a chief or a master, not both.
_TF_ROLES = ("chief", "master", "ps", "worker", "evaluator")


class TFJob(OperatorPods):
    """TFJob of Kubeflow: workers and their parameter servers, chief and evaluators."""

    title = "TFJob"
    resource = TF_JOBS
    container = "tensorflow"
    suspend_field = "spec.runPolicy.suspend"
    operator_name = "tfjob-controller"
    old_labels = ("tf-job-name", "tf-replica-type", "tf-replica-index")

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a TFJob, with Kubeflow's conditions and run policy."""
        return read_kubeflow_job(obj, self.resource, self.replicas(obj))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of `tfReplicaSpecs`, without ranks; without a chief the first worker is it."""
        specs = nested(obj, "spec", "tfReplicaSpecs")
        # The operator takes the roles' names in any case: `PS`, `Ps`.
        roles = {str(role).lower(): each or {} for role, each in specs.items()}
        name = nested(obj, "metadata").get("name")
        chief = next((role for role in ("chief", "master") if role in roles), "worker")
        return tuple(
            make_replica(
                role,
                index,
                nested(roles[role], "template"),
                name=f"{name}-{role}-{index}",
                is_chief=role == chief and index == 0,
                restart_policy=roles[role].get("restartPolicy"),
            )
            for role in _TF_ROLES
            if role in roles
            for index in range(replica_count(roles[role].get("replicas")))
        )
