"""aiohttp's connections to one server, with detection of dead peers, and channels on a websocket.

The one place that imports aiohttp for its client: see `_import_aiohttp`. Commands in containers and forwarded
ports use numbered channels: the first byte of a message is the channel. Source: "websocket" in
k8s.io/apimachinery/pkg/util/remotecommand, and wsstream beside it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from k8s.client.auth.proxies import is_socks
from k8s.client.transport import CONNECT_S, Query, translated
from k8s.text.errors import Unreachable


def _import_aiohttp() -> None:
    """Import aiohttp without the default TLS context, which its connector makes.

    That context loads every certificate authority of the system (60 to 100 ms). Requests to https servers
    bring a context of their own, from `ClusterConfig.ssl_context`. Were one to rely on aiohttp's, as after
    a redirect from http to https, it fails: the context made here verifies, and trusts no authority.
    """
    create, importer = ssl.create_default_context, threading.get_ident()

    def create_or_not(*args: Any, **options: Any) -> ssl.SSLContext:
        # Another thread may connect meanwhile.
        is_ours = threading.get_ident() == importer
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_ours else create(*args, **options)

    ssl.create_default_context = create_or_not
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.create_default_context = create


_import_aiohttp()
import aiohttp as aiohttp  # noqa: E402

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
_SOCKS_PORT = 1080


class Response(aiohttp.ClientResponse):
    """aiohttp's response as a `ServerAnswer`."""

    def header(self, name: str) -> str:
        """Return a header; empty if there is none, with commas between several."""
        return ", ".join(self.headers.getall(name, ()))


class AiohttpSession:
    """An aiohttp session whose sockets notice dead peers, and are all closed at the end."""

    def __init__(self, proxy: str | None = None) -> None:
        """Prepare the session; a SOCKS proxy is used for all of it, any other is named with each request."""
        self._sockets: WeakSet[socket.socket] = WeakSet()
        # No limit: every stream occupies a connection, and a job may have hundreds of ranks.
        connector = (
            _SocksConnector(proxy, self._sockets)
            if proxy and is_socks(proxy)
            else aiohttp.TCPConnector(limit=0, socket_factory=self._make_socket)
        )
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=True, response_class=Response
        )

    async def request(
        self,
        method: str,
        url: str,
        *,
        query: Query,
        payload: bytes | None,
        request_s: float,
        idle_s: float | None,
        **more: Any,
    ) -> Response:
        """Send a request and return the response when its headers arrive; `more` are arguments of aiohttp.

        `request_s` is the longest time until it is connected, `idle_s` the longest silence afterwards.
        """
        timeout = aiohttp.ClientTimeout(None, request_s, sock_connect=CONNECT_S, sock_read=idle_s)
        middlewares = () if method == "GET" else (_send_once,)
        more.update(timeout=timeout, middlewares=middlewares, params=query, data=payload)
        response = await self._session.request(method, url, **more)
        assert isinstance(response, Response)
        return response

    async def open_socket(
        self, url: str, *, query: Query, silence_s: float | None, **more: Any
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket; `more` are arguments of aiohttp.

        Raises:
            aiohttp.WSServerHandshakeError: The server refused; the handshake carries no reason.
        """
        timeout = aiohttp.ClientWSTimeout(ws_receive=silence_s, ws_close=CLOSE_S)
        more.update(timeout=timeout, max_msg_size=MOST_MESSAGE_BYTES, params=query)
        opened: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(url, **more)
        return opened

    async def close(self) -> None:
        """Close all streams and connections."""
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
    _keep_alive(made)
    return made


def _keep_alive(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Unresolved(aiohttp.abc.AbstractResolver):
    """Leaves names to the proxy."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        return [{"hostname": host, "host": host, "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


class _SocksConnector(aiohttp.TCPConnector):
    """Connections through a SOCKS proxy.

    aiohttp-socks does the same, but drops `server_hostname` and gives no access to the socket.
    """

    def __init__(self, proxy: str, sockets: WeakSet[socket.socket]) -> None:
        super().__init__(limit=0, resolver=_Unresolved())
        self._address = urlsplit(proxy)
        self._sockets = sockets

    # Where aiohttp opens its TCP connections: private, and the only way in.
    async def _wrap_create_connection(
        self, *args: Any, req: aiohttp.ClientRequest, timeout: aiohttp.ClientTimeout, **options: Any
    ) -> tuple[asyncio.Transport, aiohttp.client_proto.ResponseHandler]:
        server = options.pop("addr_infos")[0][4]
        made = await self._tunnel(req.connection_key, server[0], server[1], timeout.sock_connect)
        try:
            return await self._wrap_existing_connection(*args, req=req, timeout=timeout, sock=made, **options)
        except BaseException:
            made.close()
            raise

    async def _tunnel(
        self, key: aiohttp.client_reqrep.ConnectionKey, host: str, port: int, connect_s: float | None
    ) -> socket.socket:
        from python_socks import ProxyConnectionError, ProxyError, ProxyType
        from python_socks.async_.asyncio import Proxy

        parts = self._address
        name, password = (unquote(each or "") for each in (parts.username, parts.password))
        proxy_host, proxy_port = parts.hostname or "", parts.port or _SOCKS_PORT
        proxy = Proxy(ProxyType.SOCKS5, proxy_host, proxy_port, name, password, rdns=True)
        try:
            made = await proxy.connect(host, port, connect_s)
        except (ProxyConnectionError, ProxyError) as error:
            cause = error.__cause__
            refused = OSError(
                0, f"it could not connect to {host}:{port}: {str(error).rstrip('.') or 'it hung up'}"
            )
            reason = cause if isinstance(error, OSError) and isinstance(cause, OSError) else refused
            raise aiohttp.ClientProxyConnectionError(
                key._replace(host=proxy_host, port=proxy_port), reason
            ) from error
        _keep_alive(made)
        self._sockets.add(made)
        return made


async def close_socket(opened: aiohttp.ClientWebSocketResponse) -> None:
    """Close a websocket within `CLOSE_S`: aiohttp alone reads on for as long as the peer sends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await opened.close()


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
