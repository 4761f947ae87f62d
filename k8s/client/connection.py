"""Requests to one server: rate limited, with fresh credentials, and with detection of dead peers.

Two things are retried here, and no others: a 401 renews the credentials, once for all waiting
requests, and a GET waits out a short `Retry-After`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from weakref import WeakSet

import aiohttp

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.rate_limiter import RateLimiter
from k8s.client.transport import Query, is_broken_by_peer, lines, read_at_most, status_of, warnings_in
from k8s.errors import KubeError, ServerFailed, Throttled, Unauthorized, Unreachable, from_status

CONNECT_S = 10.0
# Shortest time between renewals, unless the credentials announced their expiry.
RENEWAL_PAUSE_S = 20.0
# A GET waits out `Retry-After` values up to this, so many times; API servers send one second.
SHORT_WAIT_S, SHORT_WAITS = 1.0, 3
MOST_ERROR_BYTES = 1 << 20
# A kubelet sends up to 32 KiB at once.
MOST_MESSAGE_BYTES = 16 << 20
# Probe a silent connection after 30 s; after another 30 s without an answer it is dead.
_KEEPALIVE: Sequence[tuple[str, int]] = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)
# For the closing handshake of a websocket, and for all sockets at the end.
CLOSE_S = 1.0
# `Date` has whole seconds, and answers take time: less than this is jitter.
SLACK_S = 2.0


class ServerClock:
    """The newest estimate. It changes only if two answers in a row contradict it."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        """Seconds to add to our clock to get the server's."""
        self._doubt: tuple[float, float] | None = None

    def observe(self, date: str, sent_s: float, received_s: float) -> None:
        """Update the estimate from the `Date` of one answer.

        `sent_s` and `received_s` are the times of request and answer by our clock (`time.time`).
        """
        try:
            parsed = parsedate_to_datetime(date)
            written_s = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        # Written between request and answer, with the fraction of the second cut off: so the offset is
        # known only to lie between two bounds.
        least_s, most_s = written_s - received_s, written_s + 1 - sent_s
        if received_s < sent_s or least_s - SLACK_S <= self.offset_s <= most_s + SLACK_S:
            self._doubt = None
            return
        if self._doubt is not None:
            low_s, high_s = max(least_s, self._doubt[0]), min(most_s, self._doubt[1])
            if low_s <= high_s + SLACK_S:
                self.offset_s = (low_s + high_s) / 2
                self._doubt = None
                return
        self._doubt = (least_s, most_s)


