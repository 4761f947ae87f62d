"""TFJob, `kubeflow.org/v1`, of Kubeflow's training-operator and the tf-operator before it; read only.

Labels and names: kubeflow/trainer v1.9.4, `pkg/controller.v1/tensorflow/tfjob_controller.go` and
`pkg/controller.v1/common/pod.go`; the older labels: kubeflow/tf-operator v1.0.
"""

from __future__ import annotations

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.kubeflow.kubeflow_job import OperatorPods, read_kubeflow_job
from k8s.kinds.parse import make_replica, nested, replica_count
from k8s.models.resources import Resource

TF_JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")

# In lower case, as in labels and pod names; a job has a chief or a master, not both.
_ROLES = ("chief", "master", "ps", "worker", "evaluator")


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
            for role in _ROLES
            if role in roles
            for index in range(replica_count(roles[role].get("replicas")))
        )
