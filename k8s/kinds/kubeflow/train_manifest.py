"""The manifest of a TrainJob, and back to the spec.

A TrainJob says what it runs and on how many nodes. Of the pods it may say only what `runtimePatches` have
a place for; the rest is its runtime's. Source: kubeflow/trainer v2.3.0, `pkg/apis/trainer/v1alpha1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import Manifest
from k8s.kinds.from_manifest import take_template, unique
from k8s.kinds.parse import count_of, nested, replica_count, text_of
from k8s.kinds.pods.labels import job_metadata, take_job_metadata
from k8s.kinds.pods.rendezvous import rendezvous_env, take_rendezvous
from k8s.kinds.pods.understood import drop_defaults, named
from k8s.kinds.to_manifest import PodShape, job_object, pod_template
from k8s.models.resources import TRAINING_RUNTIMES, Resource

TRAIN_SHAPE = PodShape(container="node", app="trainjob")
_TORCH_RUNTIME, _MPI_RUNTIME = "torch-distributed", "deepspeed-distributed"
"""The runtimes that Kubeflow Trainer installs: for torchrun, and with mpirun and a launcher."""
_GROUP = "trainer.kubeflow.org"
_OF_NAMESPACE = "trainingruntime/"
"""What the name of a runtime begins with that is in the job's namespace."""
_REFERENCE = frozenset({"apiGroup", "kind", "name"})
_MANAGER = "gpuconsole.dev/console"
"""Who patches the runtime: tells our patch from others."""
_TRAINER_FIELDS = {"image": "image", "command": "command", "env": "env", "resources": "resourcesPerNode"}
"""Fields of a container that the trainer has, and what it calls them."""
_POD_PATCHES = ("volumes", "nodeSelector", "affinity", "tolerations", "imagePullSecrets", "securityContext")
_CONTAINER_PATCHES = ("volumeMounts", "securityContext")
"""Patches cannot add a container, nor an init container: they only change those of the runtime."""
_PORT = 29500
_IN_FOLDER = ("sh", "-c", 'mkdir -p "$0" && cd "$0" && exec "$@"')
"""Runs a command in a folder: a TrainJob cannot name the working directory. Folder and command follow."""


def train_manifest(resource: Resource, spec: JobSpec) -> Manifest:
    """Return the TrainJob that asks for `spec`."""
    template = pod_template(spec, TRAIN_SHAPE, env=rendezvous_env(spec, _endpoint(spec.name)))
    pod = template["spec"]
    container = pod["containers"][0]
    folder = container.pop("workingDir", "")
    if folder and "command" in container:
        container["command"] = [*_IN_FOLDER, folder, *container["command"]]
    is_mpi = _is_mpi(spec)
    runtime, runtime_name = runtime_of(spec)
    body: Manifest = {
        "runtimeRef": {"apiGroup": _GROUP, "kind": runtime.kind, "name": runtime_name},
        "trainer": {
            **{name: container[key] for key, name in _TRAINER_FIELDS.items() if key in container},
            "numNodes": spec.workers,
            "numProcPerNode": spec.processes if spec.slots is None else spec.slots,
        },
    }
    if patch := _patch(template):
        roles = ("launcher", "node") if is_mpi else ("node",)
        body["runtimePatches"] = [_runtime_patch(roles, patch)]
    if spec.running_timeout_s:
        body["activeDeadlineSeconds"] = spec.running_timeout_s
    if spec.suspend:
        body["suspend"] = True
    return job_object(resource, job_metadata(spec), body)


def runtime_of(spec: JobSpec) -> tuple[Resource, str]:
    """Return which kind of runtime a job wants, and its name."""
    of_cluster, of_namespace = TRAINING_RUNTIMES
    if spec.runtime.startswith(_OF_NAMESPACE):
        return of_namespace, spec.runtime.removeprefix(_OF_NAMESPACE)
    return of_cluster, spec.runtime or (_TORCH_RUNTIME if spec.slots is None else _MPI_RUNTIME)


