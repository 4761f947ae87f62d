"""A scripted API server on loopback: it says what a test tells it to, also nonsense, or nothing at all.

async with ScriptedCluster() as cluster, cluster.client() as client:
    cluster.say("/api/v1/pods", page([pod], version="7"))
    cluster.say("/api/v1/pods", Refusal(410), watch=True)
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from email.utils import formatdate
from typing import Any, Protocol, Self

import msgspec
from aiohttp import WSMsgType, web
from msgspec.structs import replace

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.client.rate_limiter import RateLimiter

Object = Mapping[str, Any]
WAIT_S = 120.0  # longest wait for anything that a test expects to happen


_IN_NAMESPACE = re.compile(
    r"(?P<group>/apis/.+|/api/v1(?=.*/pods))/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)"
)


class Asked(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at_s: float  # arrival time, by the event loop's clock

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")


class Reply(Protocol):
    """Reaction of the server to a request."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse: ...


class Answer(msgspec.Struct, frozen=True):
    """A body, as JSON unless it is bytes already."""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        kind = {} if isinstance(self.body, bytes) else {"Content-Type": "application/json"}
        return web.Response(status=self.status, body=body, headers={**kind, **self.headers})


def page(items: Sequence[object], version: str = "1", following: str = "", **meta: object) -> Answer:
    """Answer with a list, or with a page of one that `following` continues."""
    where: dict[str, object] = {"resourceVersion": version, "continue": following, **meta}
    return Answer({"metadata": where, "items": items})


