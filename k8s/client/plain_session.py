"""HTTP/1.1 on asyncio streams, for commands that send a handful of requests.

aiohttp takes longer to import (200 ms; http.client: 20 ms) than such a command may take. Only the plain
case is covered: a direct connection, and answers in the form that API servers give them. For anything
else `BrokenAnswer` is raised, and aiohttp then sends the request and explains what is wrong.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Self
from urllib.parse import urlencode, urlsplit

from aiohappyeyeballs import start_connection

from k8s.client.transport import CONNECT_S, BrokenAnswer, Query

# Bytes of an answer that wait for their reader; its head must be shorter.
_BUFFER_BYTES = 256 * 1024
# Before the next address of a server is tried beside the first. Source: RFC 8305.
_NEXT_ADDRESS_S = 0.25
_SAFE = re.compile(r"[!-~]+")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([2-5]\d\d)(?: .*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_LENGTH = re.compile(r"\d{1,15}")
_INCOMPLETE = "Response payload is not completed"


class _Socket:
    """An open connection. It ends with the first error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def send(self, request: bytes) -> None:
        self._writer.write(request)
        await self._writer.drain()

    async def read_until(self, end: bytes, idle_s: float | None) -> bytes:
        try:
            async with asyncio.timeout(idle_s):
                return await self._reader.readuntil(end)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise BrokenAnswer(_INCOMPLETE) from error

    async def read(self, most: int, idle_s: float | None) -> bytes:
        async with asyncio.timeout(idle_s):
            chunk = await self._reader.read(most)
        if not chunk:
            raise BrokenAnswer(_INCOMPLETE)
        return chunk


async def _connect(host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> _Socket:
    # asyncio's own race of addresses fails before Python 3.12.8 and 3.13.1 with eager tasks, as in Textual.
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S)
    try:
        reader, writer = await asyncio.open_connection(
            sock=connected,
            limit=_BUFFER_BYTES,
            ssl=tls,
            server_hostname=server_name if tls is not None else None,
        )
    except BaseException:
        connected.close()
        raise
    return _Socket(reader, writer)


