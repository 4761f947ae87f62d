"""Bytes to values: lines, JSON bodies, explanations of transport errors, and the user of a connection."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from k8s.text.errors import SANDBOX_CONTEXT, KubeError, ServerFailed, TooLarge, Unreachable

if TYPE_CHECKING:
    from k8s.client.auth.cluster_config import ClusterConfig

# Parameters of a request; pairs, where one occurs more than once.
Query = Mapping[str, str] | Sequence[tuple[str, str]] | None
# Errors of our own network stack about a peer that does not answer.
_SILENCE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")

CONNECT_S = 10.0

# A page of 500 pods has about 2 MiB.
MOST_ANSWER_BYTES = 256 << 20
# For a list in one answer: 150,000 pods have 630 MiB.
MOST_LIST_BYTES = 1 << 30
# etcd stores objects of up to 1.5 MiB.
MOST_LINE_BYTES = 64 << 20
MOST_PAGES = 4_000


class BrokenAnswer(OSError):
    """An answer that cannot be read; the message is the reason."""


class Body(Protocol):
    """Body of an answer, to be read once."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the decompressed bytes as they arrive."""


class ServerAnswer(Protocol):
    """An answer whose body is still to be read."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""

    @property
    def content(self) -> Body:
        """Return the body."""

    def header(self, name: str) -> str:
        """Return a header; empty if there is none, with commas between several."""

    def close(self) -> None:
        """Stop reading; the connection is reused if everything was read."""


async def lines(body: Body, doing: str) -> AsyncIterator[bytes]:
    """Yield lines of any length without their ends, and a last line even if it has no end."""
    partial = bytearray()
    with translated(doing):
        async for chunk in body.iter_any():
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                if partial:
                    partial += chunk[start:end]
                    yield bytes(partial)
                    partial.clear()
                else:
                    yield chunk[start:end]
                start = end + 1
            partial += chunk[start:]
            if len(partial) > MOST_LINE_BYTES:
                raise _too_large(doing, f"One line of its answer is over {MOST_LINE_BYTES >> 20} MiB.")
    if partial:
        yield bytes(partial)


async def read_at_most(body: Body, most: int) -> bytes:
    """Return a body, cut off after `most` bytes."""
    found = bytearray()
    async for chunk in body.iter_any():
        found += chunk
        if len(found) >= most:
            break
    return bytes(found[:most])


async def read_answer(body: Body, doing: str, most: int) -> bytes:
    """Return a whole body; `most` counts bytes after decompression.

    Raises:
        TooLarge: The body is longer than `most`.
    """
    chunks, size = [], 0
    async for chunk in body.iter_any():
        chunks.append(chunk)
        if (size := size + len(chunk)) > most:
            raise _too_large(doing, f"Its answer is over {most >> 20} MiB.")
    return b"".join(chunks)


def check_page(doing: str, pages: int, token: str, previous_token: str) -> None:
    """Check that a paged list makes progress.

    Raises:
        TooLarge: The next page is the same one, or there are more than `MOST_PAGES`.
    """
    if token and token == previous_token:
        raise _too_large(doing, f"Page {pages + 1} of its list is page {pages} again.")
    if pages > MOST_PAGES:
        raise _too_large(doing, f"Its list does not end after {MOST_PAGES} pages.")


def _too_large(doing: str, why: str) -> TooLarge:
    hint = "Check the server in the kubeconfig, and any proxy before it; pick one namespace to read less."
    return TooLarge(f"Could not {doing}.", why, hint)


@contextmanager
def translated(doing: str, config: ClusterConfig | None = None) -> Iterator[None]:
    """Turn transport errors into `Unreachable`, with the attempt, the server and its proxy in the text."""
    proxy = urlsplit(config.proxy or "").netloc.rpartition("@")[2] if config else ""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        why = f"The cluster{proxy and f', or the proxy {proxy},'} did not answer in time."
        raise Unreachable(f"Could not {doing}.", why, _PROXY_HINT if proxy else _NETWORK_HINT) from error
    except Exception as error:
        if not _is_transport_error(error):
            raise
        server = urlsplit(config.host) if config else None
        why, hint = _describe_error(error, server.netloc if server else "the server", proxy)
        if server is not None and server.scheme == "http" and not hint:
            hint = _SCHEME_HINT
        if hint == _REFUSED_HINT and config and config.context == SANDBOX_CONTEXT and config.is_local:
            hint = _SANDBOX_HINT
        raise Unreachable(f"Could not {doing}.", why, hint) from error


def _is_transport_error(error: Exception) -> bool:
    if "aiohttp" not in sys.modules:  # slow to import, and this is none of its errors
        return isinstance(error, OSError)
    import aiohttp

    return isinstance(error, aiohttp.ClientError | OSError)


def _describe_error(error: Exception, server: str, proxy: str) -> tuple[str, str]:
    if isinstance(error, BrokenAnswer):
        return f"{server}: its answer cannot be read: {error}.", ""
    if "aiohttp" in sys.modules and (described := _describe_aiohttp_error(error, server, proxy)):
        return described
    if getattr(error, "errno", 0) == errno.ECONNRESET:
        return f"{server}: it closed the connection without an answer.", ""
    return without_credentials(str(error)) or type(error).__name__, ""


def _describe_aiohttp_error(error: Exception, server: str, proxy: str) -> tuple[str, str] | None:
    import aiohttp

    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"The proxy {proxy} refused: it answered {error.status} {error.message}.", _PROXY_HINT
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return (
            f"The server, or a proxy before it, does not pass on websockets: it answered {error.status}.",
            "",
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _describe_certificate_error(f"{error.host}:{error.port}", error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return _tls_message(f"{error.host}:{error.port}", error.os_error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        why = f"{error.host}: no address is known for this name."
        return (f"Proxy {why}", _PROXY_HINT) if proxy else (why, _NETWORK_HINT)
    if isinstance(error, aiohttp.ClientConnectorError):
        where = f"{'Proxy ' if proxy else ''}{error.host}:{error.port}"
        number = error.os_error.errno or 0
        if isinstance(error.os_error, ConnectionRefusedError):
            why = f"{where}: Connection refused: nothing listens there."
            return why, _PROXY_HINT if proxy else _REFUSED_HINT
        message = os.strerror(number) if number > 0 else error.os_error.strerror
        if not message or number == errno.ECONNRESET:  # the peer broke off the TLS handshake
            return f"{where}: it closed the connection while it was being opened.", _SCHEME_HINT
        return f"{where}: {message}.", _PROXY_HINT if proxy else _NETWORK_HINT
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return f"{server}: it closed the connection without an answer.", ""
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
        # aiohttp quotes the bytes it could not parse after a colon; they may be anything.
        text: str = getattr(error, "message", "") or str(error).removeprefix("400, message:")
        message = re.split(r"[:\n]", text.strip())[0]
        if message == "Bad status line":
            return f"{server}: it does not speak HTTP.", _SCHEME_HINT
        return f"{server}: its answer cannot be read: {message}.", ""
    return None


def _describe_certificate_error(where: str, error: Exception) -> tuple[str, str]:
    # Source: OpenSSL, X509_verify_cert_error_string.
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in _UNTRUSTED:
        return f"{where}: its certificate is signed by an authority that is not trusted.", _AUTHORITY_HINT
    if code in (9, 10):
        state = "is not valid yet" if code == 9 else "has expired"
        return f"{where}: its certificate {state}.", "Check this machine's clock, or have it renewed."
    if code in (62, 64):
        return f"{where}: its certificate is for another name.", _NAME_HINT
    message = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
    return f"{where}: its certificate was not accepted: {message}.", _AUTHORITY_HINT


def _tls_message(where: str, error: OSError) -> tuple[str, str]:
    reason = str(getattr(error, "reason", None) or "")
    if reason in _NOT_TLS:
        return f"{where}: it does not speak TLS.", _SCHEME_HINT
    message = reason.replace("_", " ").lower() or str(error)
    return f"{where}: TLS failed: {message}.", "Check the server in the kubeconfig, and any proxy before it."


_NETWORK_HINT = "Check the network or VPN, and the server in the kubeconfig."
_SCHEME_HINT = "Check the server in the kubeconfig: its port, http or https."
_PROXY_HINT = "Check proxy-url in the kubeconfig, or HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY."
_REFUSED_HINT = "Start the cluster, or correct the server in the kubeconfig."
_SANDBOX_HINT = "The sandbox is not running. Start it with: gpuconsole sandbox start"
_AUTHORITY_HINT = "Correct certificate-authority-data in the kubeconfig, or get a new kubeconfig."
_NAME_HINT = "Correct the server in the kubeconfig, or set its tls-server-name."
# 7: another authority of the same name signed it, and no key identifier tells them apart.
_UNTRUSTED = (7, 18, 19, 20, 21)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


def is_broken_by_peer(error: Unreachable) -> bool:
    """Return True if the peer broke a connection that was good until then; a timeout proves no such thing."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError) or (isinstance(cause, OSError) and cause.errno in _SILENCE):
            return False
        cause = cause.__cause__
    return True


