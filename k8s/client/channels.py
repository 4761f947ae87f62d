"""Numbered channels on one websocket: the first byte of a message is the channel.

Used for commands in containers and forwarded ports. Source: "websocket" in
k8s.io/apimachinery/pkg/util/remotecommand, and wsstream beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from k8s.client.session import aiohttp
from k8s.client.transport import translated
from k8s.errors import Unreachable

PIECE_BYTES = 32 * 1024
WSMsgType = aiohttp.WSMsgType
_OVER = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)


class Channels:
    """The channels of an open websocket. Pings and pongs reach the reader."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, doing: str, *, ping_s: float | None = None
    ) -> None:
        """Wrap an open websocket; `doing` names its purpose in errors: "run sh in bert-master-0".

        After `ping_s` of silence a ping is sent and its answer awaited for as long; None sends no pings.
        Time when nothing is received is not counted.
        """
        self._socket = socket
        self._doing = doing
        self._ping_s = ping_s

    async def send(self, channel: int, content: bytes) -> None:
        """Send bytes, at the speed of the receiver.

        Raises:
            Unreachable: The connection is closed.
        """
        with translated(self._doing):
            for start in range(0, len(content), PIECE_BYTES):
                await self._socket.send_bytes(bytes([channel]) + content[start : start + PIECE_BYTES])

    async def receive(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (channel, content) until the other side closes; skip empty messages.

        Raises:
            Unreachable: The connection broke, or a ping was not answered.
        """
        with translated(self._doing):
            while (message := await self._next()).type not in _OVER:
                if message.type is WSMsgType.ERROR:
                    raise Unreachable(f"Could not {self._doing}.", "The connection broke.") from message.data
                content = message.data.encode() if isinstance(message.data, str) else message.data
                if len(content) > 1:
                    yield content[0], content[1:]

    async def _next(self) -> aiohttp.WSMessage:
        has_pinged = False
        while True:
            try:
                message = await self._socket.receive(self._ping_s)
            except TimeoutError:
                if has_pinged or self._ping_s is None:
                    raise
                has_pinged = True
                async with asyncio.timeout(self._ping_s):
                    await self._socket.ping()
                continue
            has_pinged = False
            if message.type is WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                return message
