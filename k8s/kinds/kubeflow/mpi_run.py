"""Manifests of MPIJobs; their pods as the operators create them, and the configuration of mpirun.

The launcher runs the command and requests no devices; the workers have no command and run what the
operator starts: sshd (v2beta1), or a sleep into which it execs (v1).
Source: kubeflow/mpi-operator v0.8.0 and v0.2.3, `mpi_job_controller.go`; kubeflow/training-operator v1.9.0,
`mpijob_controller.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from k8s.kinds import building
from k8s.kinds import job_spec as job_specs
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, Manifest, Replica, RunnableKind
from k8s.kinds.job_spec import LAUNCHER
from k8s.kinds.kubeflow.kubeflow_job import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    read_kubeflow_job,
    replica_specs,
    run_policy_of,
)
from k8s.kinds.parse import count_of, make_replica, nested, ranks_from, replica_count
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.text.sanitize import parse_integer

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

OLD_JOB_NAME, OLD_ROLE = "mpi-job-name", "mpi-job-role"
MPI_CONTAINER = "mpi"
_NO_TORCHRUN = "MPI starts the ranks, not torchrun."
_NOT_ELASTIC = "The number of workers of an MPIJob is fixed."
NOT_OF_MPI: Mapping[str, str] = {
    "runtime": NO_RUNTIME,
    "processes": "MPI starts one rank per slot: set slots instead.",
    "torchrun": _NO_TORCHRUN,
    "max_restarts": _NO_TORCHRUN,
    "rdzv_backend": _NO_TORCHRUN,
    "torchrun_options": _NO_TORCHRUN,
    "elastic": _NOT_ELASTIC,
}
MPI_ROLES, MPI_PODS = (LAUNCHER, "worker"), "-(launcher|worker)(-[0-9]+)?"


class KubeflowMPIJob(CreatableKind):
    """Base of MPIJobs with Kubeflow's run policy."""

    operator_name: str
    word = "mpi"
    aliases = ("mpijob",)
    launcher = "mpirun"
    suspend_field = "spec.runPolicy.suspend"
    role_names = MPI_ROLES
    pod_names = MPI_PODS

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an MPIJob, with Kubeflow's conditions and run policy."""
        return read_kubeflow_job(obj, self.resource, self.replicas(obj))

    def pod_selector(self, name: str) -> str:
        """Return a selector that excludes the other operator's MPIJobs of the same name."""
        return f"{JOB_NAME}={name},{OPERATOR_NAME}={self.operator_name}"

    def job_of(self, pod: Pod) -> str:
        """Return the MPIJob's name."""
        meta = pod.metadata
        if meta.label(OPERATOR_NAME) == self.operator_name:
            return meta.label(JOB_NAME)
        # Older operators of both versions share labels.
        is_of_v1 = meta.controller is not None and meta.controller.api_version == "kubeflow.org/v1"
        return meta.label(OLD_JOB_NAME) if is_of_v1 is (self.resource.version == "v1") else ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the launcher, or a worker and its number."""
        meta = pod.metadata
        # The launcher of v1 is `master` by its job role.
        role = meta.label(REPLICA_TYPE) or meta.label(JOB_ROLE) or meta.label(OLD_ROLE)
        return launcher_or_worker(pod, meta.label(JOB_NAME) or meta.label(OLD_JOB_NAME), role)


def mpi_manifest(resource: Resource, spec: JobSpec, *, has_policy: bool = False) -> Manifest:
    """Return the MPIJob v2beta1 or v1 that requests `spec`.

    `has_policy` is True if the version has `launcherCreationPolicy`.
    """
    body: Manifest = {"slotsPerWorker": _slots(spec)}
    if has_policy and spec.launcher_policy:
        body["launcherCreationPolicy"] = spec.launcher_policy
    of_launcher, of_worker = _launcher(spec), _worker(spec)
    launcher = mpi_template(of_launcher, is_launcher=True, job=spec)
    worker = mpi_template(of_worker, job=spec)
    body |= {
        "runPolicy": run_policy_of(spec, clean_pods(spec), spec.workers + 1),
        "mpiReplicaSpecs": {
            "Launcher": _role(of_launcher, 1, launcher),
            "Worker": _role(of_worker, spec.workers, worker),
        },
    }
    return mpi_object(resource, spec, body, has_queue=resource.version == "v2beta1")


def mpi_object(resource: Resource, spec: JobSpec, body: Manifest, *, has_queue: bool = False) -> Manifest:
    """Return the object of an MPIJob, which Kueue admits if it `has_queue`."""
    metadata = building.job_metadata(spec, building.MPI_CHART, queue_label=has_queue)
    return building.job_object(resource, metadata, body)


def mpi_template(spec: JobSpec, *, is_launcher: bool = False, job: JobSpec | None = None) -> Manifest:
    """Return the template of a pod that runs `spec`; `job` is the full job if that is only a part of it."""
    # Open MPI's mpirun prefixes each line with its rank, as with `--tag-output`.
    tagged = (building.variable("OMPI_MCA_orte_tag_output", "1"),) if is_launcher else ()
    return building.pod_template(spec, MPI_CONTAINER, "mpijob", building.MPI_CHART, env=tagged, job=job)


def _role(spec: JobSpec, replicas: int, template: Manifest) -> Manifest:
    return {"replicas": replicas, "restartPolicy": building.restarts(spec), "template": template}


def clean_pods(spec: JobSpec) -> str:
    """Return the policy for pods of an MPIJob that has ended."""
    # Workers never end by themselves and would hold their GPUs for ever. `Running` keeps the launcher,
    # which has ended and whose log has the output of all ranks.
    return "Running" if spec.clean_pods == "None" else spec.clean_pods


def _slots(spec: JobSpec) -> int:
    return max(1, job_specs.role_spec(spec, "worker").gpus) if spec.slots is None else spec.slots


def _launcher(spec: JobSpec) -> JobSpec:
    plain = replace(
        spec,
        device_claim="",
        cpu="",
        memory="",
        gpus=0,
        devices={},
        gpu_topology=False,
        host_namespaces=building.with_network(spec) if spec.gpu_topology else spec.host_namespaces,
        mounts=spec.mounts if spec.mounts_on_launcher else (),
    )
    return job_specs.apply_role(job_specs.role_named(spec, LAUNCHER), plain)


def _worker(spec: JobSpec) -> JobSpec:
    plain = replace(spec, command=(), torchrun=False, debug=False, image=spec.worker_image or spec.image)
    return job_specs.apply_role(job_specs.role_named(spec, "worker"), plain)


CONFIG_FOLDER = "/etc/mpi"
_VOLUME = "mpi-job-config"

# mpirun runs this instead of ssh; `kubexec` is the sandbox's replacement for the operators' kubectl.
KUBEXEC = """#!/bin/sh
POD_NAME=$1
shift
exec kubexec "$POD_NAME" "$*"
"""

Named = tuple[tuple[str, str], ...]
# By these the launchers of older operators reach the workers.
KUBEXEC_ENV: Named = (
    ("OMPI_MCA_plm_rsh_agent", f"{CONFIG_FOLDER}/kubexec.sh"),
    ("OMPI_MCA_orte_default_hostfile", f"{CONFIG_FOLDER}/hostfile"),
)
# For a launcher without GPUs of its own.
NO_GPUS: Named = (("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", ""))


class MPIRun(msgspec.Struct, frozen=True):
    """Pods of an MPIJob with everything that its operator adds, and the rules by which they run."""

    replicas: tuple[Replica, ...]
    """The launcher first."""
    config: Manifest
    """ConfigMap with the hostfile, without namespace and owner."""
    slots: int
    clean_policy: str
    has_launcher_job: bool = True
    """False if the launcher is a bare pod, retried by its restart policy and not as in a Job."""
    waits_for_workers: bool = False
    replaces_workers: bool = False
    has_conditions: bool = True
    """False if the status is the one word `launcherStatus`."""
    problem: str = ""


@runtime_checkable
class MPIKind(RunnableKind, Protocol):
    """Kind for MPI of one of Kubeflow's operators."""

    def run_of(self, obj: Manifest) -> MPIRun:
        """Return the pods and rules that the operator makes of a job."""


