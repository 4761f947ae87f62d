"""Requests to one server: rate limited and with fresh credentials.

Two things are retried here, and no others: a 401 renews the credentials, once for all waiting
requests, and a GET waits out a short `Retry-After`. Bytes are carried by aiohttp, or until that is
needed by a `PlainSession`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.auth.proxies import is_socks
from k8s.client.plain_session import PlainSession
from k8s.client.rate_limiter import RateLimiter
from k8s.client.transport import (
    Body,
    Query,
    ServerAnswer,
    is_broken_by_peer,
    lines,
    read_at_most,
    status_of,
    warnings_in,
)
from k8s.text.errors import KubeError, ServerFailed, Throttled, Unauthorized, Unreachable, from_status
from k8s.text.sanitize import sanitize

if TYPE_CHECKING:
    import aiohttp

    from k8s.client.session import AiohttpSession

log = logging.getLogger(__name__)
# Shortest time between renewals, unless the credentials announced their expiry.
RENEWAL_PAUSE_S = 20.0
# A GET waits out `Retry-After` values up to this, so many times; API servers send one second.
SHORT_WAIT_S, SHORT_WAITS = 1.0, 3
# The import of aiohttp waits so often, so long, for plain requests to end.
MOST_PAUSES, PAUSE_S = 20, 0.05
MOST_ERROR_BYTES = 1 << 20
# `Date` has whole seconds, and answers take time: less than this is jitter.
SLACK_S = 2.0
_REDIRECT_HINT = "Correct the server in the kubeconfig."
_LOGGED = frozenset(
    {"watch", "limit", "resourceVersion", "labelSelector", "fieldSelector", "follow", "tailLines", "dryRun"}
)
# Source: RFC 9110, 5.6.7; `email.utils` and `strptime` are slow to import.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


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
            _, day, month, year, clock, _ = date.split()
            hour, minute, second = map(int, clock.split(":"))
            month_number = _MONTHS.index(month) + 1
            written = datetime(int(year), month_number, int(day), hour, minute, second, tzinfo=UTC)
            written_s = written.timestamp()
        except (ValueError, OverflowError):
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

    def __init__(
        self,
        config: ClusterConfig,
        limiter: RateLimiter,
        request_s: float,
        answer_s: float,
        *,
        is_brief: bool,
    ) -> None:
        """Prepare the connections; nothing is sent yet. `is_brief` is explained at `Client`.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        self.config = config
        self.limiter = limiter
        self.request_s = request_s
        self.answer_s = answer_s
        self.on_warning: Callable[[str], None] | None = None
        self.clock = ServerClock()
        self.last_seen_s = 0.0
        """By the event loop's clock; 0 until the first answer."""
        self._tls = config.ssl_context()
        self._tls_of = config.identity()[1]
        # Proxies are left to aiohttp.
        self._plain = PlainSession() if is_brief and not config.proxy else None
        self._session: AiohttpSession | None = None
        self._is_closed = False
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_ended_s = 0.0

    async def close(self) -> None:
        """Close all streams and connections, and cancel a renewal in progress."""
        if self._renewal is not None:
            self._renewal.cancel()
        self._is_closed = True
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            if self._plain is not None:
                await self._plain.close()

    async def _aiohttp(self) -> AiohttpSession:
        if self._session is None and "k8s.client.session" not in sys.modules:
            # The import takes 200 ms and holds up everything else, so what is being read goes first.
            pauses = 0
            while self._plain is not None and self._plain.is_busy and pauses < MOST_PAUSES:
                pauses += 1
                await asyncio.sleep(PAUSE_S)
            await asyncio.to_thread(importlib.import_module, "k8s.client.session")
        if self._is_closed:
            raise ConnectionError("The connection to this cluster has been closed")
        if self._session is None:
            from k8s.client.session import AiohttpSession

            self._session = AiohttpSession(self.config.proxy)
        return self._session

    async def lines(self, body: Body, doing: str) -> AsyncIterator[bytes]:
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
        limit: asyncio.Timeout | None = None,
        is_urgent: bool = True,
        has_turn: bool = False,
        headers: Mapping[str, str] | None = None,
        is_proxied: bool = False,
        is_stream: bool = False,
    ) -> ServerAnswer:
        """Send a request in its turn and return the response when its headers arrive.

        `doing` names the attempt in errors: "create PyTorchJob bert". `idle_s` is the longest silence, None
        for ever, and `open_s` the longest time from the request's turn to the headers. `limit` is set to end
        `answer_s` after the turn; waits for turns and logins do not count. With `has_turn` the request
        continues a request that had its turn, as further pages of a list do. With `is_proxied` the server
        passes it on to a pod or service, whose errors are not the API server's. With `is_stream` the body
        may be endless, and is aiohttp's.

        Raises:
            KubeError: The server, or the proxied service, refused.
        """
        payload = None if body is None else json.dumps(body).encode()
        waits_left = SHORT_WAITS if method == "GET" else 0
        has_renewed = False
        while True:
            await self._wait(is_urgent=is_urgent, has_turn=has_turn)
            if self._is_closed:
                raise Unreachable(f"Could not {doing}.", "The connection to this cluster has been closed.")
            identity = self.config.identity()
            sent_s = time.time()
            if limit is not None:
                limit.reschedule(asyncio.get_running_loop().time() + self.answer_s)
            async with asyncio.timeout(open_s):
                response = await self._request(
                    method,
                    path,
                    query=query,
                    payload=payload,
                    headers=[
                        *self._headers(content_type if payload is not None else "", accept),
                        *(headers or {}).items(),
                    ],
                    idle_s=idle_s,
                    # A pod could redirect our credentials anywhere, and a body may hold secrets.
                    follows_redirects=method == "GET" and not is_proxied,
                    is_stream=is_stream,
                )
                took_s = time.time() - sent_s
                self.clock.observe(response.header("Date"), sent_s, sent_s + took_s)
                log.log(
                    logging.WARNING if response.status == 429 or response.status >= 500 else logging.INFO,
                    "%s %s: %d in %.0f ms",
                    method,
                    _loggable(path, query),
                    response.status,
                    took_s * 1000,
                )
                if response.status // 100 == 3 and not is_proxied:
                    response.close()
                    place = urlsplit(response.header("Location"))
                    why = (
                        f"The server redirects to {place.hostname or place.path}; only reading follows that."
                    )
                    raise ServerFailed(f"Could not {doing}.", sanitize(why), _REDIRECT_HINT)
                if response.status < (300 if is_proxied else 400):
                    self._record_last_seen()
                    self._pass_warnings_on(method, response)
                    return response
                with closing(response):
                    answer = await read_at_most(response.content, MOST_ERROR_BYTES)
            if limit is not None:
                limit.reschedule(None)
            retry_after = response.header("Retry-After")
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
            try:
                raise error
            finally:
                del error  # its traceback leads to this frame: they would keep each other

    async def _request(
        self, method: str, path: str, *, follows_redirects: bool, is_stream: bool, **request: Any
    ) -> ServerAnswer:
        url = self.config.host + path
        request["request_s"] = self.request_s
        route = self._route()
        if self._plain is not None and self._session is None and not is_stream:
            name = self.config.tls_server_name
            try:
                answer = await self._plain.request(method, url, tls=self._tls, server_name=name, **request)
                if answer.status // 100 != 3 or not follows_redirects:
                    return answer
                answer.close()
            except TimeoutError:
                raise
            except OSError:
                # What is not plain, or fails, is left to aiohttp, whose errors are explained. Requests
                # that may change something are sent once.
                if method != "GET":
                    raise
        session = await self._aiohttp()
        try:
            return await session.request(method, url, allow_redirects=follows_redirects, **request, **route)
        except Exception as error:
            log.warning("%s %s: %s", method, _loggable(path, request["query"]), error or type(error).__name__)
            raise

    async def open_socket(
        self, path: str, query: Query, protocols: Sequence[str], *, silence_s: float | None, is_ponging: bool
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket in its turn; see `Client.open_socket`.

        Raises:
            aiohttp.WSServerHandshakeError: The server refused; the handshake carries no reason.
        """
        await self._wait(is_urgent=True, has_turn=False)
        session = await self._aiohttp()
        return await session.open_socket(
            self.config.host + path,
            query=query,
            protocols=protocols,
            headers=self._headers(accept="*/*"),  # servers answer 406 if only JSON is accepted
            silence_s=silence_s,
            autoping=is_ponging,
            **self._route(),
        )

    def _pass_warnings_on(self, method: str, response: ServerAnswer) -> None:
        if self.on_warning is None or method == "GET":
            return
        for warning in warnings_in([response.header("Warning")]):
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
        tls = self._tls if self._tls is not None else True  # True: plain http
        proxy = None if is_socks(self.config.proxy) else self.config.proxy  # SOCKS is the session's
        return {"ssl": tls, "proxy": proxy, "server_hostname": self.config.tls_server_name}

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


def _loggable(path: str, query: Query) -> str:
    """Return the path with those parameters that help and hold no words of the user's commands."""
    pairs = query.items() if isinstance(query, Mapping) else query or ()
    return "?".join(
        filter(None, (path, "&".join(f"{name}={value}" for name, value in pairs if name in _LOGGED)))
    )


def _message(status: Mapping[str, Any]) -> str:
    message = str(status.get("error") or status.get("message") or "no reason given").strip()
    return message.split("\n", 1)[0][:300]
