"""Limits on connections to the server.

Loopback is open to every user of the machine. A connection without a request with the token is
closed soon; other users get few, and when ours reach the limit, the oldest unproven one is closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import resource
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
# Time for the first request with the token, handshake included.
UNPROVEN_S = 10.0
MAX_OF_OTHERS = 16
BACKLOG = 128
_MAX_ACCEPTS = 64
# Before accepting again when the process has run out of descriptors.
_PAUSE_S = 1.0

Protocols = Callable[[], asyncio.Protocol]


@dataclass(eq=False, slots=True)
class _Connection:
    socket: socket.socket
    protocol: asyncio.Protocol
    is_ours: bool
    is_proven: bool = False
    opening: asyncio.Task[None] | None = field(default=None, repr=False)
    transport: asyncio.BaseTransport | None = None
    deadline: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0

    def close_unless_open(self) -> None:
        if self.transport is None:
            self.socket.close()

    def forget(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.opening = self.transport = self.deadline = None

    def abort(self) -> None:
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
        self.forget()


def connection_limit() -> int:
    """Return the limit for this user's connections: each may need a pipe and a file besides."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(32, min(4096, soft // 3))


class Connections:
    """All connections of one listening socket."""

    def __init__(
        self,
        protocols: Protocols,
        tls: ssl.SSLContext | None,
        *,
        unproven_s: float = UNPROVEN_S,
        most: int | None = None,
    ) -> None:
        self._protocols = protocols
        self._tls = tls
        self._unproven_s = unproven_s
        self._most = connection_limit() if most is None else most
        self._open: list[_Connection] = []
        self._listening: socket.socket | None = None
        self._dropped = 0

    def listen(self, host: str, port: int) -> int:
        """Start to accept connections; return the port.

        Raises:
            OSError: The port is taken.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept_some)
        return int(listening.getsockname()[1])

    def stop_accepting(self) -> None:
        """Close the listening socket."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        self.stop_accepting()
        for each in self._open:
            each.abort()
        while any(each.is_open for each in self._open):
            await asyncio.sleep(0)

    def prove(self, protocol: object) -> None:
        """Mark the connection of a protocol as proven: it has sent the token."""
        for each in self._open:
            if each.protocol is protocol:
                each.is_proven = True

    def trim_memory(self) -> None:
        """Return the memory of closed connections to the system."""
        if self._dropped:
            self._dropped = 0
            # The C library keeps freed memory otherwise.
            gc.collect()
            with suppress(AttributeError):
                ctypes.CDLL(None).malloc_trim(0)

    def _accept_some(self) -> None:
        for _ in range(_MAX_ACCEPTS):
            if self._listening is None:
                return
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections: %s", error.strerror)
                self._pause()
                return
            self._admit(accepted)

    def _pause(self) -> None:
        loop, listening = asyncio.get_running_loop(), self._listening
        assert listening is not None
        loop.remove_reader(listening)

        def resume() -> None:
            if self._listening is listening:
                loop.add_reader(listening, self._accept_some)

        loop.call_later(_PAUSE_S, resume)

    def _admit(self, accepted: socket.socket) -> None:
        for each in self._open:
            if not each.is_open:
                each.forget()
        self._open = [each for each in self._open if each.is_open]
        is_ours = uid_of_peer(accepted) in (os.getuid(), None)
        same = [each for each in self._open if each.is_ours == is_ours]
        if len(same) >= (self._most if is_ours else MAX_OF_OTHERS):
            silent = next((each for each in same if not each.is_proven), None)
            if not is_ours or silent is None:
                accepted.close()
                return
            self._open.remove(silent)
            silent.abort()
            self._dropped += 1
        accepted.setblocking(False)
        connection = _Connection(accepted, self._protocols(), is_ours)
        self._open.append(connection)
        loop = asyncio.get_running_loop()
        connection.opening = loop.create_task(self._handshake(connection))
        # Not at the end of the handshake itself, which may be cancelled before it began.
        connection.opening.add_done_callback(lambda _: connection.close_unless_open())
        connection.deadline = loop.call_later(self._unproven_s, self._drop_unproven, connection)

    async def _handshake(self, connection: _Connection) -> None:
        # Until the first byte comes, a connection costs no more than its descriptor.
        timeout_s = min(HANDSHAKE_S, self._unproven_s) if self._tls else None
        try:
            await _wait_readable(connection.socket)
            if not connection.socket.recv(1, socket.MSG_PEEK):
                return
            connection.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection.protocol, connection.socket, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:
            log.debug("handshake: %s", error)

    def _drop_unproven(self, connection: _Connection) -> None:
        if not connection.is_proven and connection.is_open:
            connection.abort()
            self._dropped += 1


async def _wait_readable(waiting: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(waiting, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(waiting)


_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ANY_INTERFACE, _NO_COOKIE = b"\0" * 4, b"\xff" * 8
# Offset of the uid: after the message's state, socket id and three counters.
_UID_AT = _HEADER.size + 64


def uid_of_peer(connection: socket.socket) -> int | None:
    """Return the user id at the other end of a loopback connection; None if the kernel does not report it.

    Source: "sock_diag(7)", Linux manual; `struct inet_diag_req_v2` and `inet_diag_msg` in linux/inet_diag.h.
    """
    try:
        local, peer = connection.getsockname(), connection.getpeername()
        family = connection.family
        ends = struct.pack("!HH", peer[1], local[1])
        ends += b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (peer, local))
        query = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        query += ends + _ANY_INTERFACE + _NO_COOKIE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0.1)
            length = _HEADER.size + len(query)
            kernel.sendto(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + query, (0, 0))
            answer = kernel.recv(4096)
    except (OSError, AttributeError):
        return None
    if len(answer) < _UID_AT + 4 or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])
