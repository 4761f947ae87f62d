"""Structured values of job fields, each one line of text; local content and annotations of a job."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from k8s.kinds.job_spec.field_types import (
    BYTES,
    FOLDER,
    IMAGE,
    POD_BYTES,
    POD_CORES,
    RESTART_POLICIES,
    Argv,
    FieldType,
    Number,
    dns_problem,
)

ACCESS_MODES = {
    "RWO": "ReadWriteOnce",
    "ROX": "ReadOnlyMany",
    "RWX": "ReadWriteMany",
    "RWOP": "ReadWriteOncePod",
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")


@dataclass(frozen=True, slots=True)
class Mount:
    """Volume claim mounted in the pods of a job."""

    claim: str
    path: str
    sub_path: str = ""
    """Folder within the volume; empty for all of it."""
    is_read_only: bool = False

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `claim[/folder]:/path[:ro]`.

        Raises:
            ValueError: The text has another form.
        """
        source, colon, target = text.partition(":")
        claim, _, sub_path = source.partition("/")
        path, _, mode = target.partition(":")
        if not colon or not claim or mode not in ("", "ro", "rw"):
            raise ValueError("expected claim:/path, claim/folder:/path or claim:/path:ro")
        return cls(claim, path, sub_path, mode == "ro")

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        source = f"{self.claim}/{self.sub_path}" if self.sub_path else self.claim
        return f"{source}:{self.path}" + (":ro" if self.is_read_only else "")


@dataclass(frozen=True, slots=True)
class NewClaim:
    """Volume claim that is created before the job and outlives it."""

    name: str
    size: str
    storage_class: str = ""
    """Empty for the cluster's default."""
    mode: str = "RWO"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `name:size[:class][:mode]`; class and mode in either order, spaces allowed as separators.

        Raises:
            ValueError: The text has another form.
        """
        short = {long: word for word, long in ACCESS_MODES.items()}
        words = [short.get(word, word) for word in re.split(r"[\s:]+", text.strip())]
        words[2:] = [word.upper() if word.upper() in ACCESS_MODES else word for word in words[2:]]
        modes = [word for word in words[2:] if word in ACCESS_MODES]
        classes = [word for word in words[2:] if word not in ACCESS_MODES]
        if len(words) < 2 or not all(words) or len(modes) > 1 or len(classes) > 1:
            raise ValueError("expected NAME:SIZE, or NAME:SIZE:CLASS:MODE; modes are RWO, RWX, ROX, RWOP")
        return cls(words[0], words[1], *(classes or [""]), *modes)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        mode = "" if self.mode == "RWO" else self.mode
        return ":".join(filter(None, (self.name, self.size, self.storage_class, mode)))

    def problem(self) -> str:
        """Return the error message for its parts; empty if they are valid."""
        if not self.size or (found := BYTES.problem(self.size)):
            return f"{self.name}: {found if self.size else 'it needs a size, e.g. 100Gi.'}"
        return dns_problem(self.name) or (dns_problem(self.storage_class) if self.storage_class else "")


@dataclass(frozen=True, slots=True)
class HostMount:
    """Folder of the node mounted in the pods of a job."""

    host_path: str
    path: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `/on/the/node[:/path]`; the path defaults to the node's.

        Raises:
            ValueError: A path is not absolute.
        """
        host_path, path = _source_and_path(text)
        if not host_path.startswith("/") or not path.startswith("/"):
            raise ValueError("expected /host/folder or /host/folder:/path")
        return cls(host_path, path)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        return _joined(self.host_path, self.path)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Local file that is sent with the job in a ConfigMap."""

    local_path: str
    path: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `local-file[:/path]`; the path defaults to the local one if that is absolute.

        Raises:
            ValueError: The text has another form.
        """
        local_path, path = _source_and_path(text)
        if not local_path or not path.startswith("/") or path.endswith("/"):
            raise ValueError("expected local-file:/path/of/the/file")
        return cls(local_path, path)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        return _joined(self.local_path, self.path)


