"""Roles of a job: pods that differ from the others in image, resources, command or restart policy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from k8s.job_spec.common_types import FOLDER, IMAGE, RESTART_POLICIES
from k8s.job_spec.field_types import Argv, FieldType, Number, Quantity

if TYPE_CHECKING:
    from k8s.job_spec.spec import JobSpec

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")
_TYPES: dict[str, tuple[str, FieldType]] = {
    "replicas": ("replicas", Number(1, 4096)),
    "image": ("image", IMAGE),
    "gpus": ("gpus", Number(0, 1024)),
    "cpu": ("cpu", Quantity()),
    "memory": ("memory", Quantity()),
    "cpu-request": ("cpu_request", Quantity()),
    "memory-request": ("memory_request", Quantity()),
    "restart": ("restart_policy", RESTART_POLICIES),
    "working-dir": ("working_dir", FOLDER),
    "command": ("command", Argv()),
}
"""By the key: the attribute, and how its values are written."""


ROLE_KEYS = tuple(_TYPES)
"""What a line may say of a role."""


LAUNCHER = "launcher"
"""The role that comes on top of the workers."""


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of a job that have a name of their own; what is None is as in the other pods."""

    name: str
    """As in the names of the pods: `master`, `worker`."""
    replicas: int | None = None
    """How many pods; None: one, or in the last role all that are left."""
    image: str | None = None
    gpus: int | None = None
    """Per pod."""
    cpu: str | None = None
    memory: str | None = None
    cpu_request: str | None = None
    memory_request: str | None = None
    restart_policy: str | None = None
    working_dir: str | None = None
    command: tuple[str, ...] | None = None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `ROLE key=value …`, in which quotes hold a value with spaces together.

        A command is quoted as a whole, or a JSON list of its words.

        Raises:
            ValueError: It is not that; the message names the key.
        """
        try:
            name, *words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{error}: expected ROLE key=value") from error
        found: dict[str, Any] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or key not in _TYPES:
                raise ValueError(f"{key!r} is no key of a role; keys are {', '.join(_TYPES)}")
            attribute, of_type = _TYPES[key]
            if attribute in found:
                raise ValueError(f"{key} stands there twice")
            try:
                found[attribute] = _words(value) if key == "command" else of_type.parse(value)
            except ValueError as error:
                raise ValueError(f"{key}: {str(error).rstrip('.')}") from error
        return cls(name, **found)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        parts = [shlex.quote(self.name)]
        for key, (attribute, of_type) in _TYPES.items():
            value = getattr(self, attribute)
            if value is None:
                continue
            text = of_type.to_text(value)
            if key == "command" and re.search(r"[\x00-\x1f\x7f-\x9f]", text):
                text = json.dumps(value)
            parts.append(f"{key}={shlex.quote(text) if text else ''}")
        return " ".join(parts)

    def problem(self) -> str:
        """Return what is wrong with its name or a value, in a sentence; empty where nothing is."""
        if not _NAME.fullmatch(self.name):
            return f"{self.name!r} is no name of a role: use lowercase letters, digits and '-'."
        for key, (attribute, of_type) in _TYPES.items():
            value = getattr(self, attribute)
            if value is not None and (found := of_type.problem(value)):
                return f"{self.name}: {key}: {found}"
        return ""

    def of(self, spec: JobSpec) -> JobSpec:
        """Return what the pods of this role run, where the others run `spec`."""
        said = {each.name: getattr(self, each.name) for each in fields(self)[2:]}
        return replace(spec, **{name: value for name, value in said.items() if value is not None})


def role_named(spec: JobSpec, name: str) -> Role:
    """Return a job's role; where it says nothing of it, one that differs in nothing."""
    return next((role for role in spec.roles if role.name == name), Role(name))


def role_spec(spec: JobSpec, name: str) -> JobSpec:
    """Return what the pods of a role run."""
    is_other_image = name == "worker" and bool(spec.worker_image)
    return role_named(spec, name).of(replace(spec, image=spec.worker_image) if is_other_image else spec)


def role_sizes(roles: Sequence[Role], pods: int) -> list[int]:
    """Return how many of a job's pods are of each role: those that are not told one, the last the rest."""
    open_roles = [role for role in roles if role.replicas is None]
    said = sum(role.replicas or 0 for role in roles)
    rest = max(1, pods - said - len(open_roles) + 1)
    last = open_roles[-1] if open_roles else None
    return [rest if role is last else role.replicas or 1 for role in roles]


def specs_by_role(spec: JobSpec, names: Sequence[str] = ()) -> list[JobSpec]:
    """Return what a job's pods run, one spec for each role; a launcher only where one names it.

    Args:
        spec: The job.
        names: The roles that its kind has, in order; empty for any.
    """
    if not spec.roles:
        return [spec]
    said = {role.name: role for role in spec.roles}
    roles = [said.get(name, Role(name)) for name in names or said]
    workers = [role for role in roles if role.name != LAUNCHER] or [Role("worker")]
    found = [
        replace(role.of(replace(spec, gpus=0)), roles=(), workers=1) for role in roles if role not in workers
    ]
    left = spec.workers
    for role, size in zip(workers, role_sizes(workers, spec.workers), strict=True):
        if left > 0:
            found.append(replace(role_spec(spec, role.name), roles=(), workers=min(size, left)))
        left -= size
    return found


def wants_gpus(spec: JobSpec) -> bool:
    """Tell whether a job, or a role of it, names GPUs."""
    return spec.gpus > 0 or any(role.gpus for role in spec.roles)


def roles_problem(spec: JobSpec) -> tuple[str, str]:
    """Return the field that is wrong and a sentence, for the roles of a job taken together."""
    names = [role.name for role in spec.roles]
    if twice := [name for name in names if names.count(name) > 1]:
        return "roles", f"{twice[0]} stands there twice."
    if spec.roles and spec.elastic_min is not None:
        return "roles", "An elastic job has workers that are all alike."
    if spec.worker_image and any(role.name == "worker" and role.image is not None for role in spec.roles):
        return "worker_image", "The role worker names an image too: leave one of them out."
    return "", ""


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a command: a JSON list, else as a shell splits them."""
    if text.startswith(('["', "[]")):
        found = json.loads(text)
        if all(isinstance(word, str) for word in found):
            return tuple(found)
        raise ValueError("a list may hold words alone")
    words: tuple[str, ...] = Argv().parse(text)
    return words