def spec_of_train(obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec for a TrainJob like this one, and what it leaves out."""
    obj = deepcopy(obj)
    meta = take_job_metadata(obj.pop("metadata", None) or {})
    spec = obj.pop("spec", None) or {}
    runtime = _take_runtime(spec)
    drop_defaults(spec, {"managedBy": "trainer.kubeflow.org/trainjob-controller"})
    trainer = spec.pop("trainer", None) or {}
    template, has_launcher = _take_patch(spec)
    pod = template.setdefault("spec", {})
    container = (pod.get("containers") or [{}])[0]
    pod["containers"] = [container]
    container["name"] = TRAIN_SHAPE.container
    for key, name in _TRAINER_FIELDS.items():
        if name in trainer:
            container[key] = trainer.pop(name)
    command = [str(word) for word in [*(container.get("command") or ()), *(trainer.pop("args", None) or ())]]
    working_dir = ""
    if tuple(command[: len(_IN_FOLDER)]) == _IN_FOLDER and len(command) > len(_IN_FOLDER):
        working_dir, command = command[len(_IN_FOLDER)], command[len(_IN_FOLDER) + 1 :]
    container |= {"command": command, "workingDir": working_dir}
    found = take_template(template, TRAIN_SHAPE.container, meta.fields)
    fields = {**meta.fields, **found.fields}
    fields |= take_rendezvous(fields["env"], _endpoint(fields["name"]))
    processes = count_of(trainer.pop("numProcPerNode", None)) or max(1, fields["gpus"])
    is_mpi = has_launcher or runtime == _MPI_RUNTIME
    fields |= {"slots": processes} if is_mpi else {"processes": processes}
    fields["runtime"] = "" if runtime == (_MPI_RUNTIME if is_mpi else _TORCH_RUNTIME) else runtime
    job_spec = JobSpec(
        **fields,
        workers=replica_count(trainer.pop("numNodes", None)),
        running_timeout_s=count_of(spec.pop("activeDeadlineSeconds", 0)) or 0,
        suspend=spec.pop("suspend", False) is True,
    )
    lost = named(obj, "apiVersion", "kind", "status") + meta.lost + named(spec)
    return job_spec, unique(lost + named(trainer, prefix="trainer.") + found.lost)


def _is_mpi(spec: JobSpec) -> bool:
    return spec.slots is not None or spec.runtime == _MPI_RUNTIME


def _take_runtime(spec: Manifest) -> str:
    """Take the runtime, as a spec names it; one of other kinds stays."""
    reference = spec.get("runtimeRef") or {}
    kinds = {kind.kind: prefix for kind, prefix in zip(TRAINING_RUNTIMES, ("", _OF_NAMESPACE), strict=True)}
    prefix = kinds.get(text_of(reference.get("kind")) or TRAINING_RUNTIMES[0].kind)
    if prefix is None or reference.get("apiGroup", _GROUP) != _GROUP or set(reference) - _REFERENCE:
        return ""
    spec.pop("runtimeRef", None)
    return prefix + text_of(reference.get("name"))


def _endpoint(name: str) -> str:
    return f"{name}-node-0-0.{name}:{_PORT}"


def _patch(template: Manifest) -> Manifest:
    """Return what patches may say of a pod template; nothing where they need not say anything."""
    pod = template["spec"]
    main = pod["containers"][0]
    patched = {key: main[key] for key in _CONTAINER_PATCHES if key in main}
    found = {key: pod[key] for key in _POD_PATCHES if key in pod}
    if patched:
        found["containers"] = [{"name": main["name"], **patched}]
    parts = {"metadata": template.get("metadata"), "spec": found}
    return {key: value for key, value in parts.items() if value}


def _runtime_patch(roles: tuple[str, ...], patch: Manifest) -> Manifest:
    jobs = [{"name": role, "template": {"spec": {"template": deepcopy(patch)}}} for role in roles]
    return {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _take_patch(spec: Manifest) -> tuple[Manifest, bool]:
    """Take our patch out of a TrainJob; whatever else patches it stays.

    Returns:
        The patch as a pod template, and whether it is for a launcher too.
    """
    patches = spec.get("runtimePatches") or ()
    ours: Mapping[str, Any] = next((each for each in patches if each.get("manager") == _MANAGER), {})
    jobs = nested(ours, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs") or ()
    if not jobs:
        return {}, False
    found: Manifest = deepcopy(dict(nested(jobs[0], "template", "spec", "template")))
    roles = tuple(str(each.get("name")) for each in jobs)
    if {**ours, "time": ""} != {**_runtime_patch(roles, found), "time": ""}:
        return {}, False
    spec["runtimePatches"] = [each for each in patches if each is not ours]
    return found, "launcher" in roles