def without_credentials(text: str) -> str:
    """Return a text without the user names and passwords of the URLs in it."""
    return _CREDENTIALS.sub("//", text)


def query_of(**parameters: str) -> dict[str, str]:
    """Return the parameters that have a value."""
    return {name: value for name, value in parameters.items() if value}


def json_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object.

    Raises:
        ServerFailed: The body is something else.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise unparsable("The server's answer is malformed.", f"It is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise unparsable(
            "The server's answer is malformed.", f"It is a {type(found).__name__}, not an object."
        )
    return found


def unparsable(what: str, why: str) -> ServerFailed:
    """Create the error for a malformed answer, which perhaps no API server sent."""
    error = ServerFailed(what, why)
    error.is_foreign = True
    return error


def status_of(body: bytes) -> Mapping[str, Any]:
    """Decode the body of an error into something like a `v1.Status`, whatever it is."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {"message": body[:300].decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {}


def warnings_in(headers: Iterable[str]) -> list[str]:
    """Return the texts of a response's `Warning` headers, without duplicates.

    Source: RFC 7234, 5.5; API servers send `299 - "text"`.
    """
    quoted = [match[1] for header in headers for match in _WARNING.finditer(header)]
    return list(dict.fromkeys(_ESCAPED.sub(r"\1", text) for text in quoted))


_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ANY_INTERFACE, _NO_COOKIE = b"\0" * 4, b"\xff" * 8
# Offset of the uid: after the message's state, socket id and three counters.
_UID_AT = _HEADER.size + 64


def uid_of_peer(connection: socket.socket) -> int | None:
    """Return the user id at the other end of a loopback connection; None if the kernel does not report it.

    Source: "sock_diag(7)", Linux manual; `struct inet_diag_req_v2` and `inet_diag_msg` in linux/inet_diag.h.
    """
    try:
        local, peer = connection.getsockname(), connection.getpeername()
        family = connection.family
        ends = struct.pack("!HH", peer[1], local[1])
        ends += b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (peer, local))
        query = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        query += ends + _ANY_INTERFACE + _NO_COOKIE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0.1)
            length = _HEADER.size + len(query)
            kernel.sendto(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + query, (0, 0))
            answer = kernel.recv(4096)
    except (OSError, AttributeError):
        return None
    if len(answer) < _UID_AT + 4 or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])


def stranger_of(connection: socket.socket) -> int | None:
    """Return the user id at the other end if it is neither root nor this process's own; None if not known."""
    uid = uid_of_peer(connection)
    return None if uid in (os.getuid(), 0) else uid
