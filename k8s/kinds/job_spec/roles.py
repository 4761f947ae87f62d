"""Roles of a job: pods with an image, resources, command or restart policy of their own."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, Self

from k8s.kinds.job_spec.field_types import (
    BYTES,
    CORES,
    FOLDER,
    IMAGE,
    RESTART_POLICIES,
    Argv,
    FieldType,
    Number,
)

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")
_TYPES: dict[str, tuple[str, FieldType]] = {
    "replicas": ("replicas", Number(1, 4096)),
    "image": ("image", IMAGE),
    "gpus": ("gpus", Number(0, 1024)),
    "cpu": ("cpu", CORES),
    "memory": ("memory", BYTES),
    "cpu-request": ("cpu_request", CORES),
    "memory-request": ("memory_request", BYTES),
    "restart": ("restart_policy", RESTART_POLICIES),
    "working-dir": ("working_dir", FOLDER),
    "command": ("command", Argv()),
}

ROLE_KEYS = tuple(_TYPES)


@dataclass(frozen=True, slots=True)
class Role:
    """Named group of pods; None means the same as in the other pods."""

    name: str
    replicas: int | None = None
    """Number of pods; None for one, or in the last such role for the remainder."""
    image: str | None = None
    gpus: int | None = None
    cpu: str | None = None
    memory: str | None = None
    cpu_request: str | None = None
    memory_request: str | None = None
    restart_policy: str | None = None
    working_dir: str | None = None
    command: tuple[str, ...] | None = None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `ROLE key=value …`, in which quotes group words.

        A command is quoted as a whole, or is a JSON list of its words.

        Raises:
            ValueError: A key is unknown or duplicate, or has an invalid value; the message names the key.
        """
        try:
            name, *words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{error}: expected ROLE key=value") from error
        found: dict[str, Any] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or key not in _TYPES:
                raise ValueError(f"{key!r} is not a key of a role; keys are {', '.join(_TYPES)}")
            attribute, of_type = _TYPES[key]
            if attribute in found:
                raise ValueError(f"{key} is listed twice")
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
        """Return the error message for its name or a value; empty if it is valid."""
        if not _NAME.fullmatch(self.name):
            return f"{self.name!r} is not a role name: use lowercase letters, digits and '-'."
        for key, (attribute, of_type) in _TYPES.items():
            value = getattr(self, attribute)
            if value is not None and (found := of_type.problem(value)):
                return f"{self.name}: {key}: {found}"
        return ""


def _words(text: str) -> tuple[str, ...]:
    if text.startswith(('["', "[]")):
        found = json.loads(text)
        if all(isinstance(word, str) for word in found):
            return tuple(found)
        raise ValueError("a list may only contain strings")
    words: tuple[str, ...] = Argv().parse(text)
    return words
