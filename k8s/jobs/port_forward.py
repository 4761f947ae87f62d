"""A port of a pod on this machine's loopback: each connection to it is one websocket to the cluster.

Spoken over `v4.channel.k8s.io`, which every server and kubelet has. It knows no half-close: when
a client has said all, the pod is not told, and may still answer for a while.
Source: k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from k8s.client.channels import PIECE_BYTES, Channels
from k8s.client.client import Client
from k8s.errors import KubeError, ServerFailed, Unreachable
from k8s.models.resources import PODS

LOOPBACK = "127.0.0.1"
"""The one address that is listened on."""
PROTOCOLS = ("v4.channel.k8s.io",)
CARRIED, FAILED = 0, 1
"""The channels of the first port; each begins with the port's number in two bytes."""
CONNECTIONS = 200
"""Most that are carried at once; further ones wait their turn."""
HALF_CLOSED_S = 30.0
"""How long a pod may be silent to a client that has said all."""


@dataclass(eq=False, slots=True)
class Forward:
    """A forwarded port, and how it goes."""

    namespace: str
    pod: str
    port: int
    """The pod's."""
    local_port: int = 0
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it began, by this machine's clock."""
    connections: int = 0
    """How many are open now."""
    bytes_sent: int = 0
    """To the pod."""
    bytes_received: int = 0
    """From the pod."""
    last_error: str = ""
    """Why a connection failed, in words; empty once another has worked."""

    @property
    def address(self) -> str:
        """Return what to connect to."""
        return f"{LOOPBACK}:{self.local_port}"


@asynccontextmanager
async def forward(
    client: Client,
    pod: str,
    namespace: str,
    port: int,
    *,
    local_port: int = 0,
    on_change: Callable[[Forward], None] | None = None,
) -> AsyncIterator[Forward]:
    """Forward a local port to a pod's for as long as the context is open.

    A pod that is replaced by one of the same name is reached again. What fails ends the
    connection that it happened on, and no other.

    Args:
        client: The cluster.
        pod: The pod's name.
        namespace: Its namespace.
        port: Its port.
        local_port: Ours; 0 takes a free one.
        on_change: Called when a connection begins, ends or fails.

    Raises:
        KubeError: The server refuses, in its words; or the local port is taken.
    """
    made = Forward(namespace, pod, port, local_port)
    carrier = _Carrier(client, made, on_change or _nobody)
    async with carrier.open():
        pass
    doing = f"forward a port to {pod}"
    try:
        server = await asyncio.start_server(carrier.serve, LOOPBACK, local_port, limit=PIECE_BYTES)
    except OSError as error:
        why = f"Port {local_port} of this machine: {os.strerror(error.errno or 0)}."
        raise KubeError(f"Could not {doing}.", why, "Choose another port, or none.") from error
    made.local_port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await carrier.stop()


def _nobody(_: Forward) -> None:
    """Tell nobody of a change."""


class _Carrier:
    """Serves the connections of one forward."""

    def __init__(self, client: Client, made: Forward, on_change: Callable[[Forward], None]) -> None:
        self._client = client
        self._forward = made
        self._on_change = on_change
        self._doing = f"reach port {made.port} of {made.pod}"
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Channels]:
        """Open a connection to the pod's port."""
        made = self._forward
        path = PODS.path(made.namespace, made.pod, "portforward")
        query = {"ports": str(made.port)}
        opening = self._client.open_socket(path, self._doing, query, protocols=PROTOCOLS, is_ponging=False)
        async with opening as opened:
            yield Channels(opened, self._doing)

    async def stop(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to carry a connection."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection to its end; a client whose connection fails sees it reset."""
        made = self._forward
        try:
            async with self._turns:
                made.connections += 1
                self._on_change(made)
                try:
                    async with self.open() as channels:
                        await self._carry(reader, writer, channels)
                finally:
                    made.connections -= 1
        except KubeError as error:
            made.last_error = str(error)
            _reset(writer)
        except OSError:
            _reset(writer)  # the client left
        finally:
            self._on_change(made)
            writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channels: Channels
    ) -> None:
        """Carry bytes both ways until the pod is done, or the client is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as patience:
                up = asyncio.create_task(self._carry_up(reader, channels, patience))
                try:
                    await self._carry_down(channels, writer, up, patience)
                finally:
                    up.cancel()
                    await asyncio.gather(up, return_exceptions=True)

    async def _carry_up(
        self, reader: asyncio.StreamReader, channels: Channels, patience: asyncio.Timeout
    ) -> None:
        now = asyncio.get_running_loop().time
        try:
            while content := await reader.read(PIECE_BYTES):
                await channels.send(CARRIED, content)
                self._forward.bytes_sent += len(content)
            patience.reschedule(now() + HALF_CLOSED_S)
        except OSError:
            patience.reschedule(now())  # the client is gone
        except Unreachable:
            return  # whoever reads from the pod is told the same

    async def _carry_down(
        self,
        channels: Channels,
        writer: asyncio.StreamWriter,
        up: asyncio.Task[None],
        patience: asyncio.Timeout,
    ) -> None:
        """Carry what the pod says.

        Raises:
            KubeError: The pod could not be reached, or not to the end.
            OSError: The client is gone.
        """
        made = self._forward
        now = asyncio.get_running_loop().time
        numbers_left = {CARRIED: 2, FAILED: 2}
        failure = b""
        async for channel, content in channels.receive():
            number_bytes = min(numbers_left.get(channel, 0), len(content))
            if number_bytes:
                numbers_left[channel] -= number_bytes
                content = content[number_bytes:]
            if channel == FAILED:
                failure += content
            elif channel == CARRIED and content:
                made.last_error = ""
                made.bytes_received += len(content)
                writer.write(content)
                await writer.drain()
                if up.done():
                    patience.reschedule(now() + HALF_CLOSED_S)
        if failure:
            words = failure.decode("utf-8", "replace").strip()
            raise ServerFailed(f"Could not {self._doing}.", f"The cluster says: {words}")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection so that its client sees it broken, not ended in order."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
