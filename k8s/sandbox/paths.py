"""Where the sandbox keeps its things, and who holds them: one sandbox per folder."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
import yaml

from k8s.errors import KubeError

CONTEXT = "sandbox"
"""Name of the kubeconfig's context."""
_TURN_S = 0.05


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The sandbox that holds a folder, or held it last."""

    pid: int = 0
    port: int = 0
    started_s: float = 0.0
    """When it started, in seconds since 1970."""


class SandboxPaths:
    """The sandbox's folder and what lies in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Only its owner may enter it."""
        self.kubeconfig = folder / "kubeconfig"
        """How to reach the sandbox."""
        self.log = folder / "sandbox.log"
        """What the sandbox says about itself."""
        self.database = folder / "objects.db"
        """The objects."""
        self.pods = folder / "pods"
        """Of each pod, by uid, and container: its logs and how it was started."""
        self.scratch = folder / "scratch"
        """Of each pod, by uid: its home and its own volumes, which go with it."""
        self.hosts = folder / "hosts"
        """By namespace and pod, links to the folders of the containers that run, as names lead to pods."""
        self.volumes = folder / "volumes"
        """What stands for volume claims."""
        self.certificate = folder / "tls.crt"
        """What proves that it is the sandbox."""
        self.bin = folder / "bin"
        """Programs that every pod finds first."""
        self.python_path = folder / "python"
        """What the Python of every pod finds."""
        self.start_lock = folder / "start.lock"
        """Held while somebody starts, stops or empties the sandbox."""
        self.lock = folder / "sandbox.lock"
        """Held by the sandbox as long as it lives; says who it is."""

    @classmethod
    def default(cls) -> SandboxPaths:
        """Return where the sandbox of this user lives."""
        return cls(Path(platformdirs.user_data_path("gpuconsole")) / "sandbox")

    def prepare(self) -> None:
        """Make the folder, for its owner only.

        Raises:
            KubeError: It cannot be made or written.
        """
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
        """Return who holds the folder, or held it last."""
        try:
            return LockHolder(**json.loads(self.lock.read_text()))
        except (OSError, ValueError, TypeError):
            return LockHolder()

    @property
    def is_held(self) -> bool:
        """Tell whether a sandbox lives here."""
        if not self.lock.exists():
            return False
        with locked(self.lock) as is_ours:
            return not is_ours

    def sign(self, port: int) -> None:
        """Say who holds the folder. Needs its lock."""
        self.lock.write_text(json.dumps(asdict(LockHolder(os.getpid(), port, time.time()))))

    async def freed(self, within_s: float) -> bool:
        """Wait until no sandbox holds the folder; tell whether that came true."""
        deadline = asyncio.get_running_loop().time() + within_s
        while self.is_held:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_TURN_S)
        return True

    def token(self) -> str:
        """Return the secret that opens the sandbox, made when there is none."""
        path = self.folder / "token"
        if not path.exists() or not path.read_text():
            write_private(path, secrets.token_urlsafe(32))
        return path.read_text()

    def write_kubeconfig(self, port: int, token: str, certificate: str) -> None:
        """Write how to reach the sandbox, for its owner only."""
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
    """Write a file that only its owner may read, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.touch(0o600)
    fresh.write_text(text)
    fresh.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a file, and tell whether nobody else has; the lock ends with the process, however it ends."""
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
