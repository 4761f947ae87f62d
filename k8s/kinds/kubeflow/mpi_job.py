"""MPIJob, `kubeflow.org/v2beta1`, of Kubeflow's mpi-operator.

The launcher runs as a batch Job `<job>-launcher`, the workers are pods of the MPIJob's own.
Labels and names: kubeflow/mpi-operator v0.8.0, `pkg/controller/mpi_job_controller.go`; `mpi-job-name`
and `mpi-job-role` are those of its versions before 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from k8s.job_spec import JobSpec
from k8s.kinds.base import CreatableKind, DeclaredJob, Manifest, Replica
from k8s.kinds.kubeflow.common import JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX, read_kubeflow_job
from k8s.kinds.kubeflow.mpi_manifest import NOT_OF_MPI, mpi_manifest, spec_of_mpi
from k8s.kinds.parse import label_number, make_replica, nested, replica_count
from k8s.models import Pod
from k8s.models.resources import Resource

MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")

OLD_JOB_NAME, OLD_ROLE = "mpi-job-name", "mpi-job-role"


class MPIJob(CreatableKind):
    """Kubeflow's job for MPI: a launcher, whose log has what all ranks say, and its workers."""

    title = "MPIJob"
    word = "mpi"
    aliases = ("mpijob",)
    resource = MPI_JOBS
    container = ""
    suspend_field = "spec.runPolicy.suspend"
    lacks: Mapping[str, str] = {
        **NOT_OF_MPI,
        "kube_queue": "kube-queue knows MPIJobs of version v1 and v1alpha1 only.",
    }
    restart_policies = ("OnFailure", "Never")

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the MPIJob v2beta1 that asks for `spec`."""
        return mpi_manifest(self.resource, spec, has_policy=True)

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for an MPIJob like this one, and what it leaves out."""
        return spec_of_mpi(obj)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an MPIJob v2beta1, with Kubeflow's conditions and run policy."""
        return read_kubeflow_job(obj, self.resource, self.replicas(obj))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, whose name its Job makes up, and the workers."""
        return launcher_and_workers(obj, launcher_name="")

    def pod_selector(self, name: str) -> str:
        """Return the selector that leaves out the training-operator's MPIJobs of the same name."""
        return f"{JOB_NAME}={name},{OPERATOR_NAME}=mpi-operator"

    def job_of(self, pod: Pod) -> str:
        """Return the MPIJob's name."""
        if pod.metadata.label(OPERATOR_NAME) == "mpi-operator":
            return pod.metadata.label(JOB_NAME)
        return pod.metadata.label(OLD_JOB_NAME) if not is_of_v1(pod) else ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the launcher, or a worker and the number in its name."""
        meta = pod.metadata
        return launcher_or_worker(
            pod,
            meta.label(JOB_NAME) or meta.label(OLD_JOB_NAME),
            meta.label(JOB_ROLE) or meta.label(OLD_ROLE),
        )


def is_of_v1(pod: Pod) -> bool:
    """Tell a pod with the old operator's labels that an MPIJob of version v1 owns itself."""
    owner = pod.metadata.controller
    return owner is not None and owner.api_version == "kubeflow.org/v1"


def launcher_and_workers(obj: Manifest, *, launcher_name: str) -> tuple[Replica, ...]:
    """Return the pods of `mpiReplicaSpecs`, the launcher first; their ranks are mpirun's to give."""
    roles = nested(obj, "spec", "mpiReplicaSpecs")
    name = nested(obj, "metadata").get("name")
    found = []
    for role in ("launcher", "worker"):
        asked = nested(roles, role.capitalize())
        template = nested(asked, "template")
        is_launcher = role == "launcher"
        for index in range(replica_count(asked.get("replicas")) if asked else 0):
            found.append(
                make_replica(
                    role,
                    index,
                    template,
                    name=launcher_name if is_launcher else f"{name}-worker-{index}",
                    is_chief=is_launcher,
                    restart_policy=asked.get("restartPolicy"),
                )
            )
    return tuple(found)


def launcher_or_worker(pod: Pod, job_name: str, role: str) -> tuple[str, int] | None:
    """Return the role and index of a pod whose label says `role`.

    A worker's number is the one in its name: where the launcher works too, the label
    counts from one.
    """
    if role == "launcher":
        return role, 0
    index = label_number(pod.metadata.name.removeprefix(f"{job_name}-worker-"))
    if index is None:
        index = label_number(pod.metadata.label(REPLICA_INDEX))
    return (role, index) if role and index is not None else None
