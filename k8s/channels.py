"""Numbered channels on one websocket: the first byte of a message says which one it belongs to.

Commands in containers and forwarded ports are carried this way. Bytes stay bytes.
Source: "websocket" in k8s.io/apimachinery/pkg/util/remotecommand, and wsstream beside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp

from k8s.errors import Unreachable
from k8s.wire import translated

PIECE_BYTES = 32 * 1024
"""Most that is sent at once."""


class Channels:
    """The channels of a websocket that is open."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, doing: str) -> None:
        """Take the socket, and what it is for, as in "run sh in bert-master-0"."""
        self._socket = socket
        self._doing = doing

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
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.ERROR:
                    raise Unreachable(f"Could not {self._doing}.", "The connection broke.") from message.data
                content = message.data.encode() if isinstance(message.data, str) else message.data
                if len(content) > 1:
                    yield content[0], content[1:]
