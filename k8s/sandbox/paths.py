"""Files of the sandbox, the lock that allows one per folder, and the layout of a container's folder.

The node agent writes `PODS/uid/container`, the API server reads it. `N.log` is the log of run N as CRI
records; `N.1.log`, `N.2.log`… follow when a file is full, and the newest are kept. `process.json` describes
the last run. In the pod's folder, `ports/N.sock` stands for port N if a program listens there instead of on
this machine's loopback.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import platformdirs
import yaml

from k8s.text.errors import SANDBOX_CONTEXT, KubeError
from k8s.text.home import require_own_folder

CONTEXT = SANDBOX_CONTEXT
# Letters that a shell takes without quotes: the folder replaces mount paths in commands.
PLAIN_PATH = re.compile(r"[\w@%+=:,./-]*")
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Process that holds a folder's lock, or held it last."""

    pid: int = 0
    port: int = 0
    started_s: float = 0.0
    """Seconds since the epoch."""


class SandboxPaths:
    """Paths in the sandbox's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.log = folder / "sandbox.log"
        self.database = folder / "objects.db"
        self.pods = folder / "pods"
        self.scratch = folder / "scratch"
        # By namespace and pod name, links to the folders of running containers: the pods' DNS.
        self.hosts = folder / "hosts"
        self.volumes = folder / "volumes"
        self.certificate = folder / "tls.crt"
        self.bin = folder / "bin"
        self.python_path = folder / "python"
        self.start_lock = folder / "start.lock"
        self.lock = folder / "sandbox.lock"
        """Held as long as the sandbox lives; contains its `LockHolder`."""

    @classmethod
    def default(cls) -> SandboxPaths:
        """Return the paths of this user's sandbox.

        Raises:
            KubeError: Another user can write to its folder.
        """
        folder = Path(platformdirs.user_data_path("gpuconsole")) / "sandbox"
        require_own_folder(folder, "XDG_DATA_HOME")
        return cls(folder)

    def prepare(self) -> None:
        """Create the folder, accessible to its owner only.

        Raises:
            KubeError: The folder cannot be created or written, or its name is no `PLAIN_PATH`.
        """
        if not PLAIN_PATH.fullmatch(str(self.folder)):
            raise KubeError(
                "The sandbox cannot use its folder.",
                f"{self.folder} has characters that a shell would need quotes for.",
                "Set XDG_DATA_HOME to a folder without them.",
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            probe = self.folder / ".probe"
            probe.write_bytes(b"x" * 4096)
            probe.unlink()
        except OSError as error:
            raise KubeError(
                "The sandbox cannot use its folder.",
                f"{self.folder}: {error.strerror}.",
                "Free some space or set XDG_DATA_HOME to a folder that you can write.",
            ) from error

    def holder(self) -> LockHolder:
        """Return the holder of the lock, or the last one."""
        try:
            return LockHolder(**json.loads(self.lock.read_text()))
        except (OSError, ValueError, TypeError):
            return LockHolder()

    @property
    def is_held(self) -> bool:
        """Return True if a sandbox runs in this folder."""
        if not self.lock.exists():
            return False
        with locked(self.lock) as is_ours:
            return not is_ours

    def sign(self, port: int) -> None:
        """Record this process as the holder of the lock."""
        self.lock.write_text(json.dumps(asdict(LockHolder(os.getpid(), port, time.time()))))

    async def freed(self, within_s: float) -> bool:
        """Wait until no sandbox runs in this folder; return False after `within_s`."""
        deadline = asyncio.get_running_loop().time() + within_s
        while self.is_held:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def token(self) -> str:
        """Return the bearer token of the sandbox; create it if there is none."""
        path = self.folder / "token"
        if not path.exists() or not path.read_text():
            write_private(path, secrets.token_urlsafe(32))
        return path.read_text()

    def write_kubeconfig(self, port: int, token: str, certificate: str) -> None:
        """Write the sandbox's kubeconfig, readable by its owner only."""
        trusted = base64.b64encode(certificate.encode()).decode()
        server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": trusted}
        context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": server}],
            "users": [{"name": CONTEXT, "user": {"token": token}}],
            "contexts": [{"name": CONTEXT, "context": context}],
            "current-context": CONTEXT,
        }
        write_private(self.kubeconfig, yaml.safe_dump(config, sort_keys=False))


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.touch(0o600)
    fresh.write_text(text)
    fresh.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Try to lock a file and yield True if it worked; the lock ends with the process at the latest."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


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
