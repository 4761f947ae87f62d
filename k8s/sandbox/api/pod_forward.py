"""`pods/NAME/portforward`: connections to a pod's ports, over a websocket.

The websocket has two channels for each port, or carries SPDY/3.1 in its messages, as kubectl forwards ports
since 1.31: it knows no other way. The client opens two streams for each connection: `error`, which only the
server writes to, and `data`. Streams have no flow control, as in spdystream.

All pods share the loopback, so a pod's port is this machine's port, unless a socket file of the pod
stands for it, as for its TensorBoard.
Source: draft-mbelshe-httpbis-spdy-00; `tools/portforward` in client-go.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.pod_exec import CHUNK_BYTES, PING_S
from k8s.sandbox.api.store import Object, Record
from k8s.sandbox.paths import TENSORBOARD, port_socket

PROTOCOL = "v4.channel.k8s.io"
MAX_PORTS = 10
# Time for a TensorBoard to start, and between two checks.
START_S, POLL_S = 60.0, 0.1
TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING = 1, 2, 3, 6
_FIN = 1
_CONTROL = 0x8003 << 16
_MAX_HEADER_BYTES, _MAX_STREAMS, _MAX_CHUNKS = 16 * 1024, 1000, 64
_NO_HEADERS = bytes(4)
_WORDS = """options head post put delete trace accept accept-charset accept-encoding accept-language
accept-ranges age allow authorization cache-control connection content-base content-encoding
content-language content-length content-location content-md5 content-range content-type date etag
expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer
retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"""
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(
    len(word).to_bytes(4, "big") + word.replace("_", " ").encode() for word in _WORDS.split()
)
DICTIONARY += _TEXT.encode()


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
    is_tunnel = TUNNEL_PROTOCOL in offered
    if request.method != "GET":
        raise only_websockets
    ports = [] if is_tunnel else _ports(request)
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if phase != "Running":
        why = f"unable to forward port because pod is not running. Current status={phase}"
        raise ApiError(500, "InternalError", why)
    protocols = (TUNNEL_PROTOCOL,) if is_tunnel else (PROTOCOL,)
    socket = web.WebSocketResponse(protocols=protocols, heartbeat=PING_S, max_msg_size=0)
    if not socket.can_prepare(request).ok:
        raise only_websockets
    if protocols[0] not in offered:
        raise api_errors.bad_request(f"port-forward supports {PROTOCOL} and {TUNNEL_PROTOCOL}")
    await socket.prepare(request)
    if is_tunnel:
        tunnel = SpdyTunnel(socket, lambda port: _connect(pod, pods_root, port), name)
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


class SpdyTunnel:
    """The server's end of a tunnel; carries connections to ports until the client leaves."""

    def __init__(self, socket: web.WebSocketResponse, connect: Connect, pod: str) -> None:
        self._socket = socket
        self._connect = connect
        self._pod = pod
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._error_streams: dict[str, int] = {}
        self._data_streams: dict[int, tuple[asyncio.Queue[bytes], asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Read frames until the websocket ends or the client violates the protocol."""
        received = bytearray()
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    return
                received += message.data
                while len(received) >= 8 and len(received) >= (end := 8 + int.from_bytes(received[5:8])):
                    frame = bytes(received[:end])
                    del received[:end]
                    await self._read(int.from_bytes(frame[:4]), frame[4], frame[8:], frame)
        except (ValueError, KeyError, zlib.error):
            return
        finally:
            tasks = [task for _, task in self._data_streams.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, kind: int, flags: int, body: bytes, frame: bytes) -> None:
        if kind < _CONTROL:
            if stream_data := self._data_streams.get(kind):
                for chunk in (body,) * bool(body) + (b"",) * (flags & _FIN):
                    await stream_data[0].put(chunk)
        elif kind == _CONTROL | _SYN_STREAM:
            await self._open(int.from_bytes(body[:4]), self._headers(body[10:]))
        elif kind == _CONTROL | _RST_STREAM:
            if stream_data := self._data_streams.get(int.from_bytes(body[:4])):
                stream_data[1].cancel()
        elif kind == _CONTROL | _PING:
            await self._socket.send_bytes(frame)

    def _headers(self, block: bytes) -> dict[str, str]:
        text = self._inflate.decompress(block, _MAX_HEADER_BYTES)
        parts, at = [], 4
        while at < len(text):
            end = at + 4 + int.from_bytes(text[at : at + 4])
            parts.append(text[at + 4 : end].decode("latin-1"))
            at = end
        return dict(zip(parts[::2], parts[1::2], strict=True))

    async def _open(self, stream: int, headers: dict[str, str]) -> None:
        port, request = int(headers["port"]), headers["requestid"]
        if not 0 < port < 65536:
            raise ValueError("no port")
        if len(self._data_streams) + len(self._error_streams) >= _MAX_STREAMS:
            raise ValueError("too many streams")
        block = self._deflate.compress(_NO_HEADERS) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._send(_CONTROL | _SYN_REPLY, stream.to_bytes(4) + block)
        if headers["streamtype"] == "error":
            self._error_streams[request] = stream
            return
        chunks: asyncio.Queue[bytes] = asyncio.Queue(_MAX_CHUNKS)
        work = self._forward(stream, self._error_streams.pop(request), port, chunks)
        self._data_streams[stream] = chunks, asyncio.create_task(work)
        await asyncio.sleep(0)  # a task that is cancelled before it began would not end its streams

    async def _forward(self, stream: int, errors: int, port: int, chunks: asyncio.Queue[bytes]) -> None:
        message = b""
        try:
            reader, writer = await self._connect(port)
            receiving = asyncio.create_task(_write_chunks(chunks, writer))
            try:
                with suppress(ConnectionError):
                    while chunk := await reader.read(CHUNK_BYTES):
                        await self._send(stream, chunk)
            finally:
                receiving.cancel()
                writer.close()
        except OSError as error:
            message = f"error forwarding port {port} to pod {self._pod}: {error.strerror or error}".encode()
        finally:
            del self._data_streams[stream]
            while not chunks.empty():
                chunks.get_nowait()  # lets go of whoever waits to put another
            with suppress(ConnectionError):
                await self._send(errors, message, _FIN)
                await self._send(stream, b"", _FIN)

    async def _send(self, kind: int, body: bytes, flags: int = 0) -> None:
        head = kind.to_bytes(4) + bytes([flags]) + len(body).to_bytes(3)
        await self._socket.send_bytes(head + body)


async def _write_chunks(chunks: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
    while chunk := await chunks.get():
        with suppress(ConnectionError):
            if not writer.is_closing():
                writer.write(chunk)
                await writer.drain()
    with suppress(OSError):
        writer.write_eof()
