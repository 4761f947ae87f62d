"""Validation of a job's fields, and the spec of each of its roles."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

from k8s.kinds.job_spec.parts import Role
from k8s.kinds.job_spec.spec import JOB_FIELDS, JobSpec

# A transport such as `ext::` or `fd::` runs programs. Source: gitremote-helpers(7).
_REMOTE_HELPER = re.compile(r"\s*[\w.+-]+::")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# Leaves room for `-worker-123` and a hash. Source: Arena.
LONGEST_NAME = 49


def problems_of(spec: JobSpec) -> dict[str, str]:
    """Return error messages by field: those of its type, then those that concern several fields.

    Local checks only: the server may still refuse the job.
    """
    found = {name: each.type.problem(getattr(spec, name)) for name, each in JOB_FIELDS.items()}
    found = {name: sentence for name, sentence in found.items() if sentence}
    return found | _mount_problems(spec) | _missing(spec) | _contradictions(spec)


def is_below(path: str, folder: str) -> bool:
    """Return True if an absolute path lies within a folder and is not the folder itself."""
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
        found["new_claims"] = f"{twice[0]} is listed twice."
    if spec.elastic is not None:
        least, most = spec.elastic
        if least <= most and not least <= spec.workers <= most:
            found["workers"] = f"Must be between {least} and {most} (elastic)."
    field, sentence = _roles_problem(spec)
    if sentence:
        found[field] = sentence
    for name in ("sync_branch", "sync_revision", "sync_path", "git_secret"):
        if getattr(spec, name) and spec.sync_mode != "git":
            found[name] = "Only with code from git."
    if spec.sync_mode == "git" and _REMOTE_HELPER.match(spec.sync_source):
        found["sync_source"] = "Such a URL can run programs: use https, ssh or git@host:path."
    volumes = [mount.path for mount in spec.mounts if not mount.is_read_only]
    volumes += [mount.path for mount in spec.host_mounts]
    if spec.sync_path and not any(is_below(spec.sync_path, path) for path in volumes):
        found.setdefault("sync_path", "Must be a folder within a writable volume, e.g. /workspace/code.")
    if "GIT_SYNC_PASSWORD" in spec.env and spec.sync_mode != "git":
        found["env"] = (
            "GIT_SYNC_PASSWORD would be visible to everyone who can read the job: only with code from git."
        )
    return found


def _roles_problem(spec: JobSpec) -> tuple[str, str]:
    names = [role.name for role in spec.roles]
    if twice := [name for name in names if names.count(name) > 1]:
        return "roles", f"{twice[0]} is listed twice."
    if spec.roles and spec.elastic is not None:
        return "roles", "An elastic job cannot have roles."
    if spec.worker_image and any(role.name == "worker" and role.image is not None for role in spec.roles):
        return "worker_image", "The role worker also sets an image: remove one of them."
    return "", ""


def role_named(spec: JobSpec, name: str) -> Role:
    """Return a job's role; one without differences if the job does not list it."""
    return next((role for role in spec.roles if role.name == name), Role(name))


def apply_role(role: Role, spec: JobSpec) -> JobSpec:
    """Return the spec as the pods of a role run it."""
    changes = {each.name: getattr(role, each.name) for each in fields(role)[2:]}
    return replace(spec, **{name: value for name, value in changes.items() if value is not None})


def role_spec(spec: JobSpec, name: str) -> JobSpec:
    """Return the spec as the pods of a role run it."""
    is_other_image = name == "worker" and bool(spec.worker_image)
    return apply_role(
        role_named(spec, name), replace(spec, image=spec.worker_image) if is_other_image else spec
    )


def role_sizes(roles: Sequence[Role], pods: int) -> list[int]:
    """Return the number of pods of each role; those without a number get one, the last the remainder."""
    open_roles = [role for role in roles if role.replicas is None]
    fixed = sum(role.replicas or 0 for role in roles)
    remainder = max(1, pods - fixed - len(open_roles) + 1)
    last = open_roles[-1] if open_roles else None
    return [remainder if role is last else role.replicas or 1 for role in roles]


def wants_gpus(spec: JobSpec) -> bool:
    """Return True if the job or one of its roles requests GPUs."""
    return spec.gpus > 0 or any(role.gpus for role in spec.roles)
