"""A container's folder, `PODS/uid/container`: the node agent writes it, the API server reads it.

`N.log` is the log of its run number N, as CRI records, and `N.1.log`, `N.2.log`… what followed when that was
full: the newest parts are kept. `process.json` says how its last run was started. In the pod's folder,
`ports/N.sock` stands for its port N where a program listens there, and not on this machine's loopback.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

EXEC_SOCKET = "exec.sock"
"""Where the shim of a container's run takes further commands; the shim knows it by this name too."""
POD_UID, SANDBOX = "GPUCONSOLE_POD_UID", "GPUCONSOLE_SANDBOX"
"""Variables that tell to which pod, and to the sandbox in which folder, a process belongs."""
TENSORBOARD = "tensorboard"
"""A program that listens at a socket file of its pod's, not on a port."""
HOSTS, JOB_PORT = "GPUCONSOLE_HOSTS", "GPUCONSOLE_JOB_PORT"
"""Variables that tell where running pods' containers are found by name, and where a job's ranks may meet."""
TERMINATION_LOG = "GPUCONSOLE_TERMINATION_LOG"
"""Variable that names the file for a container's last words, as `/dev/termination-log`."""
_LOG_NAME = re.compile(r"(\d+)(?:\.(\d+))?\.log")


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much is kept of the log of a container's run."""

    max_bytes: int = 64 * 2**20
    """Of one file; a full one is followed by another."""
    max_files: int = 8
    """The newest are kept."""


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


def port_socket(pods: Path, uid: str, port: int) -> Path:
    """Return where the socket file is that stands for a port of a pod, if one does."""
    return pods / uid / "ports" / f"{port}.sock"


def log_of(folder: Path, run: int, part: int = 0) -> Path:
    """Return where a part of the log of a container's run is; the shim knows these names too."""
    return folder / (f"{run}.{part}.log" if part else f"{run}.log")


def log_parts(folder: Path, run: int) -> list[int]:
    """Return the parts that are there of the log of a container's run, the oldest first."""
    return sorted(part for of, part in _all_parts(folder) if of == run)


def remove_logs_before(folder: Path, run: int) -> None:
    """Remove the logs of a container's earlier runs."""
    for of, part in _all_parts(folder):
        if of < run:
            log_of(folder, of, part).unlink(missing_ok=True)


def _all_parts(folder: Path) -> list[tuple[int, int]]:
    """Return run and number of each part of a log in a folder."""
    try:
        matches = [_LOG_NAME.fullmatch(name) for name in os.listdir(folder)]
    except FileNotFoundError:
        return []
    return [(int(match[1]), int(match[2] or 0)) for match in matches if match]


def rewrite(text: str, mounts: Sequence[tuple[str, str]]) -> str:
    """Replace mount paths wherever they stand as whole parts of a path, in a shell line too."""
    if not any(path in text for path, _ in mounts):
        return text
    real = dict(mounts)
    either = "|".join(re.escape(path) for path, _ in mounts)
    return re.sub(rf"(?<![\w./)}}~-])({either})(?![\w.-])", lambda match: real[match[1]], text)
