"""TFJob, `kubeflow.org/v1`, of Kubeflow's training-operator and the tf-operator before it: shown, not made.

Labels and names: kubeflow/trainer v1.9.4, `pkg/controller.v1/tensorflow/tfjob_controller.go` and
`pkg/controller.v1/common/pod.go`; the older labels: kubeflow/tf-operator v1.0.
"""

from __future__ import annotations

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.kubeflow.common import JOB_NAME, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE, read_kubeflow_job
from k8s.kinds.parse import make_replica, nested, replica_count
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.text.numbers import whole_number

TF_JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")

_OLD_JOB_NAME, _OLD_TYPE, _OLD_INDEX = "tf-job-name", "tf-replica-type", "tf-replica-index"
_ROLES = ("chief", "master", "ps", "worker", "evaluator")
"""In lower case, as in labels and pod names; a job has a chief or a master, not both."""


class TFJob:
    """Kubeflow's job for TensorFlow: workers, and what they need beside them."""

    title = "TFJob"
    resource = TF_JOBS
    container = "tensorflow"
    suspend_field = "spec.runPolicy.suspend"

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a TFJob, with Kubeflow's conditions and run policy."""
        return read_kubeflow_job(obj, self.resource, self.replicas(obj))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of `tfReplicaSpecs`; without a chief the first worker is it. Ranks it has none."""
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
            for role in _ROLES
            if role in roles
            for index in range(replica_count(roles[role].get("replicas")))
        )

    def pod_selector(self, name: str) -> str:
        """Return the selector that leaves out other operators' jobs of the same name."""
        return f"{JOB_NAME}={name},{OPERATOR_NAME}=tfjob-controller"

    def job_of(self, pod: Pod) -> str:
        """Return the TFJob's name, from either operator's labels."""
        if pod.metadata.label(OPERATOR_NAME) == "tfjob-controller":
            return pod.metadata.label(JOB_NAME)
        return pod.metadata.label(_OLD_JOB_NAME)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number."""
        meta = pod.metadata
        role = meta.label(REPLICA_TYPE) or meta.label(_OLD_TYPE)
        index = whole_number(meta.label(REPLICA_INDEX) or meta.label(_OLD_INDEX))
        return (role, index) if role and index is not None else None