def with_container(
    template: Mapping[str, Any], *, env: Named = (), mount: bool = False, **changes: Any
) -> Manifest:
    """Return a pod's spec whose first container has more variables and optionally the configuration."""
    spec: Manifest = dict(template.get("spec") or {})
    containers: Sequence[Manifest] = spec.get("containers") or ({},)
    added = [{"name": name, "value": value} for name, value in env]
    first: Manifest = {**containers[0], **changes, "env": [*(containers[0].get("env") or ()), *added]}
    if mount:
        mounts = first.get("volumeMounts") or ()
        first["volumeMounts"] = [*mounts, {"name": _VOLUME, "mountPath": CONFIG_FOLDER}]
    spec["containers"] = [first, *containers[1:]]
    return spec


def with_config(spec: Manifest, config: str, modes: Mapping[str, int]) -> Manifest:
    """Return a pod's spec with files of a ConfigMap as the volume that `with_container` mounts."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    volume = {"name": _VOLUME, "configMap": {"name": config, "items": items}}
    return {**spec, "volumes": [*(spec.get("volumes") or ()), volume]}


def slots_per_worker(spec: Mapping[str, Any]) -> int:
    """Return the number of ranks of each worker."""
    slots = count_of(spec.get("slotsPerWorker"))
    return 1 if slots is None else slots


def config_map(name: str, labels: Mapping[str, str], files: Mapping[str, str]) -> Manifest:
    """Return a ConfigMap that holds files."""
    meta = {"name": name, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(files)}


def hostfile(hosts: Sequence[str], slots: int) -> str:
    """Return the hosts with their slots, in the format of Open MPI."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def launcher_and_workers(obj: Manifest, *, launcher_name: str) -> tuple[Replica, ...]:
    """Return the pods of `mpiReplicaSpecs`, the launcher first.

    mpirun assigns the ranks, which are observed in the launcher's log. A job that succeeded has no
    workers left: its ranks follow from its slots.
    """
    spec = nested(obj, "spec")
    roles = replica_specs(obj, "mpiReplicaSpecs")
    slots = slots_per_worker(spec) if _has_succeeded(obj) else 0
    launchers = 1 if spec.get("runLauncherAsWorker") is True else 0
    name = nested(obj, "metadata").get("name")
    found = []
    for role in ("launcher", "worker"):
        role_spec = nested(roles, role.capitalize())
        template = nested(role_spec, "template")
        is_launcher = role == "launcher"
        processes = 0 if is_launcher and not launchers else slots
        earlier = 0 if is_launcher else launchers
        for index in range(replica_count(role_spec.get("replicas")) if role_spec else 0):
            found.append(
                make_replica(
                    role,
                    index,
                    template,
                    name=launcher_name if is_launcher else f"{name}-worker-{index}",
                    is_chief=is_launcher,
                    ranks=ranks_from((earlier + index) * processes, processes),
                    ranks_proof="assumed",
                    restart_policy=role_spec.get("restartPolicy"),
                )
            )
    return tuple(found)


def _has_succeeded(obj: Manifest) -> bool:
    conditions = nested(obj, "status").get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(each, dict) and each.get("type") == "Succeeded" and each.get("status") == "True"
        for each in conditions
    )


def launcher_or_worker(pod: Pod, job_name: str, role: str) -> tuple[str, int] | None:
    """Return the role and index of a pod whose label says `role`."""
    if role == "launcher":
        return role, 0
    # The label counts from one if the launcher works too; the name always counts from zero.
    index = parse_integer(pod.metadata.name.removeprefix(f"{job_name}-worker-"))
    if index is None:
        index = parse_integer(pod.metadata.label(REPLICA_INDEX))
    return (role, index) if role and index is not None else None
