"""A port of its own for each job, so that two jobs at once never meet on this machine's loopback."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 64_000


class Ports:
    """Which port belongs to which job."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def of(self, owner: str) -> int:
        """Return the port of a job, by its uid: free now, and not one the kernel hands out by itself."""
        if owner not in self._of:
            self._of[owner] = self._choose()
        return self._of[owner]

    def keep(self, owners: Collection[str]) -> None:
        """Forget the ports of all jobs but these."""
        self._of = {owner: port for owner, port in self._of.items() if owner in owners}

    def _choose(self) -> int:
        first, last = ephemeral()
        taken = set(self._of.values())
        fixed = [port for port in range(_LOWEST, _HIGHEST) if not first <= port <= last and port not in taken]
        for port in random.sample(fixed, min(len(fixed), 200)):
            if _is_free(port):
                return port
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            return int(found.getsockname()[1])


def ephemeral() -> tuple[int, int]:
    """Return the first and last port that the kernel gives to whoever asks for any."""
    try:
        first, last = _RANGE.read_text().split()
    except (OSError, ValueError):
        return 32768, 60999
    return int(first), int(last)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True
