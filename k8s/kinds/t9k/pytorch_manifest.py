"""The manifest of TensorStack's PyTorchTrainingJob, and back to the spec: see `common` for the source.

Where torchrun is on, the operator writes its command line: a container has the script and its arguments.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from k8s.job_spec import JobSpec, Mount, role_sizes, role_spec
from k8s.kinds.base import Manifest
from k8s.kinds.from_manifest import take_template, unique
from k8s.kinds.parse import count_of, replica_count, text_of
from k8s.kinds.pods.command import ANY_PROGRAM, is_script
from k8s.kinds.pods.env import variable
from k8s.kinds.pods.labels import job_metadata, take_job_metadata
from k8s.kinds.pods.rendezvous import rendezvous_env, take_rendezvous
from k8s.kinds.pods.understood import Understood, drop_defaults, named
from k8s.kinds.roles import TakenRole, fields_of_roles, with_worker_image
from k8s.kinds.to_manifest import PodShape, job_object, pod_template, restarts
from k8s.models.resources import Resource

T9K_SHAPE = PodShape(container="python", app="pytorchtrainingjob")
RESTARTS = 3
"""The backoff limit of a job that names none."""
_PROCESSES = "PET_NPROC_PER_NODE"
_PACKAGED = ("python", "-P", "-m", "trainer.launch")
"""How the command of a packaged trainer begins: what follows is torchrun's to start."""
_CLEAN_PODS = {"None": "None", "Running": "Unfinished", "All": "All"}


def t9k_manifest(resource: Resource, spec: JobSpec) -> Manifest:
    """Return the PyTorchTrainingJob that asks for `spec`; workers with an image of their own are a role."""
    body: Manifest = {}
    if spec.tensorboard and (tensorboard := _tensorboard(spec)):
        body["tensorboardSpec"] = tensorboard
    # torchrun's options are one set for all roles.
    arguments = _arguments(role_spec(spec, spec.roles[0].name) if spec.roles else spec)
    if arguments is not None:
        body["torchrunConfig"] = _torchrun_config(spec, arguments)
    if spec.elastic_min is not None:
        body["elastic"] = {
            "enabled": True,
            "minReplicas": spec.elastic_min,
            "maxReplicas": spec.elastic_max,
            "expectedReplicas": spec.workers,
        }
    modes = {name: {"enabled": True} for name, is_on in _modes(spec).items() if is_on}
    if modes:
        body["runMode"] = modes
    policy: Manifest = {"backoffLimit": spec.retries, "cleanUpPolicy": _CLEAN_PODS[spec.clean_pods]}
    if spec.running_timeout_s:
        policy["activeDeadlineSeconds"] = spec.running_timeout_s
    body["runPolicy"] = policy
    if spec.queue:
        body["scheduler"] = {"t9kScheduler": {"queue": spec.queue}}
    return job_object(
        resource,
        job_metadata(replace(spec, tensorboard=False), queue_label=False),
        {**body, "replicaSpecs": _replica_specs(spec, arguments)},
    )


