"""Numbered channels on one websocket: the first byte of a message says which one it belongs to.

Commands in containers and forwarded ports are carried this way. Bytes stay bytes.
Source: "websocket" in k8s.io/apimachinery/pkg/util/remotecommand, and wsstream beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import WSMsgType

from k8s.client.transport import translated
from k8s.errors import Unreachable

PIECE_BYTES = 32 * 1024
"""Most that is sent at once."""
_OVER = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)


class Channels:
    """The channels of a websocket that is open, and gives its pings and pongs to whoever reads."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, doing: str, *, ping_s: float | None = None
    ) -> None:
        """Take a socket.

        Args:
            socket: The socket.
            doing: What it is for, as in "run sh in bert-master-0".
            ping_s: Ask after so long a silence whether anybody is there, and wait as long for an answer;
                time in which nobody reads does not count. None never asks.
        """
        self._socket = socket
        self._doing = doing
        self._ping_s = ping_s

    async def send(self, channel: int, content: bytes) -> None:
        """Send bytes, as fast as they are taken.

        Raises:
            Unreachable: The connection is over.
        """
        with translated(self._doing):
            for start in range(0, len(content), PIECE_BYTES):
                await self._socket.send_bytes(bytes([channel]) + content[start : start + PIECE_BYTES])

    async def receive(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield a channel and what came on it, until the other side closes; empty messages say nothing.

        Raises:
            Unreachable: The connection broke, or the other side does not answer any more.
        """
        with translated(self._doing):
            while (message := await self._next()).type not in _OVER:
                if message.type is WSMsgType.ERROR:
                    raise Unreachable(f"Could not {self._doing}.", "The connection broke.") from message.data
                content = message.data.encode() if isinstance(message.data, str) else message.data
                if len(content) > 1:
                    yield content[0], content[1:]

    async def _next(self) -> aiohttp.WSMessage:
        """Wait for what is said next.

        Raises:
            TimeoutError: Asked whether it is there, the other side said nothing.
        """
        is_asked = False
        while True:
            try:
                message = await self._socket.receive(self._ping_s)
            except TimeoutError:
                if is_asked or self._ping_s is None:
                    raise
                is_asked = True
                async with asyncio.timeout(self._ping_s):
                    await self._socket.ping()
                continue
            is_asked = False
            if message.type is WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                return message
