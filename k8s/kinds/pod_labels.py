"""Labels and annotations of a job and its pods: the user's, ours, and Arena's; and renaming them.

Arena lists objects with its labels `app` and `release`, finds a job's pods by them, and reads user and
GPUs from annotations. Source: kubeflow/arena v0.15.5, `charts/pytorchjob`, `charts/mpijob`, `pkg/training`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k8s.kinds import job_spec as job_specs
from k8s.kinds.base import Manifest
from k8s.kinds.job_spec import LAUNCHER, LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

# The image of the job's TensorBoard; `true` for the default image.
TENSORBOARD_ANNOTATION = "gpuconsole.dev/tensorboard"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# On pods that Alibaba Cloud's scheduler places by the links between GPUs.
GPU_TOPOLOGY, GPU_TOPOLOGY_REPLICAS = "gpu-topology", "gpu-topology-replica"
# On pods that start together or not at all.
POD_GROUP, POD_GROUP_SIZE = (
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available",
)
# On the master's pod: its own name, by which Arena's TensorBoard finds its node.
MASTER_POD = "master-pod-name"
_KUBE_QUEUE = "scheduling.x-k8s.io/suspend"
ARENA_USER, _ARENA_GPUS, ARENA_UID = (
    "arena.kubeflow.org/username",
    "requestGPUsOfJobOwner",
    "arena.kubeflow.org/uid",
)
# Variables that hold the address of a job's first pod.
_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_FIRST_PODS = ("{0}-master-0", "{0}-0.{0}", "{0}-node-0-0.{0}")


@dataclass(frozen=True, slots=True)
class ArenaChart:
    """Labels that Arena gives to one kind of job."""

    app: str
    """Arena's name for the kind, e.g. `pytorchjob`."""
    version: str
    created_by: str
    chief: str


PYTORCH_CHART = ArenaChart("pytorchjob", "0.5.2", "PyTorchJob", "master")
MPI_CHART = ArenaChart("mpijob", "0.28.0", "MPIJob", LAUNCHER)


def job_metadata(spec: JobSpec, chart: ArenaChart | None = None, *, queue_label: bool = True) -> Manifest:
    """Return the metadata of a job's object.

    `chart` is None for a kind that Arena does not have; `queue_label` is False if Kueue does not admit it.
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
    """Return the metadata of a job's pods, whose pod group is named after `app` and the job."""
    labels = {**_arena_labels(spec, chart), **_scheduler_labels(spec, app), **spec.labels}
    annotations = {**_arena_annotations(spec, chart), **spec.annotations}
    found = {"labels": labels, "annotations": annotations}
    return {key: value for key, value in found.items() if value}


def arena_uid(user: str) -> str:
    """Return Arena's label value for a user."""
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
        fewest = spec.workers if spec.elastic is None else spec.elastic[0]
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
    # A launcher comes on top of the workers, with the GPUs of its role only.
    of_workers = job_specs.role_spec(spec, "worker").gpus
    if chief == LAUNCHER:
        return (job_specs.role_named(spec, chief).gpus or 0) + spec.workers * of_workers
    return job_specs.role_spec(spec, chief).gpus + (spec.workers - 1) * of_workers


def without_arena(labels: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the labels of the job `name` without those that Arena gives every job."""
    for chart in (PYTORCH_CHART, MPI_CHART):
        if labels.get("app") == chart.app and labels.get("release") == name:
            written = ("app", "chart", "release", "heritage", "createdBy", ARENA_UID)
            return {key: value for key, value in labels.items() if key not in written}
    return dict(labels)


def objects_in(value: object) -> Iterator[dict[str, Any]]:
    """Yield every mapping in a value, outer ones first."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from objects_in(each)


def map_objects(value: Any, change: Callable[[Manifest], Manifest]) -> Any:
    """Return JSON in which every object is replaced by `change(object)`, the innermost first."""
    if isinstance(value, list):
        return [map_objects(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    return change({key: map_objects(each, change) for key, each in value.items()})


def renamed(manifest: Manifest, old: str, new: str, user: str = "") -> Manifest:
    """Return a manifest in which values derived from the job's name are renamed.

    An empty `user` keeps the old one.
    """

    def change(found: Manifest) -> Manifest:
        if found.get("subdomain") == old:
            found["subdomain"] = new
        if found.get("name") in _ADDRESSES and isinstance(found.get("value"), str):
            found["value"] = _renamed_address(found["value"], old, new)
        if isinstance(found.get("labels"), dict):
            found["labels"] = _renamed_labels(found["labels"], old, new, user)
        annotations = found.get("annotations")
        if user and isinstance(annotations, dict) and ARENA_USER in annotations:
            found["annotations"] = {**annotations, ARENA_USER: user}
        return found

    renamed_manifest: Manifest = map_objects(manifest, change)
    return renamed_manifest


def _renamed_labels(labels: Manifest, old: str, new: str, user: str) -> Manifest:
    found = dict(labels)
    for key in ("release", GPU_TOPOLOGY):
        if found.get(key) == old:
            found[key] = new
    if found.get(MASTER_POD) == f"{old}-master-0":
        found[MASTER_POD] = f"{new}-master-0"
    group = str(found.get(POD_GROUP, ""))
    if group.endswith(f"job-{old}"):
        found[POD_GROUP] = group.removesuffix(old) + new
    if user and ARENA_UID in found:
        found[ARENA_UID] = arena_uid(user)
    return found


def _renamed_address(value: str, old: str, new: str) -> str:
    host, colon, port = value.partition(":")
    pattern = next((each for each in _FIRST_PODS if each.format(old) == host), None)
    return f"{pattern.format(new)}{colon}{port}" if pattern else value
