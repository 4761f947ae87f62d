"""Between bytes on a connection and values: lines, JSON bodies, transport errors."""

from __future__ import annotations

import errno
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp

from k8s.errors import KubeError, ServerFailed, Unreachable

PATCHES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
"""Kind of patch to its content type."""
Query = Mapping[str, str] | Sequence[tuple[str, str]] | None
"""Parameters of a request, of which some may be there more than once."""
_SILENCE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)
"""What our own machine says of a peer that does not answer."""
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")


async def lines(body: aiohttp.StreamReader, doing: str) -> AsyncIterator[bytes]:
    """Yield whole lines of any length, without their ends; a last line without an end is yielded too."""
    rest = bytearray()
    with translated(doing):
        async for chunk in body.iter_any():
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                if rest:
                    rest += chunk[start:end]
                    yield bytes(rest)
                    rest.clear()
                else:
                    yield chunk[start:end]
                start = end + 1
            rest += chunk[start:]
    if rest:
        yield bytes(rest)


async def read_at_most(body: aiohttp.StreamReader, most: int) -> bytes:
    """Return a body, or its first `most` bytes where it is longer."""
    found = bytearray()
    while len(found) < most and (chunk := await body.read(most - len(found))):
        found += chunk
    return bytes(found)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn what a transport raises into `Unreachable`, saying what was being done."""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        why = "The cluster did not answer in time."
        raise Unreachable(f"Could not {doing}.", why, _NETWORK_HINT) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"Could not {doing}.", *_words(error)) from error


def _words(error: Exception) -> tuple[str, str]:
    """Return why a transport failed, in words that people understand, and what to do about it."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"The server, or a proxy before it, passes no websockets on: it answered {error.status}.", ""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate_words(f"{error.host}:{error.port}", error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return _tls_words(f"{error.host}:{error.port}", error.os_error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{error.host}: no address is known for this name.", _NETWORK_HINT
    if isinstance(error, aiohttp.ClientConnectorError):
        where, number = f"{error.host}:{error.port}", error.os_error.errno or 0
        if isinstance(error.os_error, ConnectionRefusedError):
            return f"{where}: Connection refused: nothing listens there.", _REFUSED_HINT
        said = os.strerror(number) if number > 0 else error.os_error.strerror
        return f"{where}: {said}.", _NETWORK_HINT
    return without_credentials(str(error)) or type(error).__name__, ""


def _certificate_words(where: str, error: Exception) -> tuple[str, str]:
    """Say what is wrong with the server's certificate. Source: OpenSSL, X509_verify_cert_error_string."""
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    if code in _UNTRUSTED:
        return f"{where}: its certificate is signed by an authority that is not trusted.", _AUTHORITY_HINT
    if code in (9, 10):
        state = "is not valid yet" if code == 9 else "has expired"
        return f"{where}: its certificate {state}.", "Check this machine's clock, or have it renewed."
    if code in (62, 64):
        return f"{where}: its certificate is for another name.", _NAME_HINT
    said = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
    return f"{where}: its certificate is not good: {said}.", _AUTHORITY_HINT


def _tls_words(where: str, error: OSError) -> tuple[str, str]:
    reason = str(getattr(error, "reason", None) or "")
    if reason in _NOT_TLS:
        return (
            f"{where}: it does not speak TLS.",
            "Check the server in the kubeconfig: its port, http or https.",
        )
    said = reason.replace("_", " ").lower() or str(error)
    return f"{where}: TLS failed: {said}.", "Check the server in the kubeconfig, and any proxy before it."


_NETWORK_HINT = "Check the network or VPN, and the server in the kubeconfig."
_REFUSED_HINT = "Start the cluster, or correct the server in the kubeconfig."
_AUTHORITY_HINT = "Correct certificate-authority-data in the kubeconfig, or fetch the kubeconfig anew."
_NAME_HINT = "Correct the server in the kubeconfig, or set its tls-server-name."
_UNTRUSTED = (18, 19, 20, 21)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


def is_broken_by_peer(error: Unreachable) -> bool:
    """Tell whether the other end broke a connection, which was good until then; silence breaks none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError) or (isinstance(cause, OSError) and cause.errno in _SILENCE):
            return False
        cause = cause.__cause__
    return True


def without_credentials(text: str) -> str:
    """Return a text without the names and passwords of the addresses in it."""
    return _CREDENTIALS.sub("//", text)


def query_of(**parameters: str) -> dict[str, str]:
    """Return the parameters that have a value."""
    return {name: value for name, value in parameters.items() if value}


def json_object(body: bytes) -> dict[str, Any]:
    """Decode an object.

    Raises:
        ServerFailed: The body is something else.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise not_understood("The server's answer makes no sense.", f"It is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise not_understood("The server's answer makes no sense.", f"It is a {type(found).__name__}.")
    return found


def not_understood(what: str, why: str) -> ServerFailed:
    """Return the error for an answer that makes no sense, so that perhaps no API server gave it."""
    error = ServerFailed(what, why)
    error.is_foreign = True
    return error


def status_of(body: bytes) -> Mapping[str, Any]:
    """Decode the body of an error, whatever it is, into something like a `v1.Status`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {"message": body[:300].decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {}


def warnings_in(headers: Iterable[str]) -> list[str]:
    """Return the texts of a server's `Warning` headers, each once.

    Source: RFC 7234, 5.5, of which API servers use `299 - "text"`.
    """
    quoted = [match[1] for header in headers for match in _WARNING.finditer(header)]
    return list(dict.fromkeys(_ESCAPED.sub(r"\1", text) for text in quoted))
