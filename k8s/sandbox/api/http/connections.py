"""Who may be connected to the server, how many, and how long without a token.

Loopback is open to every user of the machine. A connection that has not sent a request with the
token is closed soon; other users' are few, and when ours are many the oldest silent one gives way.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from k8s.sandbox.api.http.peers import uid_of_peer

log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""How long a TLS handshake may take."""
UNPROVEN_S = 10.0
"""How long a connection may take for its first request with the token, handshake included."""
MOST_OF_OTHERS = 16
"""Connections of other users at once."""
BACKLOG = 128
_MOST_AT_ONCE = 64
"""Accepted before others get their turn."""
_PAUSE_S = 1.0
"""Before accepting again when the process has no descriptor left."""

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
        """Close what no transport will close."""
        if self.transport is None:
            self.socket.close()

    def forget(self) -> None:
        """Let go of what holds its memory."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.opening = self.transport = self.deadline = None

    def abort(self) -> None:
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
        self.forget()


def most_of_ours() -> int:
    """Return how many connections of this user there may be: each may need a pipe and a file besides."""
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
        self._most = most_of_ours() if most is None else most
        self._open: list[_Connection] = []
        self._listening: socket.socket | None = None
        self._dropped = 0

    def listen(self, host: str, port: int) -> int:
        """Accept from now on; return the port.

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
        """Accept no more."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def close(self) -> None:
        """Accept no more, and drop all connections."""
        self.stop_accepting()
        for each in self._open:
            each.abort()
        while any(each.is_open for each in self._open):
            await asyncio.sleep(0)

    def prove(self, protocol: object) -> None:
        """Keep a connection, for it has sent the token."""
        for each in self._open:
            if each.protocol is protocol:
                each.is_proven = True

    def give_memory_back(self) -> None:
        """Return to the system what dropped connections held; the C library keeps it otherwise."""
        if self._dropped:
            self._dropped = 0
            gc.collect()
            with suppress(AttributeError):
                ctypes.CDLL(None).malloc_trim(0)

    def _accept_some(self) -> None:
        for _ in range(_MOST_AT_ONCE):
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

        def go_on() -> None:
            if self._listening is listening:
                loop.add_reader(listening, self._accept_some)

        loop.call_later(_PAUSE_S, go_on)

    def _admit(self, accepted: socket.socket) -> None:
        """Open a connection, unless its user has too many."""
        for each in self._open:
            if not each.is_open:
                each.forget()
        self._open = [each for each in self._open if each.is_open]
        is_ours = uid_of_peer(accepted) in (os.getuid(), None)
        same = [each for each in self._open if each.is_ours == is_ours]
        if len(same) >= (self._most if is_ours else MOST_OF_OTHERS):
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
        """Open a connection once something comes: until then it costs no more than its descriptor."""
        timeout_s = min(HANDSHAKE_S, self._unproven_s) if self._tls else None
        try:
            await _readable(connection.socket)
            if not connection.socket.recv(1, socket.MSG_PEEK):
                return
            connection.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection.protocol,
                connection.socket,
                ssl=self._tls,
                ssl_handshake_timeout=timeout_s,
            )
        except OSError as error:
            log.debug("handshake: %s", error)

    def _drop_unproven(self, connection: _Connection) -> None:
        if not connection.is_proven and connection.is_open:
            connection.abort()
            self._dropped += 1


async def _readable(waiting: socket.socket) -> None:
    """Wait until something can be read, the end included."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(waiting, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(waiting)
