"""A scripted websocket of numbered channels, on which a test's own function speaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from tests.scripted.server import refusal

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


class Speaker:
    """The server's end of one websocket."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket = socket
        self.query = request.query
        self._request = request

    async def say(self, channel: int, content: bytes = b"") -> None:
        """Send a message on a channel."""
        await self.socket.send_bytes(bytes([channel]) + content)

    async def end(self, **status: object) -> None:
        """Send the final status of a command."""
        await self.say(3, json.dumps(status or {"status": "Success"}).encode())

    async def heard(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the client's messages until it leaves."""
        async for message in self.socket:
            assert message.type is WSMsgType.BINARY
            yield message.data[0], message.data[1:]

    async def hear(self) -> tuple[int, bytes]:
        return await anext(self.heard())

    def drop(self) -> None:
        """Break the connection without a word."""
        assert self._request.transport is not None
        self._request.transport.abort()


@dataclass(frozen=True)
class Talk:
    """A websocket that a function serves; when it returns, the socket is closed in order."""

    speak: Callable[[Speaker], Awaitable[None]]
    protocols: Sequence[str] = (V5, V4)
    is_ponging: bool = True

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        if "upgrade" not in request.headers.get("Connection", "").lower():
            return await refusal(400, "Upgrade request required", "BadRequest").answer(request, closing)
        socket = web.WebSocketResponse(protocols=self.protocols, timeout=0.1, autoping=self.is_ponging)
        await socket.prepare(request)
        with suppress(ConnectionError):
            await self.speak(Speaker(socket, request))
            await socket.close()
        return socket