@dataclass(frozen=True, slots=True)
class EnvSource:
    """Variables from a Secret or a ConfigMap."""

    is_secret: bool
    source: str
    key: str = ""
    """Key to read; empty for all keys."""
    name: str = ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `secret/wandb`, `configmap/paths` or, for one key, `WANDB_API_KEY=secret/wandb/key`.

        Raises:
            ValueError: The text has another form.
        """
        name, equals, place = text.rpartition("=")
        kind, *names = place.split("/")
        if kind not in ("secret", "configmap") or bool(equals) != bool(name):
            raise ValueError("expected secret/NAME, configmap/NAME or VARIABLE=secret/NAME/KEY")
        if len(names) != (2 if name else 1) or not all(names):
            raise ValueError("expected secret/NAME, configmap/NAME or VARIABLE=secret/NAME/KEY")
        return cls(kind == "secret", names[0], names[1] if name else "", name)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        kind = "secret" if self.is_secret else "configmap"
        return f"{self.name}={kind}/{self.source}/{self.key}" if self.name else f"{kind}/{self.source}"


@dataclass(frozen=True, slots=True)
class PodToleration:
    """Toleration of a taint by the pods of a job."""

    key: str = ""
    """Empty for every taint."""
    value: str = ""
    effect: str = ""
    operator: str = "Exists"
    """Equal compares the value, Exists does not."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `all`, `key`, `key:effect`, `key=value:effect` or Arena's `key=value:effect,operator`.

        Raises:
            ValueError: The text has another form.
        """
        if text == "all":
            return cls()
        taint, _, operator = text.partition(",")
        pair, colon, effect = taint.partition(":")
        key, equals, value = pair.partition("=")
        operator = operator or ("Equal" if equals and value else "Exists")
        if not key or operator not in _OPERATORS or (colon and effect not in _EFFECTS):
            raise ValueError(
                "expected all, key, or key=value:effect; effects are NoSchedule, PreferNoSchedule, NoExecute"
            )
        return cls(key, value if operator == "Equal" else "", effect, operator)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        if not self.key:
            return "all"
        pair = f"{self.key}={self.value}" if self.operator == "Equal" else self.key
        return f"{pair}:{self.effect}" if self.effect else pair


def _source_and_path(text: str) -> tuple[str, str]:
    source, _, path = text.partition(":")
    return source, path or source


def _joined(source: str, path: str) -> str:
    return source if path == source else f"{source}:{path}"


_ROLE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")
_ROLE_TYPES: dict[str, tuple[str, FieldType]] = {
    "replicas": ("replicas", Number(1, 4096)),
    "image": ("image", IMAGE),
    "gpus": ("gpus", Number(0, 1024)),
    "cpu": ("cpu", POD_CORES),
    "memory": ("memory", POD_BYTES),
    "restart": ("restart_policy", RESTART_POLICIES),
    "working-dir": ("working_dir", FOLDER),
    "command": ("command", Argv()),
}

ROLE_KEYS = tuple(_ROLE_TYPES)


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
            if not equals or key not in _ROLE_TYPES:
                raise ValueError(f"{key!r} is not a key of a role; keys are {', '.join(_ROLE_TYPES)}")
            attribute, of_type = _ROLE_TYPES[key]
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
        for key, (attribute, of_type) in _ROLE_TYPES.items():
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
        if not _ROLE_NAME.fullmatch(self.name):
            return f"{self.name!r} is not a role name: use lowercase letters, digits and '-'."
        for key, (attribute, of_type) in _ROLE_TYPES.items():
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


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Content of the files that a `JobSpec` only names."""

    code: bytes = b""
    """Local folder as a gzipped tar without a leading folder; empty unless `sync_mode` is folder."""
    config_files: Mapping[str, bytes] = field(default_factory=dict)
    """Content by the `local_path` of `JobSpec.config_files`."""
    trainer: Mapping[str, bytes] = field(default_factory=dict)
    """Content by path below the package's parent, e.g. `trainer/ranks.py`."""
    debuggable: bytes = b""
    """Content of `trainer/debuggable.py`."""
    git_login: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Data of the Secret made for the job: `username` and `password`, or `ssh-privatekey`."""
    left_out: tuple[str, ...] = ()
    """Paths not sent though no .gitignore excludes them: links that lead out of the folder."""


NO_FILES = JobFiles()
