"""From a job's object back to the spec that makes one like it; what a spec cannot say is named.

The inverse of `k8s.kinds.to_manifest`. What is understood is taken out of a copy of the object, so
that whatever is left, known here or not, is found and gets a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from k8s.devices.accelerators import is_accelerator
from k8s.job_spec import LOG_DIR_ANNOTATION, TRAINER_ANNOTATION, USER_ANNOTATION, JobSpec, Mount
from k8s.kinds.base import Manifest
from k8s.kinds.parse import text_of
from k8s.kinds.to_manifest import environment
from k8s.models.quantity import parse

_POD_DEFAULTS: Manifest = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: Manifest = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
"""What servers fill in, here and in pods. Source: kubernetes `pkg/apis/core/v1/defaults.go`."""
_SHARED_MEMORY = "/dev/shm"


class Understood(NamedTuple):
    """What an object, or a part of one, says as fields of a spec."""

    fields: dict[str, Any]
    """By the field of `JobSpec`."""
    lost: list[str]
    """Names of what no spec can say."""


def named(left: Mapping[str, Any], *understood: str, prefix: str = "") -> list[str]:
    """Return the names of the fields that say anything, but for those that are `understood`."""
    return [f"{prefix}{key}" for key, value in left.items() if key not in understood and not _is_empty(value)]


def drop_defaults(left: Manifest, defaults: Mapping[str, Any]) -> None:
    """Remove from an object what the server fills in by itself."""
    for key, value in defaults.items():
        if key in left and left[key] == value:
            del left[key]


def take_metadata(meta: Manifest) -> Understood:
    """Take out of a job's metadata what a spec can say."""
    annotations = meta.pop("annotations", None) or {}
    fields = {
        "name": text_of(meta.pop("name", "")),
        "namespace": text_of(meta.pop("namespace", "")) or "default",
        "labels": {str(key): str(value) for key, value in (meta.pop("labels", None) or {}).items()},
        "trainer": text_of(annotations.pop(TRAINER_ANNOTATION, "")),
        "log_dir": text_of(annotations.pop(LOG_DIR_ANNOTATION, "")),
        "user": text_of(annotations.pop(USER_ANNOTATION, "")),
    }
    return Understood(fields, named(meta) + named(annotations, prefix="annotation "))


