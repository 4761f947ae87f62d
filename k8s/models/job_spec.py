"""The spec of a training job, whatever kind it becomes, and its validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from k8s.models.quantity import parse

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""A control character; not tab and newline, which scripts and keys in variables hold."""
LONGEST_NAME = 49
"""Characters of a job name that leave room for `-worker-123` and a hash. Source: Arena."""

TRAINER_ANNOTATION = "gpuconsole.dev/trainer"
"""On a job: name of the packaged trainer that it runs."""
LOG_DIR_ANNOTATION = "gpuconsole.dev/log-dir"
"""On a job: folder in its pods where the event files are written."""
USER_ANNOTATION = "gpuconsole.dev/user"
"""On a job: who submitted it."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume claim mounted in the pods of a job."""

    claim: str
    """Name of the PersistentVolumeClaim."""
    path: str
    """Absolute path in the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job as the user specifies it. Not validated when made: see `problems`."""

    name: str = ""
    namespace: str = "default"
    image: str = ""
    workers: int = 1
    """Number of pods, including the master."""
    gpus: int = 0
    """Accelerators per pod."""
    gpu_resource: str = "nvidia.com/gpu"
    processes: int = 1
    """Training processes per pod: torchrun's nproc_per_node."""
    command: tuple[str, ...] = ()
    """Argv, not a shell line."""
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cpu: str = ""
    """CPU quantity per pod, as `4` or `500m`; empty for no request."""
    memory: str = ""
    """Memory quantity per pod, as `32Gi`; empty for no request."""
    shared_memory: str = "2Gi"
    """Size of /dev/shm; empty leaves the runtime's 64 MiB, on which data loaders die."""
    priority_class: str = ""
    retries: int = 0
    """Retries before the job fails: backoffLimit."""
    clean_pods: str = "None"
    """Pods to delete when it ends, as cleanPodPolicy: None, which keeps their logs, Running, All."""
    trainer: str = ""
    """Name of the packaged trainer in `command`, if it is one."""
    log_dir: str = ""
    """Folder in the pods where event files will be; empty when unknown."""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> dict[str, str]:
        """Return what is wrong, by field, in a sentence that says what would be right.

        Local only: the server has the last word.
        """
        found: dict[str, str] = {}
        if not self.name:
            found["name"] = "Required, e.g. bert-base-1."
        elif len(self.name) > LONGEST_NAME:
            found["name"] = f"At most {LONGEST_NAME} characters; this has {len(self.name)}."
        elif not _NAME.fullmatch(self.name):
            found["name"] = (
                "Use lowercase letters, digits and '-' only; start with a letter, do not end with '-'."
            )
        if not self.image:
            found["image"] = "Required, e.g. pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime."
        elif re.search(r"\s", self.image):
            found["image"] = "Must not contain spaces."
        for name, lowest in (("workers", 1), ("gpus", 0), ("processes", 1), ("retries", 0)):
            if getattr(self, name) < lowest:
                found[name] = f"Must be at least {lowest}."
        if not self.command:
            found["command"] = "Required: a command, or a packaged trainer."
        for name in ("cpu", "memory", "shared_memory"):
            found.update(_quantity_problem(name, getattr(self, name)))
        for name in self.env:
            if not _ENV_NAME.fullmatch(name):
                found["env"] = f"{name!r} is not a valid variable name: use letters, digits and '_'."
        paths = [mount.path for mount in self.mounts]
        for mount in self.mounts:
            if not mount.path.startswith("/") or mount.path == "/":
                found["mounts"] = f"{mount.path!r} is not a mount path: must be absolute, and not /."
            elif paths.count(mount.path) > 1:
                found["mounts"] = f"Two volumes mounted at {mount.path}."
        if self.working_dir and not self.working_dir.startswith("/"):
            found["working_dir"] = "Must be an absolute path, e.g. /workspace."
        return {**self._control_characters(), **found}

    def _control_characters(self) -> dict[str, str]:
        texts: Mapping[str, Iterable[str]] = {
            "image": [self.image],
            "command": self.command,
            "working_dir": [self.working_dir],
            "log_dir": [self.log_dir],
            "priority_class": [self.priority_class],
            "gpu_resource": [self.gpu_resource],
            "env": self.env.values(),
            "labels": [*self.labels, *self.labels.values()],
            "mounts": [text for mount in self.mounts for text in (mount.claim, mount.path)],
        }
        found = {name: _CONTROL.search("".join(held)) for name, held in texts.items()}
        return {
            name: f"Must not hold control characters; there is {char[0]!r}."
            for name, char in found.items()
            if char is not None
        }


def _quantity_problem(name: str, text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        is_positive = parse(text) > 0
    except ValueError as error:
        return {name: f"{error}."}
    return {} if is_positive else {name: "Must be greater than 0, or empty."}
