"""Objects that Arena creates with a job: its TensorBoard, and the record that `arena delete` needs.

Source: arena v0.15.5, charts pytorchjob 0.5.2 and mpijob 0.28.0, and the objects they create.
Unlike Arena's, this TensorBoard only prefers the nodes of the job instead of waiting for them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from k8s.kinds import CreatableKind, Manifest
from k8s.kinds.job_spec import JobSpec
from k8s.kinds.pod_code import GIT_PREFIX, strip_credentials
from k8s.kinds.pod_labels import ARENA_UID, arena_uid
from k8s.models.quantity import request_and_limit
from k8s.models.resources import DEPLOYMENTS, SERVICES, Resource
from k8s.text.redact import names_secret
from k8s.text.yaml_writer import to_yaml

# Chart versions by Arena's types of jobs that can be created here.
CHARTS: Mapping[str, str] = {"pytorchjob": "0.5.2", "mpijob": "0.28.0"}
TENSORBOARD_IMAGE = "tensorflow/tensorflow:2.18.0"
PORT = 6006


def arena_type(resource: Resource) -> str:
    """Return Arena's name for a kind of job; empty for kinds that it does not have."""
    name = resource.kind.lower()
    return name if resource.group == "kubeflow.org" and name in CHARTS else ""


def arena_record(resource: Resource, spec: JobSpec, *, has_tensorboard: bool) -> Manifest | None:
    """Return the ConfigMap; None for a kind that Arena does not have."""
    type_ = arena_type(resource)
    if not type_:
        return None
    made = [f"{type_}.{resource.group}/{spec.name}"]
    if has_tensorboard:
        made = [f"service/{spec.name}-tensorboard", f"deployment.apps/{spec.name}-tensorboard", *made]
    labels = {"createdBy": "arena"}
    if spec.user:  # required by `arena delete` where Arena separates users
        labels[ARENA_UID] = arena_uid(spec.user)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{spec.name}-{type_}", "labels": labels},
        "data": {"app": "\n".join(made), type_: CHARTS[type_], "values": to_yaml(_values(type_, spec))},
    }


def _values(type_: str, spec: JobSpec) -> dict[str, Any]:
    # Arena's values for the chart, without secrets.
    env = {
        name: value
        for name, value in spec.env.items()
        if not names_secret(name, value) and not name.startswith(GIT_PREFIX)
    }
    return {
        "trainingType": type_,
        "image": spec.image,
        "gpuCount": spec.gpus,
        "cpu": request_and_limit(spec.cpu)[1],
        "memory": request_and_limit(spec.memory)[1],
        "envs": env,
        "workingDir": spec.working_dir,
        "workers": spec.workers,
        "retry": spec.retries,
        "dataset": {mount.claim: mount.path for mount in spec.mounts},
        "priorityClassName": spec.priority_class,
        "shareMemory": spec.shared_memory,
        "cleanPodPolicy": spec.clean_pods,
        "useTensorboard": spec.tensorboard,
        "trainingLogdir": spec.log_dir,
        "syncMode": spec.sync_mode,
        "syncSource": strip_credentials(spec.sync_source),
    }


def tensorboard_name(job: str) -> str:
    """Return the name of a job's TensorBoard, of its Deployment and its Service."""
    return f"{job}-tensorboard"


def tensorboard_problem(spec: JobSpec) -> str:
    """Return the reason why a TensorBoard could not read the event files; empty if it can."""
    if not spec.tensorboard or _event_volumes(spec):
        return ""
    return (
        f"{spec.log_dir or 'The log directory'} is on no volume of the job, so TensorBoard could not read it:"
        " mount one (-d claim:/path), or set --logdir to a folder on a volume."
    )


def tensorboard_objects(kind: CreatableKind, spec: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
    """Return the Deployment and the Service, with Arena's labels, by which TensorBoards are found."""
    app = kind.resource.kind.lower()
    selected = {"app": app, "release": spec.name, "role": "tensorboard"}
    labels = {**selected, "createdBy": kind.resource.kind, "heritage": "Helm"}
    if arena_type(kind.resource):
        labels["chart"] = f"{app}-{CHARTS[app]}"
    return tensorboard_pair(spec.name, selected, labels, _pod(kind, spec))


def tensorboard_pair(
    job: str, selected: Mapping[str, str], labels: Mapping[str, str], pod: Manifest
) -> tuple[tuple[Resource, Manifest], ...]:
    """Return a Deployment of one pod, and its Service."""
    meta = {"name": tensorboard_name(job), "labels": labels}
    template = {"metadata": {"labels": labels}, "spec": pod}
    ports = [{"name": "tensorboard", "port": PORT, "protocol": "TCP", "targetPort": PORT}]
    specs = {
        DEPLOYMENTS: {"replicas": 1, "selector": {"matchLabels": selected}, "template": template},
        SERVICES: {"type": "NodePort", "selector": selected, "ports": ports},
    }
    return tuple(
        (each, {"apiVersion": each.api_version, "kind": each.kind, "metadata": meta, "spec": spec})
        for each, spec in specs.items()
    )


def _pod(kind: CreatableKind, spec: JobSpec) -> Manifest:
    volumes = _event_volumes(spec)[-1:]
    container: dict[str, Any] = {
        "name": "tensorboard",
        "image": spec.tensorboard_image or TENSORBOARD_IMAGE,
        "command": ["tensorboard", "--logdir", spec.log_dir, "--host", "0.0.0.0", "--port", str(PORT)],
        "ports": [{"name": "tensorboard", "containerPort": PORT, "protocol": "TCP"}],
        "volumeMounts": [mount for _, mount in volumes],
    }
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    pod: Manifest = {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_near(kind, spec)]}},
        "containers": [container],
        "volumes": [volume for volume, _ in volumes],
    }
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    return pod


def _near(kind: CreatableKind, spec: JobSpec) -> Manifest:
    # A node of the job may be the only one that can mount the volume.
    pairs = (each.partition("=") for each in kind.pod_selector(spec.name).split(","))
    labels = {key: value for key, _, value in pairs if value and "(" not in key}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": 100, "podAffinityTerm": term}


def _event_volumes(spec: JobSpec) -> list[tuple[Manifest, Manifest]]:
    """Return the volumes of the job that contain the event files, with their mounts, the innermost last."""
    found: list[tuple[Manifest, Manifest]] = []
    for mount in spec.mounts:
        at = {"name": "events", "mountPath": mount.path, "readOnly": True}
        volume = {"name": "events", "persistentVolumeClaim": {"claimName": mount.claim}}
        found.append((volume, at | ({"subPath": mount.sub_path} if mount.sub_path else {})))
    for folder in spec.host_mounts:
        at = {"name": "events", "mountPath": folder.path, "readOnly": True}
        found.append(({"name": "events", "hostPath": {"path": folder.host_path}}, at))
    holding = [(volume, at) for volume, at in found if _holds(str(at["mountPath"]), spec.log_dir)]
    return sorted(holding, key=lambda pair: len(pair[1]["mountPath"]))


def _holds(folder: str, path: str) -> bool:
    # `/data` does not contain `/database`.
    if not folder or not path:
        return False
    folder, path = posixpath.normpath(folder), posixpath.normpath(path)
    return path == folder or path.startswith(folder.rstrip("/") + "/")
