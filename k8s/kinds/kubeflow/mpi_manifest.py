"""Manifests of MPIJobs in all versions.

The launcher runs the command and requests no devices; the workers have no command and run what the
operator starts: sshd (v2beta1), or a sleep into which it execs (v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from k8s.kinds import job_spec as job_specs
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, Manifest
from k8s.kinds.job_spec import LAUNCHER
from k8s.kinds.kubeflow.kubeflow_job import read_kubeflow_job, run_policy_of
from k8s.kinds.pod_template import (
    PodShape,
    job_object,
    pod_template,
    restarts,
)
from k8s.kinds.pods.env import variable
from k8s.kinds.pods.labels import MPI_CHART, job_metadata
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

MPI_SHAPE = PodShape(container="mpi", app="mpijob", chart=MPI_CHART)
# Open MPI's mpirun prefixes each line with its rank, as with `--tag-output`.
TAGGED = (variable("OMPI_MCA_orte_tag_output", "1"),)
_NO_TORCHRUN = "MPI starts the ranks, not torchrun."
_NOT_ELASTIC = "The number of workers of an MPIJob is fixed."
NOT_OF_MPI: Mapping[str, str] = {
    "runtime": NO_RUNTIME,
    "processes": "MPI starts one rank per slot: set slots instead.",
    "torchrun": _NO_TORCHRUN,
    "max_restarts": _NO_TORCHRUN,
    "rdzv_backend": _NO_TORCHRUN,
    "torchrun_options": _NO_TORCHRUN,
    "elastic_min": _NOT_ELASTIC,
    "elastic_max": _NOT_ELASTIC,
}
MPI_ROLES = (LAUNCHER, "worker")


class KubeflowMPIJob(CreatableKind):
    """Base of MPIJobs with Kubeflow's run policy."""

    word = "mpi"
    aliases = ("mpijob",)
    launcher = "mpirun"
    suspend_field = "spec.runPolicy.suspend"
    role_names = MPI_ROLES

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an MPIJob, with Kubeflow's conditions and run policy."""
        return read_kubeflow_job(obj, self.resource, self.replicas(obj))


def mpi_manifest(resource: Resource, spec: JobSpec, *, has_policy: bool = False) -> Manifest:
    """Return the MPIJob v2beta1 or v1 that requests `spec`.

    `has_policy` is True if the version has `launcherCreationPolicy`.
    """
    body: Manifest = {"slotsPerWorker": _slots(spec)}
    if has_policy and spec.launcher_policy:
        body["launcherCreationPolicy"] = spec.launcher_policy
    of_launcher, of_worker = _launcher(spec), _worker(spec)
    launcher = pod_template(of_launcher, MPI_SHAPE, env=TAGGED, job=spec)
    worker = pod_template(of_worker, MPI_SHAPE, job=spec)
    body |= {
        "runPolicy": run_policy_of(spec, clean_pods(spec), spec.workers + 1),
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": restarts(of_launcher), "template": launcher},
            "Worker": {"replicas": spec.workers, "restartPolicy": restarts(of_worker), "template": worker},
        },
    }
    return _object(resource, spec, body)


def clean_pods(spec: JobSpec) -> str:
    """Return the policy for pods of an MPIJob that has ended."""
    # Workers never end by themselves and would hold their GPUs for ever. `Running` keeps the launcher,
    # which has ended and whose log has the output of all ranks.
    return "Running" if spec.clean_pods == "None" else spec.clean_pods


def _object(resource: Resource, spec: JobSpec, body: Manifest) -> Manifest:
    has_queue = resource.version == "v2beta1"
    return job_object(resource, job_metadata(spec, MPI_CHART, queue_label=has_queue), body)


def _slots(spec: JobSpec) -> int:
    return max(1, job_specs.role_spec(spec, "worker").gpus) if spec.slots is None else spec.slots


def _launcher(spec: JobSpec) -> JobSpec:
    plain = replace(
        spec,
        device_claim="",
        cpu="",
        memory="",
        cpu_request="",
        memory_request="",
        gpus=0,
        devices={},
        rdma=False,
        gpu_topology=False,
        host_network=spec.host_network or spec.gpu_topology,
        mounts=spec.mounts if spec.mounts_on_launcher else (),
    )
    return job_specs.apply_role(job_specs.role_named(spec, LAUNCHER), plain)


def _worker(spec: JobSpec) -> JobSpec:
    plain = replace(spec, command=(), torchrun=False, debug=False, image=spec.worker_image or spec.image)
    return job_specs.apply_role(job_specs.role_named(spec, "worker"), plain)
