"""Labels and annotations of a job and its pods: the user's, ours, and those by which Arena knows its jobs.

Arena lists what has its labels `app` and `release`, finds a job's pods by them, and reads user and GPUs
from annotations. Source: kubeflow/arena v0.15.5, `charts/pytorchjob`, `charts/mpijob`, `pkg/training`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k8s.job_spec import (
    LAUNCHER,
    LOG_DIR_ANNOTATION,
    SUBMISSION_ANNOTATION,
    TRAINER_ANNOTATION,
    USER_ANNOTATION,
    JobSpec,
    role_named,
    role_spec,
)
from k8s.kinds.base import Manifest
from k8s.kinds.parse import text_of
from k8s.kinds.pods.understood import Understood, named

TENSORBOARD_ANNOTATION = "gpuconsole.dev/tensorboard"
"""On a job: the image of the TensorBoard that comes with it; `true` for the default one."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a job: Kueue's LocalQueue that admits it."""
GPU_TOPOLOGY, GPU_TOPOLOGY_REPLICAS = "gpu-topology", "gpu-topology-replica"
"""On the pods of a job that Alibaba Cloud's scheduler places by the links between GPUs."""
POD_GROUP, POD_GROUP_SIZE = (
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available",
)
"""On pods that start together or not at all."""
MASTER_POD = "master-pod-name"
"""On the master's pod: its own name, beside which Arena's TensorBoard runs."""
_KUBE_QUEUE = "scheduling.x-k8s.io/suspend"
ARENA_USER, _ARENA_GPUS, ARENA_UID = (
    "arena.kubeflow.org/username",
    "requestGPUsOfJobOwner",
    "arena.kubeflow.org/uid",
)


@dataclass(frozen=True, slots=True)
class ArenaChart:
    """How Arena labels what it makes of one kind."""

    app: str
    """Its word for the kind: `pytorchjob`."""
    version: str
    created_by: str
    chief: str
    """The role that has one pod."""


PYTORCH_CHART = ArenaChart("pytorchjob", "0.5.2", "PyTorchJob", "master")
MPI_CHART = ArenaChart("mpijob", "0.28.0", "MPIJob", LAUNCHER)


def job_metadata(spec: JobSpec, chart: ArenaChart | None = None, *, queue_label: bool = True) -> Manifest:
    """Return the metadata of a job's object.

    Args:
        spec: The job.
        chart: How Arena labels this kind; None where it has no such kind.
        queue_label: Kueue admits this kind.
    """
    labels = {**_arena_labels(spec, chart), **spec.labels}
    if spec.queue and queue_label:
        labels[QUEUE_LABEL] = spec.queue
    found: Manifest = {"name": spec.name, "namespace": spec.namespace}
    if labels:
        found["labels"] = labels
    if annotations := {**_our_annotations(spec), **_arena_annotations(spec, chart), **spec.annotations}:
        found["annotations"] = annotations
    return found


def pod_metadata(spec: JobSpec, app: str, chart: ArenaChart | None = None) -> Manifest:
    """Return the metadata of a job's pods.

    Args:
        spec: The job.
        app: What the name of its pod group begins with.
        chart: How Arena labels this kind; None where it has no such kind.
    """
    labels = {**_arena_labels(spec, chart), **_scheduler_labels(spec, app), **spec.labels}
    annotations = {**_arena_annotations(spec, chart), **spec.annotations}
    found = {"labels": labels, "annotations": annotations}
    return {key: value for key, value in found.items() if value}


def take_job_metadata(meta: Manifest) -> Understood:
    """Take out of a job's metadata what a spec can say; what Arena writes is made again."""
    labels = {str(key): str(value) for key, value in (meta.pop("labels", None) or {}).items()}
    annotations = {str(key): str(value) for key, value in (meta.pop("annotations", None) or {}).items()}
    fields: dict[str, Any] = {
        "name": text_of(meta.pop("name", "")),
        "namespace": text_of(meta.pop("namespace", "")) or "default",
        "trainer": annotations.pop(TRAINER_ANNOTATION, ""),
        "log_dir": annotations.pop(LOG_DIR_ANNOTATION, ""),
        "queue": labels.pop(QUEUE_LABEL, ""),
        "kube_queue": annotations.pop(_KUBE_QUEUE, "") == "true",
    }
    arena_user = annotations.pop(ARENA_USER, "")
    fields["user"] = annotations.pop(USER_ANNOTATION, arena_user)
    for made_anew in (_ARENA_GPUS, SUBMISSION_ANNOTATION):
        annotations.pop(made_anew, None)
    tensorboard = annotations.pop(TENSORBOARD_ANNOTATION, "")
    fields |= {
        "tensorboard": bool(tensorboard),
        "tensorboard_image": "" if tensorboard == "true" else tensorboard,
        "labels": _without_arena(labels, fields["name"]),
        "annotations": annotations,
    }
    return Understood(fields, named(meta))


