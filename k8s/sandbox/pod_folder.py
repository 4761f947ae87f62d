"""A container's folder, `PODS/uid/container`: the node agent writes it, the API server reads it.

`N.log` is the log of its run number N, as CRI records; `process.json` says how its last run was started.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

EXEC_SOCKET = "exec.sock"
"""Where the shim of a container's run takes further commands; the shim knows it by this name too."""
POD_UID, SANDBOX = "GPUCONSOLE_POD_UID", "GPUCONSOLE_SANDBOX"
"""Variables that tell to which pod, and to the sandbox in which folder, a process belongs."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A process, ready to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mounts: tuple[tuple[str, str], ...]
    """Mount paths and what stands for them, the longest first."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return how a container was started last.

        Raises:
            OSError, ValueError: Nothing says so.
        """
        return cls(**json.loads((folder / "process.json").read_text()))

    def write(self, folder: Path) -> Path:
        """Leave in a container's folder how it is started; return the file, which only its owner may read."""
        fresh = folder / "process.new"
        fresh.touch(0o600)
        fresh.write_text(json.dumps(asdict(self)))
        return fresh.replace(folder / "process.json")


def log_of(folder: Path, run: int) -> Path:
    """Return where the log of a container's run is."""
    return folder / f"{run}.log"


def rewrite(text: str, mounts: Sequence[tuple[str, str]]) -> str:
    """Replace mount paths wherever they stand as whole parts of a path, in a shell line too."""
    if not any(path in text for path, _ in mounts):
        return text
    real = dict(mounts)
    either = "|".join(re.escape(path) for path, _ in mounts)
    return re.sub(rf"(?<![\w./)}}~-])({either})(?![\w.-])", lambda match: real[match[1]], text)
