"""SPDY/3.1 in the messages of a websocket, as kubectl 1.31 and newer forward ports.

The client opens two streams for each connection: `error`, which only the server writes to, and `data`.
Streams have no flow control, as in spdystream.
Source: draft-mbelshe-httpbis-spdy-00; `tools/portforward` in client-go.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import WSMsgType, web

from k8s.sandbox.api.streams.pod_exec import CHUNK_BYTES

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
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
            receiving = asyncio.create_task(_carry_in(chunks, writer))
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


async def _carry_in(chunks: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
    while chunk := await chunks.get():
        with suppress(ConnectionError):
            if not writer.is_closing():
                writer.write(chunk)
                await writer.drain()
    with suppress(OSError):
        writer.write_eof()