class PlainAnswer:
    """An answer whose head was read; `close` ends or reuses its connection."""

    def __init__(self, session: PlainSession, connection: _Socket, head: bytes, idle_s: float | None) -> None:
        first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        status = _STATUS.fullmatch(first)
        if status is None:
            raise BrokenAnswer("the status line is unusual")
        self.status = int(status[2])
        self._fields: dict[str, str] = {}
        for line in fields:
            if (field := _FIELD.fullmatch(line)) is None:
                raise BrokenAnswer("a header is malformed")
            name, value = field[1].decode().lower(), field[2].decode("utf-8", "replace").strip()
            self._fields[name] = f"{self._fields[name]}, {value}" if name in self._fields else value
        coding, length = self._fields.get("transfer-encoding", ""), self._fields.get("content-length", "")
        if not (coding == "chunked" and not length) and (coding or not _LENGTH.fullmatch(length)):
            raise BrokenAnswer("the length of the body is unusual")
        encoding = self._fields.get("content-encoding", "identity")
        if encoding not in ("identity", "gzip"):
            raise BrokenAnswer("the encoding of the body is unusual")
        self._is_zipped = encoding == "gzip"
        self._length = None if coding else int(length)
        self._is_reusable = status[1] == b"1" and "close" not in self._fields.get("connection", "").lower()
        self._session, self._connection, self._idle_s = session, connection, idle_s
        self._is_complete = False

    @property
    def content(self) -> Self:
        """The body."""
        return self

    def header(self, name: str) -> str:
        """Return a header; empty if there is none, with commas between several."""
        return self._fields.get(name.lower(), "")

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the body, decompressed, in pieces of at most `_BUFFER_BYTES`."""
        if not self._is_zipped:
            async for chunk in self._sent():
                yield chunk
            return
        unzipper = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            async for chunk in self._sent():
                while chunk:
                    yield unzipper.decompress(chunk, _BUFFER_BYTES)
                    chunk = unzipper.unconsumed_tail
            yield unzipper.flush()
        except zlib.error as error:
            raise BrokenAnswer("the body cannot be decompressed") from error
        if not unzipper.eof or unzipper.unused_data:
            raise BrokenAnswer("the body cannot be decompressed")

    async def _sent(self) -> AsyncIterator[bytes]:
        if self._length is not None:
            async for chunk in self._read(self._length):
                yield chunk
        else:
            while size := await self._chunk_bytes():
                async for chunk in self._read(size):
                    yield chunk
                await self._expect_line_end()
            await self._expect_line_end()  # trailers are unusual
        self._is_complete = True

    async def _read(self, left: int) -> AsyncIterator[bytes]:
        while left:
            chunk = await self._connection.read(min(left, _BUFFER_BYTES), self._idle_s)
            left -= len(chunk)
            yield chunk

    async def _chunk_bytes(self) -> int:
        line = _CHUNK.fullmatch(await self._connection.read_until(b"\r\n", self._idle_s))
        if line is None:
            raise BrokenAnswer("a chunk of the body is malformed")
        return int(line[1], 16)

    async def _expect_line_end(self) -> None:
        if await self._connection.read_until(b"\r\n", self._idle_s) != b"\r\n":
            raise BrokenAnswer("a chunk of the body is malformed")

    def close(self) -> None:
        """End the connection, or make it available to the next request if the body was read."""
        self._session.release(self._connection, is_reusable=self._is_complete and self._is_reusable)


class PlainSession:
    """Connections to one server, each with one request at a time."""

    def __init__(self) -> None:
        self._open: dict[_Socket, ssl.SSLContext | None] = {}
        self._idle: list[_Socket] = []

    @property
    def is_busy(self) -> bool:
        """Return True while an answer is awaited or read."""
        return len(self._open) > len(self._idle)

    async def request(
        self,
        method: str,
        url: str,
        *,
        query: Query,
        payload: bytes | None,
        headers: Sequence[tuple[str, str]],
        tls: ssl.SSLContext | None,
        server_name: str | None,
        request_s: float,
        idle_s: float | None,
    ) -> PlainAnswer:
        """Send a request and return the answer when its head arrives.

        Raises:
            TimeoutError: The server did not answer in time.
            OSError: The server could not be reached.
            BrokenAnswer: The answer, or the request, is not of the plain form.
        """
        parts = urlsplit(url)
        target = f"{parts.path}?{urlencode(query)}" if query else parts.path
        sent = [("Host", parts.netloc), ("Accept-Encoding", "gzip"), *headers]
        sent += [("Content-Length", str(len(payload)))] if payload is not None else []
        is_plain = (
            _SAFE.fullmatch(target) and "/." not in parts.path and all(v.isprintable() for _, v in sent)
        )
        if not is_plain or (tls is None) is not (parts.scheme == "http"):
            raise BrokenAnswer("the request is unusual")
        head = "".join(f"{line}\r\n" for line in (f"{method} {target} HTTP/1.1", *map(": ".join, sent)))
        connection = self._take_idle(tls)
        if connection is None:
            host, port = parts.hostname or "", parts.port or (80 if tls is None else 443)
            async with asyncio.timeout(min(CONNECT_S, request_s)):
                connection = await _connect(host, port, tls, server_name or host)
            self._open[connection] = tls
        try:
            await connection.send(f"{head}\r\n".encode() + (payload or b""))
            received = await connection.read_until(b"\r\n\r\n", idle_s)
            return PlainAnswer(self, connection, received, idle_s)
        except BaseException:
            self.release(connection, is_reusable=False)
            raise

    def _take_idle(self, tls: ssl.SSLContext | None) -> _Socket | None:
        # A connection has the certificate that it was opened with.
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and self._open[connection] is tls:
                return connection
            self.release(connection, is_reusable=False)
        return None

    def release(self, connection: _Socket, *, is_reusable: bool) -> None:
        """End a connection, or make it available to the next request."""
        if connection not in self._open or connection in self._idle:
            return
        if is_reusable:
            self._idle.append(connection)
        else:
            del self._open[connection]
            connection.abort()

    async def close(self) -> None:
        """End all connections."""
        for connection in self._open:
            connection.abort()
        self._open.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # asyncio closes the sockets in its next round
