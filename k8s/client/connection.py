"""Sends requests to one server: in turn, with fresh credentials, and noticing when the server is gone.

Two things are tried again here, and no others: a 401 renews the credentials, once for everybody
who waits; and a GET waits out a short `Retry-After`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import aiohttp

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.rate_limiter import RateLimiter
from k8s.client.server_clock import ServerClock
from k8s.client.transport import Query, is_broken_by_peer, lines, read_at_most, status_of, warnings_in
from k8s.errors import KubeError, ServerFailed, Throttled, Unauthorized, Unreachable, from_status

CONNECT_S = 10.0
"""Longest wait for a connection."""
RENEWAL_PAUSE_S = 20.0
"""Shortest time from one renewal of the credentials to the next, unless they said when they end."""
SHORT_WAIT_S, SHORT_WAITS = 1.0, 3
"""How long a `Retry-After` a GET waits out by itself, and how often; API servers say one second."""
MOST_ERROR_BYTES = 64 * 1024
"""Read of an answer that something behind the API server refuses with."""
_KEEPALIVE: Sequence[tuple[str, int]] = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)
"""A silent connection is asked after 30 s whether it lives; after another 30 s of silence it is dead."""
CLOSE_S = 1.0
"""How long closing may take: the handshake of a websocket, and all sockets at the end."""


class Connection:
    """All that is said to one server as one user."""

    def __init__(self, config: ClusterConfig, limiter: RateLimiter, request_s: float) -> None:
        """Prepare; nothing is sent yet. Needs a running event loop.

        Args:
            config: Where the server is, and by which credentials.
            limiter: Says when each request may go.
            request_s: Longest wait for an answer that is not a stream.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        self.config = config
        self.limiter = limiter
        self.request_s = request_s
        self.on_warning: Callable[[str], None] | None = None
        """Takes what the server warns of when something is changed."""
        self.clock = ServerClock()
        """What the answers say of the server's clock."""
        self.heard_at_s = 0.0
        """When the server last gave a sign of life, by the event loop's clock; 0 while it never did."""
        self._tls = config.ssl_context()
        self._tls_of = config.identity()[1]
        self._sockets: WeakSet[socket.socket] = WeakSet()
        # Every stream keeps its connection, and there may be as many as a job has ranks: no limit.
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._make_socket)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_ended_s = 0.0

    async def close(self) -> None:
        """End all streams and connections, and a renewal that is under way."""
        if self._renewal is not None:
            self._renewal.cancel()
        await self._session.close()
        await self._close_sockets()

    async def _close_sockets(self) -> None:
        """Close what still waits for a server to agree to the end of a TLS connection that was left early."""
        left = []
        for each in list(self._sockets):
            with suppress(OSError):  # closed, or never connected
                each.shutdown(socket.SHUT_RDWR)
                left.append(each)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + CLOSE_S
        while any(each.fileno() >= 0 for each in left) and loop.time() < until_s:
            await asyncio.sleep(0)

    def _make_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = make_socket(address)
        self._sockets.add(made)
        return made

    async def lines(self, body: aiohttp.StreamReader, doing: str) -> AsyncIterator[bytes]:
        """Yield the lines of a stream; each is a sign of life, and so is its end by the server."""
        try:
            async for line in lines(body, doing):
                self._note_heard()
                yield line
        except Unreachable as error:
            if is_broken_by_peer(error):
                self._note_heard()
            raise
        self._note_heard()

    def _note_heard(self) -> None:
        self.heard_at_s = asyncio.get_running_loop().time()

    def retry_credentials(self) -> None:
        """Let the next 401 renew the credentials, however short ago that was tried."""
        if self._renewal is not None and self._renewal.done():
            self._renewal = None

    async def send(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        query: Query = None,
        body: Any = None,
        content_type: str = "application/json",
        idle_s: float | None = None,
        open_s: float | None = None,
        is_urgent: bool = True,
        has_turn: bool = False,
        is_proxied: bool = False,
    ) -> aiohttp.ClientResponse:
        """Send a request in its turn and return the answer when it begins.

        Args:
            method: GET, POST, …
            path: Where to.
            doing: What is tried, as in "create PyTorchJob bert".
            query: Its parameters.
            body: What is sent as JSON.
            content_type: What kind of JSON that is.
            idle_s: Longest silence; None waits for ever.
            open_s: Longest time from its turn until the answer begins.
            is_urgent: Somebody waits for it.
            has_turn: It belongs to a request that had its turn, as do further pages of a list.
            is_proxied: It goes on to a pod or a service: what refuses may be that, and not the API server.

        Raises:
            KubeError: The server refused, or what it passed the request on to.
        """
        payload = None if body is None else json.dumps(body).encode()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s)
        waits_left = SHORT_WAITS if method == "GET" else 0
        has_renewed = False
        while True:
            await self._wait(is_urgent=is_urgent, has_turn=has_turn)
            if self._session.closed:
                raise Unreachable(f"Could not {doing}.", "The connection to this cluster was closed here.")
            identity = self.config.identity()
            sent_s = time.time()
            async with asyncio.timeout(open_s):
                response = await self._session.request(
                    method,
                    self.config.host + path,
                    params=query,
                    data=payload,
                    headers=self._headers(content_type if payload is not None else ""),
                    timeout=timeout,
                    middlewares=() if method == "GET" else (_send_once,),
                    allow_redirects=not is_proxied,  # it may point anywhere
                    **self._route(),
                )
                self.clock.observe(response.headers.get("Date", ""), sent_s, time.time())
                if response.status < 400:
                    self._note_heard()
                    self._pass_warnings_on(method, response)
                    return response
                async with response:
                    if is_proxied:
                        answer = await read_at_most(response.content, MOST_ERROR_BYTES)
                    else:
                        answer = await response.read()
            retry_after = response.headers.get("Retry-After", "")
            said = status_of(answer)
            if is_proxied and said.get("kind") != "Status":
                # It comes from behind the server: its login is not ours, its pause concerns nobody else.
                raise ServerFailed(f"Could not {doing}.", f"It answers {response.status}: {_message(said)}")
            error = from_status(response.status, said, doing, retry_after)
            if isinstance(error, Unauthorized):
                if not has_renewed and await self._renew_credentials(identity):
                    has_renewed = True
                    continue
                error.hint = self.config.unauthorized_hint
            pause_s = error.retry_after_s if isinstance(error, Throttled | ServerFailed) else 0.0
            if pause_s:
                self.limiter.pause(pause_s)
                if retry_after and pause_s <= SHORT_WAIT_S and waits_left:
                    waits_left -= 1
                    continue
            raise error

    async def open_socket(
        self,
        path: str,
        query: Query,
        protocols: Sequence[str],
        *,
        silence_s: float | None,
        is_ponging: bool,
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket in its turn; what the arguments mean is said at `Client.open_socket`.

        Raises:
            aiohttp.WSServerHandshakeError: The server refused, and does not say why.
        """
        await self._wait(is_urgent=True, has_turn=False)
        opened: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
            self.config.host + path,
            params=query,
            protocols=protocols,
            headers={**self._headers(), "Accept": "*/*"},  # to JSON alone, servers say 406
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_receive=silence_s, ws_close=CLOSE_S),
            autoping=is_ponging,
            **self._route(),
        )
        return opened

    def _pass_warnings_on(self, method: str, response: aiohttp.ClientResponse) -> None:
        if self.on_warning is None or method == "GET":
            return
        for warning in warnings_in(response.headers.getall("Warning", ())):
            self.on_warning(warning)

    async def _wait(self, *, is_urgent: bool, has_turn: bool) -> None:
        """Wait for a turn, then until the credentials are good."""
        if not has_turn or self.limiter.paused_until_s:
            await self.limiter.acquire(is_urgent=is_urgent)
        if self.config.has_expired:
            await self._renew()

    def _route(self) -> dict[str, Any]:
        """Return how to get there, with the newest certificate: another one means other connections."""
        certificate = self.config.identity()[1]
        if certificate != self._tls_of:
            self._tls, self._tls_of = self.config.ssl_context(), certificate
        tls: ssl.SSLContext | bool = self._tls if self._tls is not None else True
        return {"ssl": tls, "proxy": self.config.proxy, "server_hostname": self.config.tls_server_name}

    def _headers(self, content_type: str = "") -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "gpuconsole"}
        if authorization := self.config.authorization():
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    async def _renew_credentials(self, refused: tuple[str, str]) -> bool:
        """Renew the credentials unless that was done meanwhile; tell whether another try makes sense."""
        if self.config.identity() == refused:
            await self._renew()
        return self.config.identity() != refused

    async def _renew(self) -> None:
        """Renew the credentials, once for all who wait. How it ended counts for a while.

        Raises:
            Unauthorized: It did not work.
        """
        if self._renewal is None or (self._renewal.done() and self._is_due(self._renewal)):
            self._renewal = asyncio.create_task(self.config.renew())
            self._renewal.add_done_callback(self._note_renewal)
        try:
            await asyncio.shield(self._renewal)
        except KubeError as error:
            # Everybody gets a copy: one that is raised again and again grows by its traceback each time.
            raise type(error)(error.what, error.why, error.hint) from None

    def _is_due(self, ended: asyncio.Task[None]) -> bool:
        """Tell whether it is time for another renewal."""
        has_worked = not ended.cancelled() and ended.exception() is None
        passed_s = asyncio.get_running_loop().time() - self._renewal_ended_s
        return (has_worked and self.config.has_expired) or passed_s >= RENEWAL_PAUSE_S

    def _note_renewal(self, renewal: asyncio.Task[None]) -> None:
        self._renewal_ended_s = asyncio.get_running_loop().time()
        if not renewal.cancelled():
            renewal.exception()  # whoever waited may have left


def _message(said: Mapping[str, Any]) -> str:
    """Return the first line of what something that is no API server says of its error."""
    words = str(said.get("error") or said.get("message") or "no reason given").strip()
    return words.split("\n", 1)[0][:300]


async def _send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a PUT or a DELETE again when the connection breaks; it may have been done."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


def make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket on which a peer that is gone is noticed though nothing is said."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def close_socket(opened: aiohttp.ClientWebSocketResponse) -> None:
    """Close a websocket within `CLOSE_S`: aiohttp itself reads on as long as the other side talks."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await opened.close()
