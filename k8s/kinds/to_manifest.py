"""Makes the pieces of a manifest that kinds share."""

from __future__ import annotations

from k8s.job_spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION, JobSpec
from k8s.kinds.base import Manifest


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
