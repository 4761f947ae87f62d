"""Run commands in containers, with input, output, errors and exit code.

Uses `v5.channel.k8s.io`, or `v4` with servers before Kubernetes 1.30, which has no end of input.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from k8s.client.client import COMMAND_PROTOCOLS, Client
from k8s.client.session import Channels
from k8s.client.transport import status_of
from k8s.models.resources import PODS
from k8s.text.errors import Unreachable, from_status

# Channels. `ENDED` carries a `v1.Status`; `CLOSE` is of protocol v5 only.
STDIN, STDOUT, STDERR, ENDED, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
SHELL = ("sh", "-c", "for s in bash ash; do command -v $s >/dev/null 2>&1 && exec $s; done; exec sh")
# Silence after which the server is pinged; after as much again the connection is lost.
PING_S = 20.0


class ExecSession:
    """Command that runs in a container."""

    def __init__(self, channels: Channels, doing: str, *, can_end_input: bool) -> None:
        self._channels = channels
        self._doing = doing
        self.can_end_input = can_end_input
        self.exit_code: int | None = None
        """None while the command runs."""

    async def write(self, content: bytes) -> None:
        """Send input; raises `Unreachable` if the connection is closed."""
        await self._channels.send(STDIN, content)

    async def end_input(self) -> None:
        """Signal the end of input; does nothing with protocol v4."""
        if self.can_end_input:
            await self._channels.send(CLOSE, bytes([STDIN]))

    async def resize(self, columns: int, lines: int) -> None:
        """Set the size of its terminal."""
        await self._channels.send(RESIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield its output, each chunk with `STDOUT` or `STDERR`; sets `exit_code` at the end.

        Raises:
            Unreachable: The connection ended before the command.
            KubeError: The server could not start the command.
        """
        ending = b""
        async for channel, content in self._channels.receive():
            if channel in (STDOUT, STDERR):
                yield channel, content
            elif channel == ENDED:
                ending += content
                if status_of(ending).get("status"):
                    break
        if not ending:
            raise Unreachable(f"Could not {self._doing} to its end.", "The connection was closed.")
        self.exit_code = _exit_code(status_of(ending), self._doing)


@asynccontextmanager
async def start(
    client: Client,
    pod: str,
    namespace: str,
    command: Sequence[str] = SHELL,
    *,
    container: str = "",
    has_input: bool = True,
    has_terminal: bool = False,
    doing: str = "",
    ping_s: float = PING_S,
) -> AsyncIterator[ExecSession]:
    """Start a command in a container; leaving the context disconnects, which ends most commands.

    Args:
        client: The cluster.
        pod: Name of the pod.
        namespace: Namespace of the pod.
        command: Words of the command.
        container: Required if the pod has several.
        has_input: Input will be sent.
        has_terminal: Allocate a terminal, which merges output and errors.
        doing: Request in error messages; "run … in POD" by default.
        ping_s: See `PING_S`.

    Raises:
        KubeError: The server refuses the request.
    """
    doing = doing or f"run {command[0]} in {pod}"
    query = [("command", word) for word in command]
    wants = {"stdin": has_input, "stdout": True, "stderr": not has_terminal, "tty": has_terminal}
    query += [(name, "true") for name, is_wanted in wants.items() if is_wanted]
    query += [("container", container)] if container else []
    path = PODS.path(namespace, pod, "exec")
    async with client.open_socket(path, doing, query, is_ponging=False) as socket:
        can_end_input = socket.protocol == COMMAND_PROTOCOLS[0]
        yield ExecSession(Channels(socket, doing, ping_s=ping_s), doing, can_end_input=can_end_input)


def _exit_code(status: Mapping[str, Any], doing: str) -> int:
    # Raises KubeError if the command never started, or its exit code is unknown.
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            code = str(cause.get("message"))
            if code.isascii() and code.isdecimal():
                return int(code)
    raise from_status(500, status, doing)
