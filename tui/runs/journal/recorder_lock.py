"""Lock of the recorder: one for each user and context, and the process that holds it.

The holder touches the file regularly: on file systems without locks, or whose locks other machines do not
see, its age tells whether a recorder runs.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from k8s.text.sanitize import sanitize
from tui.settings.private_file import make_private_folder
from tui.text.format import local_time

# Interval at which the holder touches the file, and the age at which it counts as dead.
BEAT_S, DEAD_S = 30.0, 90.0


class RecorderProcess(msgspec.Struct, frozen=True):
    """Process that holds the lock."""

    pid: int = 0
    """0 if it is not known."""
    host: str = ""
    started_s: float = 0.0
    """Seconds since the epoch."""
    namespace: str = ""
    """Namespace that it records; empty for all."""
    is_for_all_users: bool = False

    @property
    def words(self) -> str:
        """Describe it: `process 71 on login2, since 2026-11-20 18:36:10 CET`."""
        started = local_time(datetime.fromtimestamp(self.started_s, UTC))
        return f"process {self.pid} on {sanitize(self.host)}, since {started}" if self.pid else "a process"


class RecorderLock:
    """The lock of one context in a state folder."""

    def __init__(self, state_folder: Path, context: str) -> None:
        self.path = state_folder / f"record-{sha256(context.encode()).hexdigest()[:16]}.lock"
        self._descriptor = -1

    def holder(self) -> RecorderProcess | None:
        """Return the process that holds the lock, None if there is none, or raise `OSError`."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            return _other_holder(descriptor)
        finally:
            os.close(descriptor)

    def acquire(self, namespace: str = "", *, is_for_all_users: bool = False) -> RecorderProcess | None:
        """Take the lock for this process and return None, or return the process that holds it.

        Raises:
            OSError: The folder cannot be written.
        """
        make_private_folder(self.path.parent)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if (other := _other_holder(self._descriptor)) is not None:
            return other
        place = os.getpid(), socket.gethostname(), time.time()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(
            self._descriptor, msgspec.json.encode(RecorderProcess(*place, namespace, is_for_all_users)), 0
        )
        return None

    def beat(self) -> None:
        """Show other machines that the holder lives; call it every `BEAT_S`."""
        with suppress(OSError):
            os.utime(self._descriptor)

    def release(self) -> None:
        """Release the lock; the file stays, as another process may have it open."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def _other_holder(descriptor: int) -> RecorderProcess | None:
    # Locks the file if nobody holds it.
    has_locks = False
    with suppress(OSError):  # there may be no locks, such as on some Lustre mounts
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            has_locks = True
        except BlockingIOError:
            return _read(descriptor)
    found = _read(descriptor)
    is_recent = bool(found.pid) and os.fstat(descriptor).st_mtime > time.time() - DEAD_S
    return found if is_recent and not (has_locks and found.host == socket.gethostname()) else None


def _read(descriptor: int) -> RecorderProcess:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=RecorderProcess)
    except (OSError, msgspec.MsgspecError, ValueError):
        return RecorderProcess()