def take_pod_metadata(meta: Manifest, job: Mapping[str, Any]) -> Understood:
    """Take out of a pod template's metadata what a spec can say: only that it is in a gang or a topology.

    Args:
        meta: It is taken apart.
        job: What the metadata of the job says.
    """
    labels = {str(key): str(value) for key, value in (meta.pop("labels", None) or {}).items()}
    annotations = meta.pop("annotations", None) or {}
    if meta.get("name") == job["name"]:
        del meta["name"]  # as Arena writes it: pods get names of their own
    fields = {
        "gang": bool(labels.pop(POD_GROUP, "")) and bool(labels.pop(POD_GROUP_SIZE, "")),
        "gpu_topology": bool(labels.pop(GPU_TOPOLOGY, "")) and bool(labels.pop(GPU_TOPOLOGY_REPLICAS, "")),
    }
    labels = _without_arena(labels, job["name"])
    if labels.get(MASTER_POD, "").startswith(f"{job['name']}-"):
        del labels[MASTER_POD]
    lost = [f"pod label {key}" for key, value in labels.items() if job["labels"].get(key) != value]
    lost += [
        f"pod annotation {key}"
        for key, value in annotations.items()
        if key not in (ARENA_USER, _ARENA_GPUS) and job["annotations"].get(key) != value
    ]
    return Understood(fields, lost + named(meta, "creationTimestamp", prefix="pod "))


def arena_uid(user: str) -> str:
    """Return how Arena calls a user in labels."""
    return hashlib.md5(user.encode(), usedforsecurity=False).hexdigest()


def _our_annotations(spec: JobSpec) -> dict[str, str]:
    found = {
        TRAINER_ANNOTATION: spec.trainer,
        LOG_DIR_ANNOTATION: spec.log_dir,
        USER_ANNOTATION: spec.user,
        TENSORBOARD_ANNOTATION: (spec.tensorboard_image or "true") if spec.tensorboard else "",
        _KUBE_QUEUE: "true" if spec.kube_queue else "",
    }
    return {key: value for key, value in found.items() if value}


def _scheduler_labels(spec: JobSpec, app: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if spec.gang:
        fewest = spec.workers if spec.elastic_min is None else spec.elastic_min
        found |= {POD_GROUP: f"{app}-{spec.name}", POD_GROUP_SIZE: str(fewest)}
    if spec.gpu_topology:
        found |= {GPU_TOPOLOGY: spec.name, GPU_TOPOLOGY_REPLICAS: str(spec.workers)}
    return found


def _arena_labels(spec: JobSpec, chart: ArenaChart | None) -> dict[str, str]:
    if chart is None:
        return {}
    found = {
        "app": chart.app,
        "chart": f"{chart.app}-{chart.version}",
        "release": spec.name,
        "heritage": "Helm",
        "createdBy": chart.created_by,
    }
    if spec.user:
        found[ARENA_UID] = arena_uid(spec.user)
    return found


def _arena_annotations(spec: JobSpec, chart: ArenaChart | None) -> dict[str, str]:
    if chart is None:
        return {}
    user = {ARENA_USER: spec.user} if spec.user else {}
    return {**user, _ARENA_GPUS: str(_gpus(spec, chart.chief))}


def _gpus(spec: JobSpec, chief: str) -> int:
    """Return the GPUs of all pods; a launcher, which comes on top, has those alone that its role names."""
    of_workers = role_spec(spec, "worker").gpus
    if chief == LAUNCHER:
        return (role_named(spec, chief).gpus or 0) + spec.workers * of_workers
    return role_spec(spec, chief).gpus + (spec.workers - 1) * of_workers


def _without_arena(labels: Mapping[str, str], name: str) -> dict[str, str]:
    """Return labels without those that Arena writes, in whatever version of its charts."""
    for chart in (PYTORCH_CHART, MPI_CHART):
        if labels.get("app") == chart.app and labels.get("release") == name:
            written = ("app", "chart", "release", "heritage", "createdBy", ARENA_UID)
            return {key: value for key, value in labels.items() if key not in written}
    return dict(labels)
