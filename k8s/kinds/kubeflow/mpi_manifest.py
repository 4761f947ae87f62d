"""Manifests of MPIJobs in all versions, and back to the spec.

The launcher runs the command and requests no devices; the workers have no command and run what the
operator starts: sshd (v2beta1), or a sleep into which it execs (v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from k8s import job_spec as job_specs
from k8s.job_spec.names import LAUNCHER
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, Manifest
from k8s.kinds.kubeflow.kubeflow_job import pop_run_policy, read_kubeflow_job, run_policy_of
from k8s.kinds.parse import ParsedPart, count_of, drop_defaults, named, replica_count
from k8s.kinds.pod_template import (
    PodShape,
    job_object,
    pod_template,
    pop_job,
    pop_template,
    restarts,
    unique,
    with_worker_image,
)
from k8s.kinds.pods.env import variable
from k8s.kinds.pods.labels import MPI_CHART, job_metadata
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.job_spec import JobSpec, Role

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
# Read from the launcher; all other fields from the workers.
_LAUNCHERS_OWN = ("image", "command", "debug", "working_dir", "torchrun", "torchrun_options")
# Part of a launcher's role; by default the launcher requests nothing.
_AMOUNTS = ("gpus", "cpu", "memory", "cpu_request", "memory_request")
# A launcher has none of these.
_DEVICES = ("devices", "device_claim", "rdma")
_ALIKE = (
    *("pull_policy", "pull_secrets", "env", "env_from", "host_mounts", "priority_class"),
    *("scheduler", "node_selector", "excluded_nodes", "tolerations", "host_ipc", "host_pid", "run_as_user"),
)


class KubeflowMPIJob(CreatableKind):
    """Base of MPIJobs with Kubeflow's run policy."""

    word = "mpi"
    aliases = ("mpijob",)
    launcher = "mpirun"
    suspend_field = "spec.runPolicy.suspend"
    role_names = MPI_ROLES

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for an MPIJob like this one, and what it leaves out."""
        meta, spec = pop_job(obj)
        drop_defaults(spec, _DEFAULTS)
        roles = spec.pop("mpiReplicaSpecs", None) or {}
        policy = spec.pop("runPolicy", None) or {}
        if "cleanPodPolicy" in spec:
            policy.setdefault("cleanPodPolicy", spec.pop("cleanPodPolicy"))
        expected = "OnFailure" if policy.get("backoffLimit") else "Never"
        pods, workers = _pop_roles(roles, expected, meta.fields)
        rules = pop_run_policy(policy, pods.fields["priority_class"])
        slots = count_of(spec.pop("slotsPerWorker", None)) or 1
        found = {**meta.fields, **pods.fields, **rules.fields}
        found["gang"] = pods.fields["gang"] or rules.fields.get("gang", False)
        found["slots"] = None if slots == max(1, found["gpus"]) else slots
        found["launcher_policy"] = str(spec.pop("launcherCreationPolicy", None) or "")
        lost = meta.lost + named(spec) + rules.lost + pods.lost
        return job_specs.JobSpec(**found, workers=workers), unique(lost)

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


_NO_COMMAND = "command of the image"
_DEFAULTS: Manifest = {
    "launcherCreationPolicy": "AtStartup",
    "mpiImplementation": "OpenMPI",
    "runLauncherAsWorker": False,
    "sshAuthMountPath": "/root/.ssh",
    "mainContainer": MPI_SHAPE.container,
}


def _pop_roles(roles: Manifest, restart_policy: str, job: Mapping[str, Any]) -> tuple[ParsedPart, int]:
    launcher, worker = (roles.pop(role, None) or {} for role in ("Launcher", "Worker"))
    workers = replica_count(worker.pop("replicas", None))
    drop_defaults(launcher, {"replicas": 1})
    policies = [part.pop("restartPolicy", None) or "" for part in (launcher, worker)]
    of_launcher = pop_template(launcher.pop("template", None) or {}, MPI_SHAPE.container, job, env=TAGGED)
    of_worker = pop_template(worker.pop("template", None) or {}, MPI_SHAPE.container, job)
    lost = of_launcher.lost + [name for name in of_worker.lost if name != _NO_COMMAND]
    roles_of_job = _own_roles(of_launcher.fields, of_worker.fields, policies)
    lost += named(launcher) + named(worker) + named(roles, prefix="role ")
    lost += [
        f"the workers' own {name.replace('_', ' ')}"
        for name in _ALIKE
        if of_launcher.fields[name] != of_worker.fields[name]
    ]
    lost += [f"the launcher's own {name.replace('_', ' ')}" for name in _DEVICES if of_launcher.fields[name]]
    fields = of_worker.fields | {name: of_launcher.fields[name] for name in _LAUNCHERS_OWN}
    fields = with_worker_image(fields | {"roles": roles_of_job, "worker_image": ""})
    fields["mounts_on_launcher"] = bool(of_launcher.fields["mounts"])
    if fields["mounts_on_launcher"] and of_launcher.fields["mounts"] != fields["mounts"]:
        lost.append("the launcher's own mounts")
    if policies[0] not in ("", restart_policy):
        fields["restart_policy"] = policies[0]
    return ParsedPart(fields, lost), workers


def _own_roles(
    launcher: Mapping[str, Any], worker: Mapping[str, Any], policies: list[str]
) -> tuple[Role, ...]:
    # The job's command is the launcher's, its resources are the workers'.
    amounts = {name: launcher[name] for name in _AMOUNTS if launcher[name]}
    own = {name: worker[name] for name in ("image", "working_dir") if worker[name] != launcher[name]}
    if worker["command"]:
        own["command"] = worker["command"]
    if policies[1] and policies[0] and policies[1] != policies[0]:
        own["restart_policy"] = policies[1]
    found = (job_specs.Role(LAUNCHER, **amounts), job_specs.Role("worker", **own))
    return tuple(role for role in found if role != job_specs.Role(role.name))


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
