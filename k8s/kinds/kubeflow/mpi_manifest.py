"""The manifests of MPIJobs in all versions, and back to the spec.

The launcher runs the command and asks for no devices; the workers run what the operator starts in a
container without a command: sshd (v2beta1), or a sleep into which it execs (v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from k8s.job_spec import LAUNCHER, JobSpec, Role, role_named, role_spec
from k8s.kinds.base import NO_RUNTIME, Manifest
from k8s.kinds.from_manifest import take_template, unique
from k8s.kinds.kubeflow.common import run_policy_of, take_run_policy
from k8s.kinds.parse import count_of, replica_count
from k8s.kinds.pods.env import variable
from k8s.kinds.pods.labels import MPI_CHART, job_metadata, take_job_metadata
from k8s.kinds.pods.understood import Understood, drop_defaults, named
from k8s.kinds.roles import with_worker_image
from k8s.kinds.to_manifest import PodShape, job_object, pod_template, restarts
from k8s.models.resources import Resource

MPI_SHAPE = PodShape(container="mpi", app="mpijob", chart=MPI_CHART)
_TAGGED = (variable("OMPI_MCA_orte_tag_output", "1"),)
"""For Open MPI's mpirun: say before each line which rank prints it, as `--tag-output` does."""
_NO_TORCHRUN = "MPI starts the ranks, not torchrun."
_NOT_ELASTIC = "An MPIJob has as many workers as it says, from start to end."
NOT_OF_MPI: Mapping[str, str] = {
    "runtime": NO_RUNTIME,
    "processes": "MPI starts as many ranks per worker as it has slots: say how many as slots.",
    "torchrun": _NO_TORCHRUN,
    "max_restarts": _NO_TORCHRUN,
    "rdzv_backend": _NO_TORCHRUN,
    "torchrun_options": _NO_TORCHRUN,
    "elastic_min": _NOT_ELASTIC,
    "elastic_max": _NOT_ELASTIC,
}
"""What no MPIJob has, whatever its version."""
MPI_ROLES = (LAUNCHER, "worker")
_LAUNCHERS_OWN = ("image", "command", "debug", "working_dir", "torchrun", "torchrun_options")
"""Fields of a job that its launcher tells; the others its workers do."""
_AMOUNTS = ("gpus", "cpu", "memory", "cpu_request", "memory_request")
"""Fields of a launcher's role that are nothing unless it says so."""
_DEVICES = ("devices", "device_claim", "rdma")
"""Fields that no launcher has."""
_ALIKE = (
    *("pull_policy", "pull_secrets", "env", "env_from", "host_mounts", "priority_class"),
    *("scheduler", "node_selector", "excluded_nodes", "tolerations", "host_ipc", "host_pid", "run_as_user"),
)
"""Fields that launcher and workers share."""


def mpi_manifest(resource: Resource, spec: JobSpec, *, has_policy: bool = False) -> Manifest:
    """Return the MPIJob that asks for `spec`.

    Args:
        resource: Its version: v2beta1 or v1.
        spec: The job.
        has_policy: The version lets one say when the launcher is created.
    """
    body: Manifest = {"slotsPerWorker": _slots(spec)}
    if has_policy and spec.launcher_policy:
        body["launcherCreationPolicy"] = spec.launcher_policy
    of_launcher, of_worker = _launcher(spec), _worker(spec)
    launcher = pod_template(of_launcher, MPI_SHAPE, env=_TAGGED, whole=spec)
    worker = pod_template(of_worker, MPI_SHAPE, whole=spec)
    body |= {
        "runPolicy": run_policy_of(spec, clean_pods(spec), spec.workers + 1),
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": restarts(of_launcher), "template": launcher},
            "Worker": {"replicas": spec.workers, "restartPolicy": restarts(of_worker), "template": worker},
        },
    }
    return _object(resource, spec, body)


def arena_mpi_manifest(resource: Resource, spec: JobSpec) -> Manifest:
    """Return the MPIJob v1alpha1 that asks for `spec`, as Arena's chart has it: one template for all."""
    template = pod_template(spec, MPI_SHAPE, env=_TAGGED)
    template["spec"]["restartPolicy"] = spec.restart_policy or "Never"
    body = {
        "cleanPodPolicy": clean_pods(spec),
        "launcherResources": {},
        "backoffLimit": spec.retries,
        "replicas": spec.workers,
        "mountsOnLauncher": spec.mounts_on_launcher,
        "template": template,
    }
    return _object(resource, spec, body)


def clean_pods(spec: JobSpec) -> str:
    """Return which pods go when an MPIJob ends.

    Its workers never end by themselves: kept, they would hold their GPUs for ever. All that the ranks
    said is in the launcher's log, and the launcher has ended, so that `Running` keeps it.
    """
    return "Running" if spec.clean_pods == "None" else spec.clean_pods


