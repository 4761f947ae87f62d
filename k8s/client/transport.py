"""Between bytes on a connection and values: lines, JSON bodies, transport errors."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn what a transport raises into `Unreachable`, saying what was being done."""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        raise Unreachable(f"Could not {doing}.", "The cluster did not answer in time.") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"Could not {doing}.", _words(error)) from error


def _words(error: Exception) -> str:
    """Return why a transport failed; of a refused connection the part that people understand."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"The server, or a proxy before it, passes no websockets on: it answered {error.status}."
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        number = error.os_error.errno or 0
        return f"{error.host}:{error.port}: {os.strerror(number) if number > 0 else error.os_error.strerror}"
    return without_credentials(str(error)) or type(error).__name__


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
