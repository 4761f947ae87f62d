"""What is wrong with a job's fields taken together, and what none may be without."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from k8s.job_spec.declaration import JobField
from k8s.job_spec.roles import roles_problem

if TYPE_CHECKING:
    from k8s.job_spec.spec import JobSpec

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LONGEST_NAME = 49
"""Characters of a job name that leave room for `-worker-123` and a hash. Source: Arena."""


def problems_of(spec: JobSpec, declared: Mapping[str, JobField]) -> dict[str, str]:
    """Return what is wrong, by field: what its type finds, and what no field may be beside others."""
    found = {name: each.type.problem(getattr(spec, name)) for name, each in declared.items()}
    found = {name: sentence for name, sentence in found.items() if sentence}
    return found | _mount_problems(spec) | _missing(spec) | _contradictions(spec)


def is_below(path: str, folder: str) -> bool:
    """Tell whether an absolute path lies within a folder, and is not the folder itself."""
    path, folder = posixpath.normpath(path), posixpath.normpath(folder)
    return path != folder and path.startswith(f"{folder.rstrip('/')}/")


def _missing(spec: JobSpec) -> dict[str, str]:
    found: dict[str, str] = {}
    if not spec.name:
        found["name"] = "Required, e.g. bert-base-1."
    elif len(spec.name) > LONGEST_NAME:
        found["name"] = f"At most {LONGEST_NAME} characters; this has {len(spec.name)}."
    elif not _NAME.fullmatch(spec.name):
        found["name"] = (
            "Use lowercase letters, digits and '-' only; start with a letter, do not end with '-'."
        )
    if not spec.image:
        found["image"] = "Required, e.g. pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime."
    if not spec.command and not spec.debug:
        found["command"] = "Required: a command, or a packaged trainer."
    if spec.working_dir and not spec.working_dir.startswith("/"):
        found["working_dir"] = "Must be an absolute path, e.g. /workspace."
    if spec.sync_mode and not spec.sync_source:
        found["sync_source"] = f"Required with {spec.sync_mode}: where the code is."
    if spec.sync_source and not spec.sync_mode:
        found["sync_mode"] = "Required with a source: git, rsync or folder."
    if spec.tensorboard and not spec.log_dir:
        found["log_dir"] = "Required with TensorBoard: the directory of the event files."
    return found


def _mount_problems(spec: JobSpec) -> dict[str, str]:
    found: dict[str, str] = {}
    places = [
        *(("mounts", mount.path) for mount in spec.mounts),
        *(("host_mounts", mount.path) for mount in spec.host_mounts),
        *(("config_files", file.path) for file in spec.config_files),
    ]
    paths = Counter(path for _, path in places)
    for name, path in places:
        if not path.startswith("/") or path == "/":
            found[name] = f"{path!r} is not a mount path: must be absolute, and not /."
        elif paths[path] > 1:
            found[name] = f"Two volumes mounted at {path}."
    return found


def _contradictions(spec: JobSpec) -> dict[str, str]:
    found = {}
    names = Counter(claim.name for claim in spec.new_claims)
    if twice := [name for name, times in names.items() if times > 1]:
        found["new_claims"] = f"{twice[0]} stands there twice."
    if (spec.elastic_min is None) != (spec.elastic_max is None):
        missing = "elastic_min" if spec.elastic_min is None else "elastic_max"
        found[missing] = "Required: an elastic job has both bounds."
    elif spec.elastic_min is not None and spec.elastic_max is not None:
        if spec.elastic_min > spec.elastic_max:
            found["elastic_min"] = f"Must be at most {spec.elastic_max}, the most workers."
        elif not spec.elastic_min <= spec.workers <= spec.elastic_max:
            found["workers"] = f"Must be between {spec.elastic_min} and {spec.elastic_max}, the bounds."
    field, sentence = roles_problem(spec)
    if sentence:
        found[field] = sentence
    for name in ("sync_branch", "sync_revision", "sync_path", "git_secret"):
        if getattr(spec, name) and spec.sync_mode != "git":
            found[name] = "Only with code from git."
    volumes = [mount.path for mount in spec.mounts if not mount.is_read_only]
    volumes += [mount.path for mount in spec.host_mounts]
    if spec.sync_path and not any(is_below(spec.sync_path, path) for path in volumes):
        found.setdefault(
            "sync_path", "Must be a folder within a mounted volume that can be written, e.g. /workspace/code."
        )
    if "GIT_SYNC_PASSWORD" in spec.env and spec.sync_mode != "git":
        found["env"] = "GIT_SYNC_PASSWORD would be seen by all who can read the job: only with code from git."
    return found
