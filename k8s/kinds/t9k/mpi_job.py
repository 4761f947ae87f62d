"""MPIJob, `batch.tensorstack.dev/v1beta1`, of TensorStack: see `t9k` for the source.

Older ones have one template for all in `worker`, newer ones `replicaSpecs` for launcher and workers.
That it succeeded only means that it ended: the launcher's log tells how.
"""

from __future__ import annotations

from dataclasses import replace

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import make_replica, nested, replica_count, text_of
from k8s.kinds.t9k.common import OWNER_NAME, instance_in_t9k, job_of_t9k, read_t9k_job, replica_specs
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.status import Status

T9K_MPI_JOBS = Resource("batch.tensorstack.dev", "v1beta1", "mpijobs", "MPIJob")


class T9kMPIJob:
    """TensorStack's job for MPI: a launcher, whose log has what all ranks say, and its workers."""

    title = "T9k MPIJob"
    resource = T9K_MPI_JOBS
    container = "mpi-worker"
    suspend_field = "spec.runMode.pause.enabled"

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read T9k's MPIJob, which counts as succeeded however its launcher ended."""
        job = read_t9k_job(obj, self.resource, self.replicas(obj))
        if job.outcome is Status.SUCCEEDED:
            return replace(job, outcome_reason="it ended: the launcher's log tells how")
        return job

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, which asks for no GPUs unless it says so itself, and the workers."""
        specs = replica_specs(obj)
        if worker := nested(obj, "spec", "worker"):
            specs = [{**worker, "type": "worker"}, *specs]
        if not any(spec["type"] == "launcher" for spec in specs):
            specs = [{"type": "launcher"}, *specs]
        return tuple(
            make_replica(
                text_of(spec.get("type")),
                index,
                nested(spec, "template"),
                is_chief=spec["type"] == "launcher" and index == 0,
                restart_policy=spec.get("restartPolicy"),
            )
            for spec in specs
            for index in range(replica_count(spec.get("replicas")))
        )

    def pod_selector(self, name: str) -> str:
        """Return the selector of what a job of T9k owns."""
        return f"{OWNER_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the MPIJob's name: that of the pod's controller."""
        return job_of_t9k(pod, self.resource)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the role and the number in the pod's name."""
        return instance_in_t9k(pod)
