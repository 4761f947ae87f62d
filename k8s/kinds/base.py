"""The contract of a job kind, and the pieces of a manifest that kinds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from k8s.models import Condition, Meta, Pod, convert, meta_of
from k8s.resources import Resource
from k8s.spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION, JobSpec
from k8s.status import Status

Manifest = dict[str, Any]
"""An object as JSON."""
MOST_REPLICAS = 4096
"""Instances of one job that are listed: a slip of the keyboard may ask for billions."""


@dataclass(frozen=True, slots=True, order=True)
class JobRef:
    """Which job: enough to find it again on its cluster."""

    namespace: str
    name: str
    kind: str
    """As in manifests: `PyTorchJob`."""
    api_version: str
    """As in manifests: `kubeflow.org/v1`."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod that a job asks for, whether it exists or not."""

    name: str
    """The pod's name; empty where the cluster makes one up."""
    role: str
    """`master`, `worker`, `launcher`."""
    index: int
    """Number within its role."""
    is_chief: bool
    """Its log is the one to read first."""
    ranks: tuple[int, ...]
    """Global ranks of its processes, as far as the job's object tells; may be empty."""
    ranks_proof: str
    """`declared`: the object fixes them; `assumed`: they may come out otherwise; `none`."""
    template: Mapping[str, Any]
    """The pod template, as asked for."""
    restart_policy: str
    """Always, OnFailure, Never or ExitCode, as the operator understands it."""
    env: tuple[tuple[str, str], ...] = ()
    """What the operator adds to every container, after what is there."""
    labels: tuple[tuple[str, str], ...] = ()
    """What the operator adds to the pod's labels."""

    @property
    def instance(self) -> str:
        """Return its short name within the job: `worker-2`."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """What a job's object says of itself, its pods left aside."""

    ref: JobRef
    meta: Meta
    replicas: tuple[Replica, ...]
    outcome: Status | None
    """Succeeded or Failed once the operator has said so."""
    outcome_reason: str
    is_suspended: bool
    started: datetime | None
    finished: datetime | None
    conditions: tuple[Condition, ...]
    priority: str
    log_dir: str
    """Folder in its pods with event files, empty when unknown."""
    trainer: str
    user: str
    queue: str = ""
    """Where it waits for its turn, empty when in no queue."""
    enough: int | None = None
    """Fewest instances that can work together; None: all of them."""
    restarts: int = 0
    """How often its operator has started it anew."""
    restarts_allowed: int | None = None
    """How often it may be started anew; None: the object does not tell."""
    has_status: bool = True
    """An operator has said anything at all about it."""
    tensorboard: str = ""
    """Address of its TensorBoard, where the object tells."""
    progress: str = ""
    """How far it is, in its own words: `61 %, 24 min left`."""


class JobKind(Protocol):
    """A way to run a job on a cluster, as far as it can be watched. All methods are pure."""

    title: str
    """What people call it."""
    resource: Resource
    container: str
    """Name of the training container."""

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an object, one that anybody made.

        Raises:
            msgspec.ValidationError: It is not such an object.
        """

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods that an object asks for."""

    def pod_selector(self, name: str) -> str:
        """Return the label selector that finds a job's pods."""

    def job_of(self, pod: Pod) -> str:
        """Return the name of the pod's job when it is of this kind, else nothing."""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return a pod's role and index within its job; None when its labels do not tell."""