def spec_of_t9k(obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the spec for a PyTorchTrainingJob like this one, and what it leaves out."""
    obj = deepcopy(obj)
    meta = take_job_metadata(obj.pop("metadata", None) or {})
    spec = obj.pop("spec", None) or {}
    torchrun = spec.pop("torchrunConfig", None) or {}
    is_torchrun = torchrun.pop("enabled", False) is True
    is_elastic = (spec.get("elastic") or {}).get("enabled") is True
    roles = spec.pop("replicaSpecs", None) or []
    pods, workers = _take_replica_specs(roles, meta.fields, is_elastic=is_elastic)
    parts = [meta, pods, _take_policy(spec), _take_tensorboard(spec, pods.fields["mounts"])]
    fields = {name: value for part in parts for name, value in part.fields.items()}
    if is_torchrun:
        parts.append(_take_torchrun(torchrun, fields))
    else:
        parts.append(Understood(_take_variables(fields["env"]), named(torchrun, prefix="torchrunConfig.")))
    fields |= parts[-1].fields
    elastic = spec.pop("elastic", None) or {}
    lost = named(obj, "apiVersion", "kind", "status") + [name for part in parts for name in part.lost]
    if elastic.pop("enabled", False) is True and elastic.get("minReplicas") and elastic.get("maxReplicas"):
        fields |= {"elastic_min": elastic.pop("minReplicas"), "elastic_max": elastic.pop("maxReplicas")}
        workers = replica_count(elastic.pop("expectedReplicas", workers))
    fields.setdefault("processes", max(1, fields["gpus"]))
    if fields["restart_policy"] == ("OnFailure" if fields["retries"] else "Never"):
        fields["restart_policy"] = ""
    lost += named(elastic, prefix="elastic.") + named(spec)
    return JobSpec(**fields, workers=workers), unique(lost)


def _modes(spec: JobSpec) -> dict[str, bool]:
    return {"debug": spec.debug, "pause": spec.suspend}


def _arguments(spec: JobSpec) -> tuple[str, ...] | None:
    """Return what torchrun is to start; None where the command starts its processes by itself."""
    if spec.trainer and spec.command[: len(_PACKAGED)] == _PACKAGED:
        return spec.command[len(_PACKAGED) :]
    return spec.command if spec.torchrun and not spec.trainer else None


def _torchrun_config(spec: JobSpec, arguments: tuple[str, ...]) -> Manifest:
    options = [] if spec.trainer else list(spec.torchrun_options)
    if arguments and not is_script(arguments):
        options.append(ANY_PROGRAM)
    found: Manifest = {
        "enabled": True,
        "maxRestarts": spec.max_restarts,
        "procPerNode": str(spec.processes),
        "rdzvBackend": spec.rdzv_backend,
        "extraOptions": options,
    }
    return {key: value for key, value in found.items() if value != ""}


def _replica_specs(spec: JobSpec, arguments: tuple[str, ...] | None) -> list[Manifest]:
    """Return the roles; the first pod of the first one decides how the job ends."""
    if spec.roles:
        sizes = zip(spec.roles, role_sizes(spec.roles, spec.workers), strict=True)
        found = [(role, role_spec(spec, role.name), size) for role, size in sizes]
        return [_role(of_role, role.name, size, _arguments(of_role)) for role, of_role, size in found]
    if not spec.worker_image or spec.workers == 1:
        return [_role(spec, "node", spec.workers, arguments)]
    workers = role_spec(spec, "worker")
    return [_role(spec, "master", 1, arguments), _role(workers, "worker", spec.workers - 1, arguments)]


def _role(spec: JobSpec, name: str, replicas: int, arguments: tuple[str, ...] | None) -> Manifest:
    """Return a role whose pods run the command, or whose containers hold torchrun's arguments."""
    env = []
    if arguments is None:
        env = [*rendezvous_env(spec, ""), variable(_PROCESSES, str(spec.processes))]
    # The operator has a debug mode of its own.
    plain = replace(spec, debug=False, torchrun=False)
    template = pod_template(plain if arguments is None else replace(plain, command=()), T9K_SHAPE, env=env)
    if arguments:
        template["spec"]["containers"][0]["args"] = list(arguments)
    return {"type": name, "replicas": replicas, "restartPolicy": restarts(spec), "template": template}


def _tensorboard(spec: JobSpec) -> Manifest:
    """Return what runs TensorBoard on the event files; nothing where they are in no volume claim."""
    for mount in spec.mounts:
        folder = PurePosixPath(posixpath.join(spec.working_dir or "/", spec.log_dir))
        if folder.is_relative_to(mount.path):
            path = PurePosixPath(mount.sub_path) / folder.relative_to(mount.path)
            found: Manifest = {"logDir": {"pvc": [{"name": mount.claim, "subPath": [str(path)]}]}}
            return found | ({"image": spec.tensorboard_image} if spec.tensorboard_image else {})
    return {}


def _take_tensorboard(spec: Manifest, mounts: tuple[Mount, ...]) -> Understood:
    """Take the TensorBoard that reads one folder of a claim that the job mounts."""
    tensorboard = spec.pop("tensorboardSpec", None) or {}
    claims = (tensorboard.get("logDir") or {}).get("pvc") or [{}]
    paths = claims[0].get("subPath") or [""]
    mount = next((each for each in mounts if each.claim == claims[0].get("name")), None)
    if not tensorboard or mount is None or len(claims) > 1 or len(paths) > 1:
        return Understood({}, ["tensorboardSpec"] if tensorboard else [])
    log_dir = tensorboard.pop("logDir")
    folder = PurePosixPath(text_of(paths[0]))
    if mount.sub_path and folder.is_relative_to(mount.sub_path):
        folder = folder.relative_to(mount.sub_path)
    image = text_of(tensorboard.pop("image", ""))
    fields = {
        "tensorboard": True,
        "tensorboard_image": image,
        "log_dir": str(PurePosixPath(mount.path) / folder),
    }
    lost = named(log_dir, "pvc", prefix="logDir.") + named(claims[0], "name", "subPath", prefix="logDir.")
    return Understood(fields, lost + named(tensorboard, prefix="tensorboardSpec."))


def _take_policy(spec: Manifest) -> Understood:
    """Take the run policy, the run modes and the queue."""
    policy = spec.pop("runPolicy", None) or {}
    mode = spec.pop("runMode", None) or {}
    scheduler = spec.pop("scheduler", None) or {}
    t9k = scheduler.pop("t9kScheduler", None) or {}
    clean = {theirs: ours for ours, theirs in _CLEAN_PODS.items()}
    retries = count_of(policy.pop("backoffLimit", RESTARTS))
    fields: dict[str, Any] = {
        "retries": RESTARTS if retries is None else retries,
        "clean_pods": clean.get(text_of(policy.pop("cleanUpPolicy", "None")), "None"),
        "running_timeout_s": count_of(policy.pop("activeDeadlineSeconds", 0)) or 0,
        "queue": text_of(t9k.pop("queue", "")),
    }
    lost = named(policy) + named(scheduler, prefix="scheduler.") + named(t9k, prefix="t9kScheduler.")
    for name, field in (("debug", "debug"), ("pause", "suspend")):
        part = mode.pop(name, None) or {}
        fields[field] = part.pop("enabled", False) is True
        lost += named(part, prefix=f"runMode.{name}.")
    lost += named(mode, prefix="runMode.")
    return Understood(fields, lost)


def _take_torchrun(torchrun: Manifest, fields: Mapping[str, Any]) -> Understood:
    """Take torchrun's configuration; the containers' words are what it starts."""
    options = [str(each) for each in torchrun.pop("extraOptions", None) or ()]
    processes = str(torchrun.pop("procPerNode", None) or "1")
    command = tuple(fields["command"])
    is_packaged = bool(fields["trainer"]) and not options and command[:1] == ("-m",)
    found: dict[str, Any] = {
        "max_restarts": count_of(torchrun.pop("maxRestarts", 0)) or 0,
        "rdzv_backend": text_of(torchrun.pop("rdzvBackend", "")),
        "processes": int(processes) if processes.isdecimal() else max(1, fields["gpus"]),
        "torchrun": not is_packaged,
        "command": (*_PACKAGED, *command) if is_packaged else command,
    }
    if not is_script(command):
        drop = options[-1:] == [ANY_PROGRAM]
        options = options[:-1] if drop else options
    found["torchrun_options"] = tuple(options)
    return Understood(found, named(torchrun, prefix="torchrunConfig."))


def _take_variables(env: dict[str, str]) -> dict[str, Any]:
    """Take what a command that starts its own processes is told."""
    found = take_rendezvous(env, "")
    if env.get(_PROCESSES, "").isdecimal() and 0 < int(env[_PROCESSES]) < 1025:
        found["processes"] = int(env.pop(_PROCESSES))
    return found


def _take_replica_specs(
    roles: list[Manifest], job: Mapping[str, Any], *, is_elastic: bool
) -> tuple[Understood, int]:
    """Take the roles, and count their pods."""
    taken: list[TakenRole] = []
    lost: list[str] = []
    for role in roles or [{}]:
        name = text_of(role.pop("type", "")) or "node"
        count = replica_count(role.pop("replicas", None))
        template = role.pop("template", None) or {}
        drop_defaults(template.get("spec") or {}, {"restartPolicy": "Never"})
        containers = (template.get("spec") or {}).get("containers") or [{}]
        is_argued = "command" not in containers[0] and "args" in containers[0]
        if is_argued:
            containers[0]["command"] = containers[0].pop("args")
        fields, left = take_template(template, T9K_SHAPE.container, job)
        fields["restart_policy"] = text_of(role.pop("restartPolicy", "")) or "Always"
        taken.append(TakenRole(name, count, fields))
        lost += left + named(role)
    found = fields_of_roles(taken, is_elastic=is_elastic)
    fields, workers = found.fields, max(1, sum(each.replicas or 0 for each in taken))
    names = [each.name for each in taken]
    if is_elastic:
        lost += [f"role {name}" for name in (names if names[0] != "node" else names[1:])]
    if names == ["node"]:
        fields["roles"] = ()
    elif names == ["master", "worker"] and taken[0].replicas == 1:
        fields = with_worker_image(fields)
    return Understood(fields, lost + found.lost), workers
