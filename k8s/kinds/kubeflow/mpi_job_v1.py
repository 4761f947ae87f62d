"""MPIJob, `kubeflow.org/v1`, of Kubeflow's training-operator: launcher and workers are bare pods.

Labels and names: kubeflow/trainer v1.9.4, `pkg/controller.v1/mpi/mpijob_controller.go`: the launcher has
a role but no `replica-index`. Before, mpi-operator v0.3: `mpi-job-name`, `mpi-job-role`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.kinds.base import Manifest, Replica
from k8s.kinds.kubeflow import mpi_run
from k8s.kinds.kubeflow.kubeflow_job import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    run_policy,
)
from k8s.kinds.parse import nested, text_of
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

MPI_JOBS_V1 = Resource("kubeflow.org", "v1", "mpijobs", "MPIJob")

_OPERATOR = "mpijob-controller"
_SCRIPTS = {"kubexec.sh": 0o555}
_LAUNCHER_FILES = {**_SCRIPTS, "hostfile": 0o444, "discover_hosts.sh": 0o555}


class MPIJobV1(mpi_run.KubeflowMPIJob):
    """MPIJob of the training-operator."""

    title = "MPIJob v1"
    resource = MPI_JOBS_V1
    container = mpi_run.MPI_CONTAINER
    operator = "training-operator-mpi"
    operator_name = _OPERATOR
    lacks: Mapping[str, str] = {
        **mpi_run.NOT_OF_MPI,
        "queue": "Kueue admits MPIJobs of version v2beta1 only.",
        "launcher_policy": "The training-operator creates the launcher together with the workers.",
    }

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the MPIJob v1 that requests `spec`."""
        return mpi_run.mpi_manifest(self.resource, self.supported(spec))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, named after the job, and the workers."""
        return mpi_run.launcher_and_workers(
            obj, launcher_name=f"{nested(obj, 'metadata').get('name')}-launcher"
        )

    def run_of(self, obj: Manifest) -> mpi_run.MPIRun:
        """Return the pods and rules that the training-operator makes of an MPIJob v1.

        Without the init container that brings kubectl for `kubexec.sh`: the sandbox has its own.
        """
        name = str(nested(obj, "metadata")["name"])
        slots = mpi_run.slots_per_worker(nested(obj, "spec"))
        launcher, *workers = self.replicas(obj)
        hosts = [*([launcher.name] if _requests_gpus(launcher) else []), *(each.name for each in workers)]
        files = {
            "hostfile": mpi_run.hostfile(hosts, slots),
            "kubexec.sh": mpi_run.KUBEXEC,
            "discover_hosts.sh": "\n".join(("#!/bin/sh", *(f"echo {host}:{slots}" for host in hosts))),
        }
        return mpi_run.MPIRun(
            tuple(_made(name, each) for each in (launcher, *workers)),
            mpi_run.config_map(f"{name}-config", {"app": name}, files),
            slots,
            text_of(run_policy(obj).get("cleanPodPolicy")) or "None",
            has_launcher_job=False,
        )


def _made(job: str, replica: Replica) -> Replica:
    labels: mpi_run.Named = ((JOB_NAME, job), (OPERATOR_NAME, _OPERATOR), (REPLICA_TYPE, replica.role))
    if replica.role == "launcher":
        labels = (*labels, (JOB_ROLE, "master"))
        env = mpi_run.KUBEXEC_ENV if _requests_gpus(replica) else (*mpi_run.KUBEXEC_ENV, *mpi_run.NO_GPUS)
        spec, files = mpi_run.with_container(replica.template, env=env, mount=True), _LAUNCHER_FILES
    else:
        labels = (*labels, (REPLICA_INDEX, str(replica.index)))
        spec, files = mpi_run.with_container(replica.template, mount=True), _SCRIPTS
        container = spec["containers"][0]
        if not container.get("command"):
            container |= {"command": ["sleep"], "args": ["365d"]}
    template = {**replica.template, "spec": mpi_run.with_config(spec, f"{job}-config", files)}
    policy = replica.restart_policy or "Never"
    return replace(replica, template=template, labels=labels, restart_policy=policy)


def _requests_gpus(launcher: Replica) -> bool:
    # A launcher with GPUs is one of the hosts.
    containers = nested(launcher.template, "spec").get("containers") or ()
    return any("gpu" in name for each in containers for name in nested(each, "resources", "limits"))
