"""Files of the sandbox, and the lock that allows one sandbox per folder."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

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