class Connection:
    """The connections to one server for one user."""

    def __init__(self, config: ClusterConfig, limiter: RateLimiter, request_s: float) -> None:
        """Create the connection pool; nothing is sent yet. Needs a running event loop.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        self.config = config
        self.limiter = limiter
        self.request_s = request_s
        self.on_warning: Callable[[str], None] | None = None
        self.clock = ServerClock()
        self.last_seen_s = 0.0
        """By the event loop's clock; 0 until the first answer."""
        self._tls = config.ssl_context()
        self._tls_of = config.identity()[1]
        self._sockets: WeakSet[socket.socket] = WeakSet()
        # No limit: every stream occupies a connection, and a job may have hundreds of ranks.
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._make_socket)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_ended_s = 0.0

    async def close(self) -> None:
        """Close all streams and connections, and cancel a renewal in progress."""
        if self._renewal is not None:
            self._renewal.cancel()
        await self._session.close()
        await self._close_sockets()

    async def _close_sockets(self) -> None:
        # asyncio keeps a TLS socket open until the server agrees to close it; some never do.
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
        """Yield the lines of a stream; each line, and the end by the server, counts as a sign of life."""
        try:
            async for line in lines(body, doing):
                self._record_last_seen()
                yield line
        except Unreachable as error:
            if is_broken_by_peer(error):
                self._record_last_seen()
            raise
        self._record_last_seen()

    def _record_last_seen(self) -> None:
        self.last_seen_s = asyncio.get_running_loop().time()

    def retry_credentials(self) -> None:
        """Let the next 401 renew the credentials, however recently that was tried."""
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
        accept: str = "application/json",
        idle_s: float | None = None,
        open_s: float | None = None,
        is_urgent: bool = True,
        has_turn: bool = False,
        is_proxied: bool = False,
    ) -> aiohttp.ClientResponse:
        """Send a request in its turn and return the response when its headers arrive.

        `doing` names the attempt in errors: "create PyTorchJob bert". `idle_s` is the longest silence, None
        for ever, and `open_s` the longest time from the request's turn to the headers. With `has_turn` it
        continues a request that had its turn, as further pages of a list do. With `is_proxied` the server
        passes it on to a pod or service, whose errors are not the API server's.

        Raises:
            KubeError: The server, or the proxied service, refused.
        """
        payload = None if body is None else json.dumps(body).encode()
        timeout = aiohttp.ClientTimeout(None, self.request_s, sock_connect=CONNECT_S, sock_read=idle_s)
        waits_left = SHORT_WAITS if method == "GET" else 0
        has_renewed = False
        while True:
            await self._wait(is_urgent=is_urgent, has_turn=has_turn)
            if self._session.closed:
                raise Unreachable(f"Could not {doing}.", "The connection to this cluster has been closed.")
            identity = self.config.identity()
            sent_s = time.time()
            async with asyncio.timeout(open_s):
                response = await self._session.request(
                    method,
                    self.config.host + path,
                    params=query,
                    data=payload,
                    headers=self._headers(content_type if payload is not None else "", accept),
                    timeout=timeout,
                    middlewares=() if method == "GET" else (_send_once,),
                    allow_redirects=not is_proxied,  # a pod could redirect our credentials anywhere
                    **self._route(),
                )
                self.clock.observe(response.headers.get("Date", ""), sent_s, time.time())
                if response.status < 400:
                    self._record_last_seen()
                    self._pass_warnings_on(method, response)
                    return response
                async with response:
                    answer = await read_at_most(response.content, MOST_ERROR_BYTES)
            retry_after = response.headers.get("Retry-After", "")
            status = status_of(answer)
            if is_proxied and status.get("kind") != "Status":
                # The pod's or service's own error: a 401 or 429 of it says nothing about the API server.
                raise ServerFailed(f"Could not {doing}.", f"It answers {response.status}: {_message(status)}")
            error = from_status(response.status, status, doing, retry_after)
            if isinstance(error, Unauthorized):
                self.config.refused = identity
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
        self, path: str, query: Query, protocols: Sequence[str], *, silence_s: float | None, is_ponging: bool
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket in its turn; see `Client.open_socket`.

        Raises:
            aiohttp.WSServerHandshakeError: The server refused; the handshake carries no reason.
        """
        await self._wait(is_urgent=True, has_turn=False)
        opened: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
            self.config.host + path,
            params=query,
            protocols=protocols,
            headers=self._headers(accept="*/*"),  # servers answer 406 if only JSON is accepted
            max_msg_size=MOST_MESSAGE_BYTES,
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
        if not has_turn or self.limiter.paused_until_s:
            await self.limiter.acquire(is_urgent=is_urgent)
        if self.config.has_expired:
            await self._renew()

    def _route(self) -> dict[str, Any]:
        # aiohttp pools connections by their TLS context, so a new certificate gets new connections.
        certificate = self.config.identity()[1]
        if certificate != self._tls_of:
            self._tls, self._tls_of = self.config.ssl_context(), certificate
        tls: ssl.SSLContext | bool = self._tls if self._tls is not None else True
        return {"ssl": tls, "proxy": self.config.proxy, "server_hostname": self.config.tls_server_name}

    def _headers(self, content_type: str = "", accept: str = "application/json") -> list[tuple[str, str]]:
        headers = [("Accept", accept), ("User-Agent", "gpuconsole"), *self.config.impersonation]
        if authorization := self.config.authorization():
            headers.append(("Authorization", authorization))
        if content_type:
            headers.append(("Content-Type", content_type))
        return headers

    async def _renew_credentials(self, refused: tuple[str, str]) -> bool:
        if self.config.identity() == refused:
            await self._renew()
        return self.config.identity() != refused

    async def _renew(self) -> None:
        # The outcome counts for a while: a failing exec plugin must not run for every request.
        if self._renewal is None or (self._renewal.done() and self._may_renew_again(self._renewal)):
            self._renewal = asyncio.create_task(self.config.renew())
            self._renewal.add_done_callback(self._record_renewal)
        try:
            await asyncio.shield(self._renewal)
        except KubeError as error:
            self.config.refused = self.config.identity()
            # A copy for each waiter: an exception raised again and again collects their tracebacks.
            raise type(error)(error.what, error.why, error.hint) from None

    def _may_renew_again(self, ended: asyncio.Task[None]) -> bool:
        has_worked = not ended.cancelled() and ended.exception() is None
        passed_s = asyncio.get_running_loop().time() - self._renewal_ended_s
        return (
            self.config.is_cheap_to_renew
            or (has_worked and self.config.has_expired)
            or passed_s >= RENEWAL_PAUSE_S
        )

    def _record_renewal(self, renewal: asyncio.Task[None]) -> None:
        self._renewal_ended_s = asyncio.get_running_loop().time()
        if not renewal.cancelled():
            renewal.exception()  # mark it as retrieved: all waiters may have been cancelled


def _message(status: Mapping[str, Any]) -> str:
    message = str(status.get("error") or status.get("message") or "no reason given").strip()
    return message.split("\n", 1)[0][:300]


async def _send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    # aiohttp would resend a PUT or DELETE after a broken connection, but it may have been carried out.
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


def make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create a socket with TCP keepalive, so that a dead peer is detected on a silent connection."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def close_socket(opened: aiohttp.ClientWebSocketResponse) -> None:
    """Close a websocket within `CLOSE_S`: aiohttp alone reads on for as long as the peer sends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await opened.close()