def refusal(
    code: int,
    message: str = "",
    reason: str = "",
    *,
    causes: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Answer with a `v1.Status`."""
    listed = [{"field": path, "message": text} for path, text in (causes or {}).items()]
    return Answer(status_object(code, message, reason, causes=listed), code, headers or {})


def status_object(code: int, message: str = "", reason: str = "", **details: object) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "message": message,
        "reason": reason,
        "details": details,
    }


class Cut(msgspec.Struct, frozen=True):
    """Promise a whole body and break the connection in its middle."""

    body: bytes = b'{"items": ['

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(self.body) + 1000)})
        await response.prepare(request)
        await response.write(self.body)
        return _break(request, response)


class Drop(msgspec.Struct, frozen=True):
    """Break the connection without a word. A client may ask again by itself once, so say it twice."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        return _break(request, web.StreamResponse())


class Stall(msgspec.Struct, frozen=True):
    """Accept the request and never answer, as a half-open connection does."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        await closing.wait()
        return _break(request, web.StreamResponse())


class Held:
    """A reply that the server takes its time for: until the test lets it go."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._may_go = asyncio.Event()

    def let_go(self) -> None:
        self._may_go.set()

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        await self._may_go.wait()
        return await self._reply.answer(request, closing)


class Stream:
    """A body in pieces, which the test sends when it likes; use it for watches and logs."""

    def __init__(self, *pieces: object) -> None:
        self.is_over = asyncio.Event()  # set once the client has left, or the stream was ended
        self._pieces: asyncio.Queue[bytes | type[Drop] | None] = asyncio.Queue()
        for piece in pieces:
            self.send(piece)

    def send(self, piece: object) -> Self:
        """Send bytes as they are, anything else as a line of JSON."""
        self._pieces.put_nowait(piece if isinstance(piece, bytes) else json.dumps(piece).encode() + b"\n")
        return self

    def event(self, event_type: str, obj: object) -> Self:
        return self.send({"type": event_type, "object": obj})

    def end(self) -> Self:
        self._pieces.put_nowait(None)
        return self

    def drop(self) -> Self:
        self._pieces.put_nowait(Drop)
        return self

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        ended = asyncio.ensure_future(closing.wait())
        try:
            while True:
                piece = asyncio.ensure_future(self._pieces.get())
                try:
                    await asyncio.wait([piece, ended], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not piece.done():
                        piece.cancel()
                if piece.cancelled() or not piece.done():
                    return _break(request, response)
                sent = piece.result()
                if sent is None:
                    return response
                if not isinstance(sent, bytes):
                    return _break(request, response)
                await response.write(sent)
        finally:
            ended.cancel()
            self.is_over.set()


class FollowedLog:
    """A log of a container that prints no more, followed for ever; and that of the run before."""

    def __init__(self, said: bytes = b"", before: bytes = b"") -> None:
        self._said, self._before = said, before
        self.streams: list[Stream] = []

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        if request.query.get("previous") == "true":
            return await Answer(self._before).answer(request, closing)
        if request.query.get("follow") != "true":
            return await Answer(self._said).answer(request, closing)
        self.streams.append(Stream(self._said))
        return await self.streams[-1].answer(request, closing)


class Flood(msgspec.Struct):
    """A body without an end, as fast as it is read."""

    piece: bytes
    sent: int = 0  # bytes sent in all requests, those in the buffers of sockets too

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None:
            await response.write(self.piece)
            self.sent += len(self.piece)
        return response


V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


class Speaker:
    """The server's end of one websocket."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket = socket
        self.query = request.query
        self._request = request

    async def say(self, channel: int, content: bytes = b"") -> None:
        await self.socket.send_bytes(bytes([channel]) + content)

    async def end(self, **status: object) -> None:
        await self.say(3, json.dumps(status or {"status": "Success"}).encode())

    async def heard(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the client's messages until it leaves."""
        async for message in self.socket:
            assert message.type is WSMsgType.BINARY
            yield message.data[0], message.data[1:]

    async def hear(self) -> tuple[int, bytes]:
        return await anext(self.heard())

    def drop(self) -> None:
        assert self._request.transport is not None
        self._request.transport.abort()


class Talk(msgspec.Struct, frozen=True):
    """A websocket that a function serves; when it returns, the socket is closed in order."""

    speak: Callable[[Speaker], Awaitable[None]]
    protocols: Sequence[str] = (V5, V4)
    is_ponging: bool = True

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        if "upgrade" not in request.headers.get("Connection", "").lower():
            return await refusal(400, "Upgrade request required", "BadRequest").answer(request, closing)
        if request.headers.get("Accept") == "application/json":
            return web.Response(status=406, text="406: Not Acceptable")  # as kube-apiserver does
        socket = web.WebSocketResponse(protocols=self.protocols, timeout=0.1, autoping=self.is_ponging)
        await socket.prepare(request)
        with suppress(ConnectionError):
            await self.speak(Speaker(socket, request))
            await socket.close()
        return socket


class Socket(msgspec.Struct, frozen=True):
    """An exec: frames with a channel each, then the end."""

    frames: Sequence[tuple[int, bytes]] = ()
    protocols: Sequence[str] = (V5,)
    is_left_open: bool = False  # say nothing more, and do not close

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        async def speak(speaker: Speaker) -> None:
            for channel, content in self.frames:
                await speaker.say(channel, content)
            if self.is_left_open:
                await closing.wait()

        return await Talk(speak, self.protocols).answer(request, closing)


SUCCESS = (3, b'{"status": "Success"}')  # the last frame of a command that ended well


class Compute(msgspec.Struct, frozen=True):
    """Answer with what a function of the request says."""

    function: Callable[[Asked], Reply]

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        return await self.function(await _asked(request)).answer(request, closing)


class ScriptedCluster:
    """The server. What it was asked is in `requests`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Asked] = []
        self.host = ""
        self.clock_ahead_s = 0.0  # seconds by which its clock is ahead of the real one
        self._tls = tls
        self._replies: dict[tuple[str, str, bool], list[Reply]] = {}
        self._everywhere: Reply | None = None
        self.gate: Callable[[Asked], Awaitable[None]] | None = None  # awaited before each answer
        self._came = asyncio.Condition()

    def say(self, path: str, *replies: Reply, method: str = "GET", watch: bool = False) -> None:
        """Add replies to a path, one for each request; the last is repeated.

        A path that ends with `/*` answers for all paths below it without replies of their own.
        """
        self._replies.setdefault((method, path, watch), []).extend(replies)

    def accept_companions(self, namespace: str) -> None:
        """Let ConfigMaps be created beside jobs, and be owned by them."""
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.say(path, Compute(lambda asked: Answer(json.loads(asked.body), 201)), method="POST")
        self.say(f"{path}/*", Answer({}), method="PATCH")
        self.say(f"{path}/*", Answer({"kind": "Status", "status": "Success"}), method="DELETE")

    def say_everywhere(self, reply: Reply | None) -> None:
        """Say one thing to every request, whatever else was to be said; None ends that."""
        self._everywhere = reply

    def forget(self, path: str, *, method: str = "GET", watch: bool = False) -> None:
        self._replies.pop((method, path, watch), None)

    def replace(self, path: str, *replies: Reply, method: str = "GET", watch: bool = False) -> None:
        self.forget(path, method=method, watch=watch)
        self.say(path, *replies, method=method, watch=watch)

    def asked(self, path: str, *, method: str = "GET", watch: bool = False) -> list[Asked]:
        return [
            each for each in self.requests if (each.method, each.path, each.is_watch) == (method, path, watch)
        ]

    async def until_asked(
        self, path: str, times: int = 1, *, method: str = "GET", watch: bool = False
    ) -> None:
        async with asyncio.timeout(WAIT_S), self._came:
            await self._came.wait_for(lambda: len(self.asked(path, method=method, watch=watch)) >= times)

    def client(
        self,
        namespace: str = "default",
        *,
        request_s: float = WAIT_S,
        limiter: RateLimiter | None = None,
        **config: Any,
    ) -> Client:
        cluster = ClusterConfig(host=self.host, context="scripted", namespace=namespace, user="li", **config)
        return Client(cluster, request_s=request_s, limiter=limiter or RateLimiter(1000, 1000))

    async def __aenter__(self) -> Self:
        # Bound but not listening, it keeps the port ours while the server is away.
        self._place = _bound(0)
        self.host = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._place.getsockname()[1]}"
        await self.come_back()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_away()
        self._place.close()

    async def go_away(self) -> None:
        self._closing.set()
        await self._runner.cleanup()

    async def come_back(self) -> None:
        """Listen again, where it was before."""
        self._closing = asyncio.Event()
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        app.on_response_prepare.append(self._stamp)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        listening = _bound(self._place.getsockname()[1])
        await web.SockSite(self._runner, listening, ssl_context=self._tls).start()

    async def _stamp(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(time.time() + self.clock_ahead_s, usegmt=True)

    def _scoped(self, asked: Asked) -> Reply | None:
        """Return one namespace's part of a list that is scripted for all; None for anything else."""
        if (found := _IN_NAMESPACE.fullmatch(asked.path)) is None:
            return None
        everywhere = f"{found['group']}/{found['plural']}"
        replies = self._replies.get((asked.method, everywhere, asked.is_watch)) or [Answer(status=404)]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if not isinstance(reply, Answer):
            return reply
        if not isinstance(reply.body, dict) or "items" not in reply.body:
            return None
        items = [each for each in reply.body["items"] if _is_in(each, found["namespace"])]
        return replace(reply, body={**reply.body, "items": items})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await _asked(request)
        self.requests.append(asked)
        async with self._came:
            self._came.notify_all()
        if self.gate is not None:
            await self.gate(asked)
        if self._everywhere is not None:
            return await self._everywhere.answer(request, self._closing)
        anything = f"{asked.path.rpartition('/')[0]}/*"
        replies = self._replies.get((asked.method, asked.path, asked.is_watch)) or self._replies.get(
            (asked.method, anything, asked.is_watch)
        )
        if not replies and (scoped := self._scoped(asked)) is not None:
            return await scoped.answer(request, self._closing)
        if not replies:
            words = "the server could not find the requested resource"
            return await refusal(404, words, "NotFound").answer(request, self._closing)
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return await reply.answer(request, self._closing)


def _is_in(obj: Any, namespace: str) -> bool:
    return not isinstance(obj, dict) or obj.get("metadata", {}).get("namespace", namespace) == namespace


async def _asked(request: web.Request) -> Asked:
    at_s = asyncio.get_running_loop().time()
    body = await request.read()
    return Asked(request.method, request.path, dict(request.query), request.headers, body, at_s)


def _bound(port: int) -> socket.socket:
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", port))
    return place


def _break(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return response


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)
