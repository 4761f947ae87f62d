"""Layout of a container's folder, `PODS/uid/container`: written by the node agent, read by the API server.

`N.log` is the log of run N as CRI records; `N.1.log`, `N.2.log`… follow when a file is full, and the newest
are kept. `process.json` describes the last run. In the pod's folder, `ports/N.sock` stands for port N if a
program listens there instead of on this machine's loopback.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

# The shim accepts further commands here; `shim.py` repeats the name.
EXEC_SOCKET = "exec.sock"
# Variables that mark a process with its pod and with the folder of its sandbox.
POD_UID, SANDBOX = "GPUCONSOLE_POD_UID", "GPUCONSOLE_SANDBOX"
# This program listens at a socket in its pod's folder.
TENSORBOARD = "tensorboard"
# Variables with the folder of running containers by name, and with a port for a job's ranks.
HOSTS, JOB_PORT = "GPUCONSOLE_HOSTS", "GPUCONSOLE_JOB_PORT"
# Variable with the file that stands for `/dev/termination-log`.
TERMINATION_LOG = "GPUCONSOLE_TERMINATION_LOG"
_LOG_NAME = re.compile(r"(\d+)(?:\.(\d+))?\.log")


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of the log of one container run."""

    max_bytes: int = 64 * 2**20
    """Per file; a full one is followed by another."""
    max_files: int = 8


@dataclass(frozen=True, slots=True)
class Launch:
    """Process to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mounts: tuple[tuple[str, str], ...]
    """Mount paths and host paths, the longest first."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the description of a container's last run.

        Raises:
            OSError, ValueError: The description is missing or damaged.
        """
        return cls(**json.loads((folder / "process.json").read_text()))

    def write(self, folder: Path) -> Path:
        """Write the description into a container's folder, readable by its owner only; return the file."""
        fresh = folder / "process.new"
        fresh.touch(0o600)
        fresh.write_text(json.dumps(asdict(self)))
        return fresh.replace(folder / "process.json")


def port_socket(pods: Path, uid: str, port: int) -> Path:
    """Return the path of the socket that stands for a pod's port; it may not exist."""
    return pods / uid / "ports" / f"{port}.sock"


def log_of(folder: Path, run: int, part: int = 0) -> Path:
    """Return the path of one part of a run's log; `shim.py` repeats these names."""
    return folder / (f"{run}.{part}.log" if part else f"{run}.log")


def log_parts(folder: Path, run: int) -> list[int]:
    """Return the existing parts of a run's log, the oldest first."""
    return sorted(part for of, part in _all_parts(folder) if of == run)


def remove_logs_before(folder: Path, run: int) -> None:
    """Delete the logs of earlier runs."""
    for of, part in _all_parts(folder):
        if of < run:
            log_of(folder, of, part).unlink(missing_ok=True)


def _all_parts(folder: Path) -> list[tuple[int, int]]:
    try:
        matches = [_LOG_NAME.fullmatch(name) for name in os.listdir(folder)]
    except FileNotFoundError:
        return []
    return [(int(match[1]), int(match[2] or 0)) for match in matches if match]


def rewrite(text: str, mounts: Sequence[tuple[str, str]]) -> str:
    """Replace mount paths by host paths where they are complete parts of a path, also in shell commands.

    A relative mount path is replaced only where it is certainly a path.
    """
    if not any(path in text for path, _ in mounts):
        return text
    real = dict(mounts)
    either = "|".join(map(_pattern, real))
    return re.sub(rf"(?<![\w./)}}~-])(?:\./)?({either})", lambda match: real[match[1]], text)


def _pattern(path: str) -> str:
    whole = rf"{re.escape(path)}(?![\w.-])"
    is_word = not re.search("[/.]", path)
    return rf"(?<=\bcd ){whole}|{re.escape(path)}(?=/)" if is_word else whole