class CreatableKind(JobKind, Protocol):
    """A kind of which the console makes jobs, and the sandbox runs them."""

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the object that asks for `spec`."""


def pod_template(spec: JobSpec, container: str) -> Manifest:
    """Return the pod template that every kind gives each of its pods."""
    resources: dict[str, str] = {}
    if spec.gpus:
        resources[spec.gpu_resource] = str(spec.gpus)
    if spec.cpu:
        resources["cpu"] = spec.cpu
    if spec.memory:
        resources["memory"] = spec.memory
    mounts = [{"name": f"claim-{index}", "mountPath": mount.path} for index, mount in enumerate(spec.mounts)]
    volumes: list[Manifest] = [
        {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": mount.claim}}
        for index, mount in enumerate(spec.mounts)
    ]
    if spec.shared_memory:
        mounts.append({"name": "dshm", "mountPath": "/dev/shm"})
        volumes.append({"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": spec.shared_memory}})
    container_part: Manifest = {"name": container, "image": spec.image, "command": list(spec.command)}
    if spec.working_dir:
        container_part["workingDir"] = spec.working_dir
    container_part["env"] = [{"name": name, "value": value} for name, value in environment(spec).items()]
    if resources:
        container_part["resources"] = {"limits": resources, "requests": dict(resources)}
    if mounts:
        container_part["volumeMounts"] = mounts
    pod: Manifest = {"containers": [container_part]}
    if volumes:
        pod["volumes"] = volumes
    if spec.priority_class:
        pod["priorityClassName"] = spec.priority_class
    template: Manifest = {"spec": pod}
    if spec.labels:
        template = {"metadata": {"labels": dict(spec.labels)}, **template}
    return template


def environment(spec: JobSpec) -> dict[str, str]:
    """Return the variables of every pod: what makes each rank's lines tell whose they are, then the user's.

    Source: torchrun's `--tee 3` and TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; PYTHONSAFEPATH
    keeps a `trainer.py` in the working folder from being run in place of ours.
    """
    ours = {
        "PYTHONUNBUFFERED": "1",
        "PET_TEE": "3",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: ",
    }
    if spec.trainer:
        ours["PYTHONSAFEPATH"] = "1"
    return {**ours, **spec.env}


def metadata(spec: JobSpec) -> Manifest:
    """Return the metadata of the job's object."""
    annotations = {
        key: value
        for key, value in (
            (TRAINER_ANNOTATION, spec.trainer),
            (LOG_DIR_ANNOTATION, spec.log_dir),
            (USER_ANNOTATION, spec.user),
        )
        if value
    }
    found: Manifest = {"name": spec.name, "namespace": spec.namespace}
    if spec.labels:
        found["labels"] = dict(spec.labels)
    if annotations:
        found["annotations"] = annotations
    return found


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `status` that Kubeflow's and Kubernetes' own jobs have in common."""

    conditions: list[Condition] | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None


def declared(
    obj: Manifest,
    ref_of: Resource,
    replicas: tuple[Replica, ...],
    *,
    succeeded: str,
    failed: str,
    is_suspended: bool,
) -> DeclaredJob:
    """Read what all kinds with `conditions` say in the same way.

    Args:
        obj: The job.
        ref_of: Its kind.
        replicas: The pods it asks for.
        succeeded: The condition type that means success.
        failed: The condition type that means failure.
        is_suspended: It asks not to run.
    """
    meta = meta_of(obj)
    status: JobStatus = convert(obj.get("status") or {}, JobStatus)
    conditions = tuple(status.conditions or ())
    true = {found.type: found for found in conditions if found.status == "True"}
    outcome = Status.FAILED if failed in true else Status.SUCCEEDED if succeeded in true else None
    last = true.get(failed) or true.get(succeeded)
    return DeclaredJob(
        ref=JobRef(meta.namespace, meta.name, ref_of.kind, ref_of.api_version),
        meta=meta,
        replicas=replicas,
        outcome=outcome,
        outcome_reason=(last.message or last.reason or "") if last else "",
        is_suspended=is_suspended,
        started=status.start_time,
        finished=status.completion_time or (last.last_transition_time if last else None),
        conditions=conditions,
        priority=_priority(replicas),
        log_dir=meta.annotation(LOG_DIR_ANNOTATION),
        trainer=meta.annotation(TRAINER_ANNOTATION),
        user=meta.annotation(USER_ANNOTATION) or meta.annotation("arena.kubeflow.org/username"),
    )


def _priority(replicas: Sequence[Replica]) -> str:
    for replica in replicas:
        name = (replica.template.get("spec") or {}).get("priorityClassName")
        if isinstance(name, str):
            return name
    return ""
