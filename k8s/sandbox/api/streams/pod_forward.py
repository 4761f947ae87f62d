"""`pods/NAME/portforward`: connections to a pod's ports, over a websocket.

The websocket has two channels for each port, or carries SPDY (see `spdy_tunnel`) as kubectl 1.31 and newer
request. All pods share this machine's loopback, so a pod's port is this machine's port, unless a socket
file of the pod stands for it, as for its TensorBoard.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.store import Object, Record
from k8s.sandbox.api.streams import spdy_tunnel
from k8s.sandbox.api.streams.pod_exec import CHUNK_BYTES, PING_S
from k8s.sandbox.pod_folder import TENSORBOARD, port_socket

PROTOCOL = "v4.channel.k8s.io"
MAX_PORTS = 10
# Time for a TensorBoard to start, and between two checks.
START_S, POLL_S = 60.0, 0.1


async def run_forward(
    request: web.Request, record: Record, pods_root: Path, stopping: asyncio.Event
) -> web.StreamResponse:
    """Carry bytes until the ports are closed, or the client leaves.

    Raises:
        ApiError: The pod does not run, a port is malformed, or the client supports none of our protocols.
    """
    pod = record.obj
    name = str(pod["metadata"]["name"])
    only_websockets = api_errors.bad_request(
        "ports are forwarded over websockets only: use kubectl 1.31 or newer, or "
        f"gpuconsole --sandbox forward {name} PORT"
    )
    offered = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    is_tunnel = spdy_tunnel.PROTOCOL in offered
    if request.method != "GET":
        raise only_websockets
    ports = [] if is_tunnel else _ports(request)
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if phase != "Running":
        why = f"unable to forward port because pod is not running. Current status={phase}"
        raise ApiError(500, "InternalError", why)
    protocols = (spdy_tunnel.PROTOCOL,) if is_tunnel else (PROTOCOL,)
    socket = web.WebSocketResponse(protocols=protocols, heartbeat=PING_S, max_msg_size=0)
    if not socket.can_prepare(request).ok:
        raise only_websockets
    if protocols[0] not in offered:
        raise api_errors.bad_request(f"port-forward supports {PROTOCOL} and {spdy_tunnel.PROTOCOL}")
    await socket.prepare(request)
    if is_tunnel:
        tunnel = spdy_tunnel.SpdyTunnel(socket, lambda port: _connect(pod, pods_root, port), name)
        await _until_stopped(stopping, asyncio.create_task(tunnel.run()))
        await socket.close()
        return socket
    writers: dict[int, asyncio.StreamWriter] = {}
    carriers = []
    for at, port in enumerate(ports):
        for channel in (2 * at, 2 * at + 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writers[2 * at] = await _connect(pod, pods_root, port)
        except OSError as error:
            message = f"error forwarding port {port} to pod {name}: {error.strerror or error}"
            await socket.send_bytes(bytes([2 * at + 1]) + message.encode())
        else:
            carriers.append(asyncio.create_task(_carry_out(socket, 2 * at, reader)))
    receiving = asyncio.create_task(_carry_in(socket, writers))
    ended = asyncio.gather(*carriers, return_exceptions=True)
    try:
        await _until_stopped(stopping, receiving, ended, others=carriers)
    finally:
        for writer in writers.values():
            writer.close()
    await socket.close()
    return socket


async def _until_stopped(
    stopping: asyncio.Event, *tasks: asyncio.Future[Any], others: Sequence[asyncio.Task[None]] = ()
) -> None:
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopped, *tasks, *others):
            task.cancel()
        await asyncio.gather(stopped, *tasks, *others, return_exceptions=True)


async def _connect(
    pod: Object, pods_root: Path, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a pod's port; wait for a TensorBoard that is still starting.

    Raises:
        OSError: No process listens on it.
    """
    path = port_socket(pods_root, str(pod["metadata"]["uid"]), port)
    if not _runs_tensorboard(pod) and not path.exists():
        return await asyncio.open_connection("127.0.0.1", port)
    deadline = asyncio.get_running_loop().time() + START_S
    while True:
        try:
            return await _connect_socket(path)
        except (FileNotFoundError, ConnectionRefusedError):
            # There is no file yet, or nobody listens on it yet; without its folder, the pod is gone.
            is_starting = _runs_tensorboard(pod) and path.parent.parent.exists()
            if not is_starting or asyncio.get_running_loop().time() >= deadline:
                raise
        await asyncio.sleep(POLL_S)


async def _connect_socket(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # By way of the folder: the path itself may be too long for a socket's address.
    at = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{at}/{path.name}")
    finally:
        os.close(at)


def _runs_tensorboard(pod: Object) -> bool:
    commands = [each.get("command") or [""] for each in pod["spec"]["containers"]]
    return any(os.path.basename(str(command[0])) == TENSORBOARD for command in commands)


def _ports(request: web.Request) -> list[int]:
    words = ",".join(request.query.getall("ports", [])).split(",")
    ports = [int(word) for word in words if word.isascii() and word.isdecimal() and 0 < int(word[:6]) < 65536]
    if len(ports) != len(words) or len(ports) > MAX_PORTS:
        raise api_errors.bad_request('query parameter "ports" must be one to ten numbers of ports')
    return ports


async def _carry_out(socket: web.WebSocketResponse, channel: int, reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(CHUNK_BYTES):
            await socket.send_bytes(bytes([channel]) + chunk)


async def _carry_in(socket: web.WebSocketResponse, writers: dict[int, asyncio.StreamWriter]) -> None:
    async for message in socket:
        frame = message.data.encode() if message.type is WSMsgType.TEXT else message.data
        writer = writers.get(frame[0]) if frame and isinstance(frame, bytes) else None
        if writer is not None:
            with suppress(ConnectionError):
                writer.write(frame[1:])
                await writer.drain()