def spec_of_mpi(obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec for an MPIJob v2beta1 or v1 like this one, and what it leaves out."""
    obj = deepcopy(obj)
    meta = take_job_metadata(obj.pop("metadata", None) or {})
    spec = obj.pop("spec", None) or {}
    drop_defaults(spec, _DEFAULTS)
    roles = spec.pop("mpiReplicaSpecs", None) or {}
    policy = spec.pop("runPolicy", None) or {}
    if "cleanPodPolicy" in spec:
        policy.setdefault("cleanPodPolicy", spec.pop("cleanPodPolicy"))
    expected = "OnFailure" if policy.get("backoffLimit") else "Never"
    pods, workers = _take_roles(roles, expected, meta.fields)
    rules = take_run_policy(policy, pods.fields["priority_class"])
    slots = count_of(spec.pop("slotsPerWorker", None)) or 1
    found = {**meta.fields, **pods.fields, **rules.fields}
    found["gang"] = pods.fields["gang"] or rules.fields.get("gang", False)
    found["slots"] = None if slots == max(1, found["gpus"]) else slots
    found["launcher_policy"] = str(spec.pop("launcherCreationPolicy", None) or "")
    lost = named(obj, "apiVersion", "kind", "status") + meta.lost + named(spec) + rules.lost + pods.lost
    return JobSpec(**found, workers=workers), unique(lost)


def spec_of_arena_mpi(obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec for an MPIJob v1alpha1 like this one, and what it leaves out."""
    obj = deepcopy(obj)
    meta = take_job_metadata(obj.pop("metadata", None) or {})
    spec = obj.pop("spec", None) or {}
    template = spec.pop("template", None) or {}
    restart_policy = (template.get("spec") or {}).pop("restartPolicy", None) or "Always"
    pod = take_template(template, MPI_SHAPE.container, meta.fields, env=_TAGGED)
    drop_defaults(spec, {"launcherOnMaster": False})
    job_spec = JobSpec(
        **meta.fields,
        **pod.fields,
        restart_policy="" if restart_policy == "Never" else restart_policy,
        workers=replica_count(spec.pop("replicas", None)),
        retries=count_of(spec.pop("backoffLimit", 0)) or 0,
        clean_pods=str(spec.pop("cleanPodPolicy", None) or "All"),
        mounts_on_launcher=spec.pop("mountsOnLauncher", False) is True,
    )
    lost = named(obj, "apiVersion", "kind", "status") + meta.lost + named(spec) + pod.lost
    return job_spec, unique(lost)


_NO_COMMAND = "command of the image"
_DEFAULTS: Manifest = {
    "launcherCreationPolicy": "AtStartup",
    "mpiImplementation": "OpenMPI",
    "runLauncherAsWorker": False,
    "sshAuthMountPath": "/root/.ssh",
    "mainContainer": MPI_SHAPE.container,
}
"""What servers fill in."""


def _take_roles(roles: Manifest, restart_policy: str, job: Mapping[str, Any]) -> tuple[Understood, int]:
    """Take the launcher and the workers, and count those."""
    launcher, worker = (roles.pop(role, None) or {} for role in ("Launcher", "Worker"))
    workers = replica_count(worker.pop("replicas", None))
    drop_defaults(launcher, {"replicas": 1})
    policies = [part.pop("restartPolicy", None) or "" for part in (launcher, worker)]
    of_launcher = take_template(launcher.pop("template", None) or {}, MPI_SHAPE.container, job, env=_TAGGED)
    of_worker = take_template(worker.pop("template", None) or {}, MPI_SHAPE.container, job)
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
    return Understood(fields, lost), workers


def _own_roles(
    launcher: Mapping[str, Any], worker: Mapping[str, Any], policies: list[str]
) -> tuple[Role, ...]:
    """Return what is otherwise: the job's command is the launcher's, its resources are the workers'."""
    amounts = {name: launcher[name] for name in _AMOUNTS if launcher[name]}
    own = {name: worker[name] for name in ("image", "working_dir") if worker[name] != launcher[name]}
    if worker["command"]:
        own["command"] = worker["command"]
    if policies[1] and policies[0] and policies[1] != policies[0]:
        own["restart_policy"] = policies[1]
    found = (Role(LAUNCHER, **amounts), Role("worker", **own))
    return tuple(role for role in found if role != Role(role.name))


def _object(resource: Resource, spec: JobSpec, body: Manifest) -> Manifest:
    has_queue = resource.version == "v2beta1"
    return job_object(resource, job_metadata(spec, MPI_CHART, queue_label=has_queue), body)


def _slots(spec: JobSpec) -> int:
    return max(1, role_spec(spec, "worker").gpus) if spec.slots is None else spec.slots


def _launcher(spec: JobSpec) -> JobSpec:
    """Return what the launcher runs: the command, on no devices but those that its role names."""
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
    return role_named(spec, LAUNCHER).of(plain)


def _worker(spec: JobSpec) -> JobSpec:
    """Return what a worker runs: what the operator starts in it."""
    plain = replace(spec, command=(), torchrun=False, debug=False, image=spec.worker_image or spec.image)
    return role_named(spec, "worker").of(plain)
