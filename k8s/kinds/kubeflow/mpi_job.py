"""MPIJob, `kubeflow.org/v2beta1`, of Kubeflow's mpi-operator.

The launcher runs as a batch Job `<job>-launcher`, the workers are pods of the MPIJob.
Labels and names: kubeflow/mpi-operator v0.8.0, `pkg/controller/mpi_job_controller.go`; `mpi-job-name`
and `mpi-job-role` are those of versions before 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.kinds.base import Manifest, Replica
from k8s.kinds.kubeflow import mpi_run
from k8s.kinds.kubeflow.kubeflow_job import JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX, run_policy
from k8s.kinds.parse import nested, text_of
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")

_OPERATOR = "mpi-operator"
_CONFIG_MODES = {"hostfile": 0o444, "discover_hosts.sh": 0o555}
# Settings by which mpirun finds the workers.
_LAUNCHER_ENV: mpi_run.Named = (
    ("K_MPI_JOB_ROLE", "launcher"),
    ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
    ("OMPI_MCA_orte_default_hostfile", f"{mpi_run.CONFIG_FOLDER}/hostfile"),
    ("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
)
_OPEN_MPI = "OpenMPI"


class MPIJob(mpi_run.KubeflowMPIJob):
    """MPIJob of Kubeflow: a launcher, whose log has the output of all ranks, and workers."""

    title = "MPIJob"
    resource = MPI_JOBS
    container = ""
    operator = operator_name = _OPERATOR
    lacks: Mapping[str, str] = {
        **mpi_run.NOT_OF_MPI,
        "kube_queue": "kube-queue supports MPIJobs of versions v1 and v1alpha1 only.",
    }
    restart_policies = ("OnFailure", "Never")

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the MPIJob v2beta1 that requests `spec`."""
        return mpi_run.mpi_manifest(self.resource, self.supported(spec), has_policy=True)

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, whose pod name its Job generates, and the workers."""
        return mpi_run.launcher_and_workers(obj, launcher_name="")

    def run_of(self, obj: Manifest) -> mpi_run.MPIRun:
        """Return the pods and rules that the mpi-operator makes of an MPIJob v2beta1 for Open MPI."""
        spec, policy, name = nested(obj, "spec"), run_policy(obj), str(nested(obj, "metadata")["name"])
        slots = mpi_run.slots_per_worker(spec)
        works_too = spec.get("runLauncherAsWorker") is True
        launchers = [each for each in self.replicas(obj) if each.role == "launcher"]
        workers = [_worker(obj, each, works_too) for each in self.replicas(obj) if each.role == "worker"]
        names = [f"{name}-launcher"] * works_too + [each.name for each in workers]
        hosts = [f"{each}.{name}.{nested(obj, 'metadata').get('namespace')}.svc" for each in names]
        files = {
            "hostfile": mpi_run.hostfile(hosts, slots),
            "discover_hosts.sh": "".join(("#!/bin/sh\n", *(f"echo {host}\n" for host in hosts))),
        }
        launcher = [_launcher(obj, each, slots, works_too) for each in launchers]
        problem = "" if len(launchers) == 1 else "spec.mpiReplicaSpecs[Launcher]: must have one replica"
        if (text_of(spec.get("mpiImplementation")) or _OPEN_MPI) != _OPEN_MPI:
            problem = "spec.mpiImplementation: the sandbox runs Open MPI only"
        return mpi_run.MPIRun(
            (*launcher, *workers),
            mpi_run.config_map(f"{name}-config", {"app": name}, files),
            slots,
            text_of(policy.get("cleanPodPolicy")) or "None",
            waits_for_workers=spec.get("launcherCreationPolicy") == "WaitForWorkersReady",
            problem=problem,
        )


def _labels(name: str, role: str, index: int | None) -> mpi_run.Named:
    labels = ((OPERATOR_NAME, _OPERATOR), (JOB_NAME, name), (JOB_ROLE, role))
    return labels if index is None else (*labels, (REPLICA_INDEX, str(index)))


def _worker(obj: Manifest, worker: Replica, works_too: bool) -> Replica:
    # Without a command a worker runs an SSH daemon.
    job = str(nested(obj, "metadata")["name"])
    spec = mpi_run.with_container(worker.template, env=(("K_MPI_JOB_ROLE", "worker"),))
    container = spec["containers"][0]
    if not container.get("command") and not container.get("args"):
        container["command"] = ["/usr/sbin/sshd", "-De"]
    spec |= {"hostname": worker.name, "subdomain": job}
    return replace(
        worker,
        template={**worker.template, "spec": spec},
        labels=_labels(job, "worker", worker.index + works_too),
        restart_policy=_restart_policy(obj, "Worker", "Never"),
    )


def _launcher(obj: Manifest, launcher: Replica, slots: int, works_too: bool) -> Replica:
    job = str(nested(obj, "metadata")["name"])
    env = (
        *_LAUNCHER_ENV,
        ("OMPI_MCA_orte_set_default_slots", str(slots)),
        *(() if works_too else mpi_run.NO_GPUS),
    )
    spec = mpi_run.with_container(launcher.template, env=env, mount=True)
    spec = mpi_run.with_config(spec, f"{job}-config", _CONFIG_MODES)
    spec |= {"hostname": f"{job}-launcher", "subdomain": job}
    return replace(
        launcher,
        name=f"{job}-launcher",
        template={**launcher.template, "spec": spec},
        labels=_labels(job, "launcher", 0 if works_too else None),
        restart_policy=_restart_policy(obj, "Launcher", "OnFailure"),
    )


def _restart_policy(obj: Manifest, role: str, default: str) -> str:
    # The operator ignores the policy of the template.
    return text_of(nested(obj, "spec", "mpiReplicaSpecs", role).get("restartPolicy")) or default