def take_template(template: Manifest, container: str, job: Mapping[str, Any]) -> Understood:
    """Take out of a pod template what a spec can say.

    Args:
        template: It is taken apart.
        container: How the kind calls the training container; where none is called so the first is meant.
        job: What the metadata of the job says.
    """
    meta, pod = template.pop("metadata", None) or {}, template.pop("spec", None) or {}
    labels = meta.pop("labels", None) or {}
    containers = pod.pop("containers", None) or [{}]
    main = next((each for each in containers if each.get("name") == container), containers[0])
    sidecars = len(containers) - 1
    lost = named(template)
    lost += [f"pod label {key}" for key, value in labels.items() if job["labels"].get(key) != value]
    lost += named(meta.pop("annotations", None) or {}, prefix="pod annotation ")
    lost += named(meta, "creationTimestamp", prefix="pod ")
    fields = {"priority_class": text_of(pod.pop("priorityClassName", ""))}
    drop_defaults(pod, _POD_DEFAULTS)
    for part in (_take_container(main, container, str(job["trainer"])), _take_volumes(main, pod)):
        fields |= part.fields
        lost += part.lost
    if sidecars:
        lost.append(f"{sidecars} sidecar{'s' if sidecars > 1 else ''}")
    return Understood(fields, lost + named(pod) + named(main))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the fields of a spec in which two parts of a job differ."""
    return [name.replace("_", " ") for name in one if one[name] != other.get(name)]


def unique(lost: Iterable[str]) -> tuple[str, ...]:
    """Return each name once."""
    return tuple(dict.fromkeys(lost))


def _take_container(main: Manifest, container: str, trainer: str) -> Understood:
    drop_defaults(main, _CONTAINER_DEFAULTS)
    image = text_of(main.pop("image", ""))
    is_floating = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    drop_defaults(main, {"imagePullPolicy": "Always" if is_floating else "IfNotPresent"})
    lost = []
    if main.pop("name", container) != container:
        lost.append("name of the container")
    command = [str(word) for word in main.pop("command", None) or ()]
    if command:
        command += [str(word) for word in main.pop("args", None) or ()]
    elif not main.get("args"):
        lost.append("command of the image")
    env = _take_env(main, trainer)
    resources = _take_resources(main.pop("resources", None) or {})
    fields = {
        "image": image,
        "command": tuple(command),
        "working_dir": text_of(main.pop("workingDir", "")),
        **env.fields,
        **resources.fields,
    }
    return Understood(fields, lost + env.lost + resources.lost)


def _take_env(main: Manifest, trainer: str) -> Understood:
    """Take the variables; those that every job of ours has are made again."""
    ours = environment(JobSpec(trainer=trainer))
    env: dict[str, str] = {}
    lost = []
    for each in main.pop("env", None) or ():
        name, source = text_of(each.get("name")), each.get("valueFrom")
        if source:
            lost.append(f"variable {name}, which comes from {_origin(source)}")
            continue
        lost += named(each, "name", "value", prefix=f"variable {name}'s ")
        if (value := str(each.get("value") or "")) != ours.get(name):
            env[name] = value
    return Understood({"env": env}, lost)


def _origin(source: Mapping[str, Any]) -> str:
    """Return where a variable comes from: `secret wandb`."""
    what, where = next(iter(source.items()))
    return f"{what.removesuffix('KeyRef').removesuffix('Ref')} {where.get('name', '')}".rstrip()


def _take_resources(resources: Manifest) -> Understood:
    """Take one kind of device, cores and memory, requests as far as they are the limits."""
    limits, requests = resources.pop("limits", None) or {}, resources.pop("requests", None) or {}
    asked = {**requests, **limits}
    devices = sorted((name for name in asked if "/" in name), key=lambda name: not is_accelerator(name))
    fields: dict[str, Any] = {"gpus": 0, "gpu_resource": "nvidia.com/gpu", "cpu": "", "memory": ""}
    if devices and (amount := parse(asked[devices[0]])).denominator == 1 and amount >= 0:
        fields |= {"gpus": int(amount), "gpu_resource": devices[0] if amount else fields["gpu_resource"]}
    for name in (*devices[:1], "cpu", "memory"):
        if name in fields:
            fields[name] = str(asked.get(name) or "")
        limit = limits.pop(name, None)
        if name in requests and limit is not None and _is_as_much(requests[name], limit):
            del requests[name]
    lost = named(limits, prefix="limits.") + named(requests, prefix="requests.")
    return Understood(fields, lost + named(resources, prefix="resources."))


def _is_as_much(one: str | int | float, other: str | int | float) -> bool:
    try:
        return str(one) == str(other) or parse(one) == parse(other)
    except ValueError:
        return False


def _take_volumes(main: Manifest, pod: Manifest) -> Understood:
    """Take the claims, and what is mounted at /dev/shm."""
    volumes = {text_of(each.get("name")): each for each in pod.pop("volumes", None) or ()}
    mounts: list[Mount] = []
    shared_memory = ""
    taken = set()
    lost = []
    for mount in main.pop("volumeMounts", None) or ():
        name, path = text_of(mount.get("name")), text_of(mount.get("mountPath"))
        volume = volumes.get(name, {})
        claim, folder = volume.get("persistentVolumeClaim") or {}, volume.get("emptyDir") or {}
        if claim:
            mounts.append(Mount(text_of(claim.get("claimName")), path))
            extras = named(volume, "name", "persistentVolumeClaim") + named(claim, "claimName")
        elif path == _SHARED_MEMORY and folder.get("medium") == "Memory" and folder.get("sizeLimit"):
            shared_memory = str(folder["sizeLimit"])
            extras = named(volume, "name", "emptyDir") + named(folder, "medium", "sizeLimit")
        else:
            lost += [] if volume else [f"mount {path}"]
            continue
        taken.add(name)
        drop_defaults(mount, {"readOnly": False})
        lost += [f"{each} of the mount {path}" for each in extras + named(mount, "name", "mountPath")]
    lost += [f"volume {name}" for name in volumes if name not in taken]
    return Understood({"mounts": tuple(mounts), "shared_memory": shared_memory}, lost)


def _is_empty(value: object) -> bool:
    """Tell whether a field says nothing: `{}`, null, a list of nothing; false and 0 do say something."""
    if isinstance(value, Mapping):
        return all(_is_empty(each) for each in value.values())
    return value is None or value in ("", [])
