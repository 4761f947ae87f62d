"""What the user asks of a job, whatever kind it becomes, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from k8s.models.quantity import parse

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 49
"""Characters of a job name that leave room for `-worker-123` and a hash. Source: Arena."""

TRAINER_ANNOTATION = "gpuconsole.dev/trainer"
"""On a job: which packaged trainer it runs."""
LOG_DIR_ANNOTATION = "gpuconsole.dev/log-dir"
"""On a job: where in its pods the event files are written."""
USER_ANNOTATION = "gpuconsole.dev/user"
"""On a job: who asked for it."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume claim in the pods of a job."""

    claim: str
    """Name of the PersistentVolumeClaim."""
    path: str
    """Absolute path in the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job as a person asks for it. Nothing here is checked: see `problems`."""

    name: str = ""
    namespace: str = "default"
    image: str = ""
    workers: int = 1
    """Pods in all, the master among them."""
    gpus: int = 0
    """Accelerators of each pod."""
    gpu_resource: str = "nvidia.com/gpu"
    processes: int = 1
    """Training processes of each pod: torchrun's nproc_per_node."""
    command: tuple[str, ...] = ()
    """Words to run, not a shell line."""
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cpu: str = ""
    """CPU quantity of each pod, as `4` or `500m`; empty for no request."""
    memory: str = ""
    """Memory quantity of each pod, as `32Gi`; empty for no request."""
    shared_memory: str = "2Gi"
    """Size of /dev/shm; empty leaves the runtime's 64 MiB, on which data loaders die."""
    priority_class: str = ""
    retries: int = 0
    """How often the job may start again: backoffLimit."""
    clean_pods: str = "None"
    """Pods to remove when it ends: None keeps their logs, Running, All."""
    trainer: str = ""
    """Name of the packaged trainer in `command`, if it is one."""
    log_dir: str = ""
    """Folder in the pods where event files will be; empty when unknown."""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> dict[str, str]:
        """Return what is wrong, field by field, in words that say what would be right.

        Instant and local: the server has the last word.
        """
        found: dict[str, str] = {}
        if not self.name:
            found["name"] = "A job needs a name, as in bert-base-1."
        elif len(self.name) > LONGEST_NAME:
            found["name"] = f"A name has at most {LONGEST_NAME} characters, this one {len(self.name)}."
        elif not _NAME.fullmatch(self.name):
            found["name"] = "Use a-z, 0-9 and - only, a letter first, no - at the end."
        if not self.image:
            found["image"] = "An image is needed, as in pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime."
        elif re.search(r"\s", self.image):
            found["image"] = "An image has no spaces."
        for name, lowest in (("workers", 1), ("gpus", 0), ("processes", 1), ("retries", 0)):
            if getattr(self, name) < lowest:
                found[name] = f"At least {lowest}."
        if not self.command:
            found["command"] = "Say what to run, or choose a packaged trainer."
        for name in ("cpu", "memory", "shared_memory"):
            found.update(_quantity_problem(name, getattr(self, name)))
        for name in self.env:
            if not _ENV_NAME.fullmatch(name):
                found["env"] = f"{name!r} cannot be the name of a variable: use letters, digits and _."
        paths = [mount.path for mount in self.mounts]
        for mount in self.mounts:
            if not mount.path.startswith("/") or mount.path == "/":
                found["mounts"] = f"{mount.path!r}: a volume needs an absolute path that is not /."
            elif paths.count(mount.path) > 1:
                found["mounts"] = f"Two volumes at {mount.path}."
        if self.working_dir and not self.working_dir.startswith("/"):
            found["working_dir"] = "An absolute path, as in /workspace."
        return found


def _quantity_problem(name: str, text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        is_positive = parse(text) > 0
    except ValueError as error:
        return {name: f"{error}."}
    return {} if is_positive else {name: "More than nothing, or leave it empty."}
