"""The values of a job's fields that have parts of their own, each as one line of text and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from k8s.job_spec.field_types import Quantity, dns_problem

ACCESS_MODES = {
    "RWO": "ReadWriteOnce",
    "ROX": "ReadOnlyMany",
    "RWX": "ReadWriteMany",
    "RWOP": "ReadWriteOncePod",
}
"""How a volume may be mounted, by the short word for it."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume claim mounted in the pods of a job."""

    claim: str
    """Name of the PersistentVolumeClaim."""
    path: str
    """Absolute path in the container."""
    sub_path: str = ""
    """Folder of the volume to mount; empty for all of it."""
    is_read_only: bool = False

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `claim[/folder]:/path[:ro]`.

        Raises:
            ValueError: It is not that.
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
    """A volume claim that is created before the job, and stays when the job goes."""

    name: str
    size: str
    """What it asks for, as a quantity: `100Gi`."""
    storage_class: str = ""
    """Empty for the cluster's default."""
    mode: str = "RWO"
    """How it may be mounted: one of `ACCESS_MODES`."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `name size [class] [mode]`; colons do in place of spaces, class and mode in either order.

        Raises:
            ValueError: It is not that.
        """
        short = {long: word for word, long in ACCESS_MODES.items()}
        words = [short.get(word, word) for word in re.split(r"[\s:]+", text.strip())]
        modes = [word for word in words[2:] if word in ACCESS_MODES]
        classes = [word for word in words[2:] if word not in ACCESS_MODES]
        if len(words) < 2 or not all(words) or len(modes) > 1 or len(classes) > 1:
            raise ValueError("expected NAME SIZE, or NAME SIZE CLASS MODE; modes are RWO, RWX, ROX, RWOP")
        return cls(words[0], words[1], *(classes or [""]), *modes)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        mode = "" if self.mode == "RWO" else self.mode
        return " ".join(filter(None, (self.name, self.size, self.storage_class, mode)))

    def problem(self) -> str:
        """Return what is wrong with its parts, in a sentence; empty where nothing is."""
        if not self.size or (found := Quantity().problem(self.size)):
            return f"{self.name}: {found if self.size else 'it needs a size, e.g. 100Gi.'}"
        return dns_problem(self.name) or (dns_problem(self.storage_class) if self.storage_class else "")


@dataclass(frozen=True, slots=True)
class HostMount:
    """A folder of the node mounted in the pods of a job."""

    host_path: str
    """Absolute path on the node."""
    path: str
    """Absolute path in the container."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `/on/the/node[:/path]`; without a path it is the same one.

        Raises:
            ValueError: It is not that.
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
    """A local file that comes with the job, in a ConfigMap."""

    local_path: str
    """Where it is read on this machine."""
    path: str
    """Absolute path of the file in the container."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `local-file[:/path]`; without a path it keeps its own, which is absolute then.

        Raises:
            ValueError: It is not that.
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
    """Variables whose values are in a Secret or a ConfigMap."""

    is_secret: bool
    """Of a Secret; else of a ConfigMap."""
    source: str
    """Name of the Secret or ConfigMap."""
    key: str = ""
    """Which of its keys; empty for all of them."""
    name: str = ""
    """Name of the variable that gets the key; empty with all keys, which name themselves."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `secret/wandb`, `configmap/paths` or, for one key, `WANDB_API_KEY=secret/wandb/key`.

        Raises:
            ValueError: It is not that.
        """
        name, equals, place = text.rpartition("=")
        kind, *rest = place.split("/")
        if kind not in ("secret", "configmap") or bool(equals) != bool(name):
            raise ValueError("expected secret/NAME, configmap/NAME or VARIABLE=secret/NAME/KEY")
        if len(rest) != (2 if name else 1) or not all(rest):
            raise ValueError("expected secret/NAME, configmap/NAME or VARIABLE=secret/NAME/KEY")
        return cls(kind == "secret", rest[0], rest[1] if name else "", name)

    def to_text(self) -> str:
        """Return the line that `from_text` reads."""
        kind = "secret" if self.is_secret else "configmap"
        return f"{self.name}={kind}/{self.source}/{self.key}" if self.name else f"{kind}/{self.source}"


@dataclass(frozen=True, slots=True)
class PodToleration:
    """A taint that does not keep the pods of a job off a node."""

    key: str = ""
    """Empty tolerates every taint."""
    value: str = ""
    effect: str = ""
    """NoSchedule, PreferNoSchedule or NoExecute; empty for any."""
    operator: str = "Exists"
    """Equal compares the value, Exists does not."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read `all`, `key`, `key:effect`, `key=value:effect` or Arena's `key=value:effect,operator`.

        Raises:
            ValueError: It is not that.
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
    """Return both sides of `source:/path`; without a path it is the source again."""
    source, _, path = text.partition(":")
    return source, path or source


def _joined(source: str, path: str) -> str:
    return source if path == source else f"{source}:{path}"
