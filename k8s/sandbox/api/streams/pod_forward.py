"""`pods/NAME/portforward`: connections to a pod's ports, over a websocket of two channels for each port.

All pods share this machine's loopback, so a pod's port is this machine's, unless a socket file of the
pod's stands for it, as for its TensorBoard. Only websockets
are served, which kubectl does not use for this; `gpuconsole forward` does.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from aiohttp import WSMsgType, web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.storage.store import Object, Record
from k8s.sandbox.api.streams.pod_exec import CHUNK_BYTES, PING_S
from k8s.sandbox.pod_folder import TENSORBOARD, port_socket

PROTOCOL = "v4.channel.k8s.io"
MOST_PORTS = 10
START_S, LOOK_S = 20.0, 0.1
"""How long a TensorBoard may take to start, and between two looks whether it has."""


async def run_forward(
    request: web.Request, record: Record, pods_root: Path, stopping: asyncio.Event
) -> web.StreamResponse:
    """Carry bytes until the ports are closed, or the client leaves.

    Raises:
        ApiError: The pod does not run, a port is none, or the client speaks no protocol of ours.
    """
    pod = record.obj
    only_websockets = api_errors.bad_request("ports are forwarded over websockets only: upgrade with GET")
    if request.method != "GET":
        raise only_websockets
    ports = _ports(request)
    if (pod.get("status") or {}).get("phase") != "Running":
        why = f"unable to forward port because pod is not running. Current status={_phase(record)}"
        raise ApiError(500, "InternalError", why)
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), heartbeat=PING_S, max_msg_size=0)
    if not socket.can_prepare(request).ok:
        raise only_websockets
    if PROTOCOL not in request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(","):
        raise api_errors.bad_request(f"port-forward speaks {PROTOCOL}")
    await socket.prepare(request)
    writers: dict[int, asyncio.StreamWriter] = {}
    carriers = []
    for at, port in enumerate(ports):
        for channel in (2 * at, 2 * at + 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writers[2 * at] = await _connect(pod, pods_root, port)
        except OSError as error:
            name = pod["metadata"]["name"]
            words = f"error forwarding port {port} to pod {name}: {error.strerror or error}"
            await socket.send_bytes(bytes([2 * at + 1]) + words.encode())
        else:
            carriers.append(asyncio.create_task(_carry_out(socket, 2 * at, reader)))
    taking = asyncio.create_task(_carry_in(socket, writers))
    ended = asyncio.ensure_future(_all(carriers))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((taking, ended, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (taking, ended, stopped, *carriers):
            task.cancel()
        await asyncio.gather(taking, ended, stopped, *carriers, return_exceptions=True)
        for writer in writers.values():
            writer.close()
    await socket.close()
    return socket


async def _connect(
    pod: Object, pods_root: Path, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a pod's port; a TensorBoard that only just starts is waited for.

    Raises:
        OSError: Nobody listens there.
    """
    path = port_socket(pods_root, str(pod["metadata"]["uid"]), port)
    deadline = asyncio.get_running_loop().time() + START_S
    while _runs_tensorboard(pod) and not path.exists() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(LOOK_S)
    if not path.exists() and not _runs_tensorboard(pod):
        return await asyncio.open_connection("127.0.0.1", port)
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
    if len(ports) != len(words) or len(ports) > MOST_PORTS:
        raise api_errors.bad_request('query parameter "ports" must be one to ten numbers of ports')
    return ports


def _phase(record: Record) -> str:
    return str((record.obj.get("status") or {}).get("phase") or "Pending")


async def _all(carriers: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*carriers, return_exceptions=True)


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
