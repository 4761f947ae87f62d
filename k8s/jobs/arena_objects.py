"""What Arena makes beside a job: its TensorBoard, and the record without which `arena delete` does nothing.

Source: arena v0.15.5, charts pytorchjob 0.5.2 and mpijob 0.28.0, and what they become on a cluster.
Unlike Arena's, the TensorBoard does not wait for the master's node: its affinity is only preferred.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds import CreatableKind, Manifest
from k8s.kinds.pod_code import GIT_PREFIX, without_login
from k8s.kinds.pods.labels import ARENA_UID, arena_uid
from k8s.models.resources import DEPLOYMENTS, SERVICES, Resource
from k8s.text.secret_names import names_secret
from k8s.text.yaml_writer import to_yaml

CHARTS: Mapping[str, str] = {"pytorchjob": "0.5.2", "mpijob": "0.28.0"}
"""Arena's types of jobs that can be made here, and the version of the chart of each."""
TENSORBOARD_IMAGE = "tensorflow/tensorflow:2.18.0"
"""Has `tensorboard`, unless the job names another image."""
PORT = 6006
"""TensorBoard's own."""


def arena_type(resource: Resource) -> str:
    """Return what Arena calls a kind of job; empty for one that it does not know."""
    name = resource.kind.lower()
    return name if resource.group == "kubeflow.org" and name in CHARTS else ""


def arena_record(resource: Resource, spec: JobSpec, *, has_tensorboard: bool) -> Manifest | None:
    """Return the ConfigMap; None for a kind that Arena does not know."""
    type_ = arena_type(resource)
    if not type_:
        return None
    made = [f"{type_}.{resource.group}/{spec.name}"]
    if has_tensorboard:
        made = [f"service/{spec.name}-tensorboard", f"deployment.apps/{spec.name}-tensorboard", *made]
    labels = {"createdBy": "arena"}
    if spec.user:  # without it Arena deletes nothing where it keeps users apart
        labels[ARENA_UID] = arena_uid(spec.user)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{spec.name}-{type_}", "labels": labels},
        "data": {"app": "\n".join(made), type_: CHARTS[type_], "values": to_yaml(_values(type_, spec))},
    }


def _values(type_: str, spec: JobSpec) -> dict[str, Any]:
    """Return what Arena would have been told, without what is secret."""
    env = {
        name: value
        for name, value in spec.env.items()
        if not names_secret(name, value) and not name.startswith(GIT_PREFIX)
    }
    return {
        "trainingType": type_,
        "image": spec.image,
        "gpuCount": spec.gpus,
        "cpu": spec.cpu,
        "memory": spec.memory,
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
        "syncSource": without_login(spec.sync_source),
    }


def tensorboard_name(job: str) -> str:
    """Return the name of a job's TensorBoard, of its Deployment and its Service."""
    return f"{job}-tensorboard"


def tensorboard_problem(spec: JobSpec) -> str:
    """Return why a TensorBoard could not see the event files, in a sentence; empty where it can."""
    if not spec.tensorboard or _is_in_a_volume(spec):
        return ""
    return (
        f"{spec.log_dir or 'The log directory'} is in no volume of the job, so no TensorBoard could read it: "
        "mount one there (-d claim:/path), or set --logdir to a folder of a volume."
    )


def tensorboard_objects(kind: CreatableKind, spec: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
    """Return the Deployment and the Service.

    Labels are Arena's, so that whoever looks for the TensorBoard of an Arena job finds this one.
    """
    name = tensorboard_name(spec.name)
    app = kind.resource.kind.lower()
    selected = {"app": app, "release": spec.name, "role": "tensorboard"}
    labels = {**selected, "createdBy": kind.resource.kind, "heritage": "Helm"}
    if arena_type(kind.resource):
        labels["chart"] = f"{app}-{CHARTS[app]}"
    deployment = {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": labels}, "spec": _pod(kind, spec)},
        },
    }
    ports = [{"name": "tensorboard", "port": PORT, "protocol": "TCP", "targetPort": PORT}]
    service = {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {"type": "NodePort", "selector": selected, "ports": ports},
    }
    return ((DEPLOYMENTS, deployment), (SERVICES, service))


def _pod(kind: CreatableKind, spec: JobSpec) -> Manifest:
    volumes, mounts = _volumes(spec)
    container: dict[str, Any] = {
        "name": "tensorboard",
        "image": spec.tensorboard_image or TENSORBOARD_IMAGE,
        "command": ["tensorboard", "--logdir", spec.log_dir, "--host", "0.0.0.0", "--port", str(PORT)],
        "ports": [{"name": "tensorboard", "containerPort": PORT, "protocol": "TCP"}],
        "volumeMounts": mounts,
    }
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    pod: Manifest = {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_near(kind, spec)]}},
        "containers": [container],
        "volumes": volumes,
    }
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    return pod


def _near(kind: CreatableKind, spec: JobSpec) -> Manifest:
    """Return the wish to be on a node of the job, whose volume may be mountable there alone."""
    pairs = (each.partition("=") for each in kind.pod_selector(spec.name).split(","))
    labels = {key: value for key, _, value in pairs if value and "(" not in key}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": 100, "podAffinityTerm": term}


def _volumes(spec: JobSpec) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volume that holds the event files, and where it is mounted."""
    best: tuple[int, Manifest, Manifest] | None = None
    for mount in spec.mounts:
        if _holds(mount.path, spec.log_dir):
            at: Manifest = {"name": "events", "mountPath": mount.path, "readOnly": True}
            if mount.sub_path:
                at["subPath"] = mount.sub_path
            volume = {"name": "events", "persistentVolumeClaim": {"claimName": mount.claim}}
            best = _longer(best, (len(mount.path), volume, at))
    for folder in spec.host_mounts:
        if _holds(folder.path, spec.log_dir):
            at = {"name": "events", "mountPath": folder.path, "readOnly": True}
            volume = {"name": "events", "hostPath": {"path": folder.host_path}}
            best = _longer(best, (len(folder.path), volume, at))
    return ([], []) if best is None else ([best[1]], [best[2]])


def _longer(
    best: tuple[int, Manifest, Manifest] | None, other: tuple[int, Manifest, Manifest]
) -> tuple[int, Manifest, Manifest]:
    return other if best is None or other[0] > best[0] else best


def _is_in_a_volume(spec: JobSpec) -> bool:
    places = [mount.path for mount in spec.mounts] + [folder.path for folder in spec.host_mounts]
    return any(_holds(place, spec.log_dir) for place in places)


def _holds(folder: str, path: str) -> bool:
    """Tell whether a path is a folder or below it; `/data` does not hold `/database`."""
    if not folder or not path:
        return False
    folder, path = posixpath.normpath(folder), posixpath.normpath(path)
    return path == folder or path.startswith(folder.rstrip("/") + "/")
