"""Forward a pod's port to loopback: each connection to it is one websocket to the cluster.

Loopback is open to every account of the machine, so connections of others are reset.

Uses `v4.channel.k8s.io`, which every server and kubelet supports. It has no half-close: the pod does
not learn that a client has finished sending, and may still answer for a while.
Source: k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import msgspec

from k8s.client.client import Client
from k8s.client.session import PIECE_BYTES, Channels
from k8s.client.transport import stranger_of
from k8s.models.resources import PODS
from k8s.text.errors import KubeError, ServerFailed, Unreachable

LOOPBACK = "127.0.0.1"
PROTOCOLS = ("v4.channel.k8s.io",)
# Channels of the first port; each starts with the port number in two bytes.
CARRIED, FAILED = 0, 1
# Limit of open connections; further ones wait.
CONNECTIONS = 200
# Silence of the pod after which a connection ends whose client has finished sending.
HALF_CLOSED_S = 30.0


class Forward(msgspec.Struct, eq=False):
    """Forwarded port with its statistics."""

    namespace: str
    pod: str
    port: int
    local_port: int = 0
    since: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))
    connections: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    last_error: str = ""

    @property
    def address(self) -> str:
        """Local address to connect to."""
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
    """Forward a local port, 0 for a free one, to a pod's while the context is open.

    A pod replaced by one of the same name is reached again. A failure ends only its connection.
    `on_change` is called when a connection opens, closes or fails.

    Raises:
        KubeError: The server refuses the connection, or the local port is in use.
    """
    made = Forward(namespace, pod, port, local_port)
    carrier = _Carrier(client, made, on_change or (lambda _: None))
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


class _Carrier:
    def __init__(self, client: Client, made: Forward, on_change: Callable[[Forward], None]) -> None:
        self._client = client
        self._forward = made
        self._on_change = on_change
        self._doing = f"reach port {made.port} of {made.pod}"
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Channels]:
        made = self._forward
        path = PODS.path(made.namespace, made.pod, "portforward")
        query = {"ports": str(made.port)}
        opening = self._client.open_socket(path, self._doing, query, protocols=PROTOCOLS, is_ponging=False)
        async with opening as opened:
            yield Channels(opened, self._doing)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client whose connection fails sees a reset.
        made = self._forward
        try:
            if (uid := stranger_of(writer.get_extra_info("socket"))) is not None:
                raise KubeError(
                    f"Refused a connection to {made.address}.",
                    f"It came from another account of this machine (user id {uid}).",
                    "Forwarded ports serve the account that forwards them, and root.",
                )
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
            return  # reading from the pod fails the same way

    async def _carry_down(
        self,
        channels: Channels,
        writer: asyncio.StreamWriter,
        up: asyncio.Task[None],
        patience: asyncio.Timeout,
    ) -> None:
        # Raises KubeError if the pod cannot be reached, and OSError if the client is gone.
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
    # With a linger time of 0 the client sees a reset instead of an orderly end.
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
