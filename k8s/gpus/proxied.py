"""Typed lists, bounded reads through the API server's proxy, and the memory of refused ones.

The response is not the API server's own: it may have any size, take any time, or ask for
credentials. None of this may block the console or log it out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from k8s.client.client import Client
from k8s.client.transport import read_at_most, translated, unparsable
from k8s.gpus.readings import NoReadings, NoReadingsCause
from k8s.models import Reader
from k8s.models.resources import Resource
from k8s.text.errors import Forbidden, KubeError, NotFound, TooLarge, Unreachable

T = TypeVar("T")

# An exporter returns 20 KiB for 8 GPUs, and 400 KiB for 16 GPUs with seven MIG instances each.
MAX_BYTES = 8 * 1024 * 1024
# Pages of 500 objects: a cluster has at most 5,000 nodes.
_MOST_PAGES = 20
WITHIN_S = 15.0
"""Timeout of a whole response, counted from the time the request is sent."""


async def list_values(
    client: Client, resource: Resource, value_type: type[T], namespace: str = "", **query: Any
) -> list[T]:
    """Return the well-formed objects of a list; `query` are parameters of `Client.list_page`.

    Raises:
        KubeError: The server refused or did not answer, or its answer is no list.
    """
    reader: Reader[T] = Reader(value_type)
    found: list[T] = []
    token = ""
    for _ in range(_MOST_PAGES):
        body = await client.list_page(resource, namespace, continue_token=token, **query)
        try:
            where, items, _ = reader.read_list(body)
        except msgspec.DecodeError as error:
            why = f"The list is malformed: {error}"
            raise unparsable(f"Could not list {resource.full_name}.", why) from error
        found += items
        token = where.continue_
        if not token:
            break
    return found


async def fetch_proxied(
    client: Client,
    path: str,
    doing: str,
    *,
    query: Mapping[str, str] | None = None,
    within_s: float = WITHIN_S,
) -> bytes:
    """Return the response body of a pod or service.

    Raises:
        Forbidden: The user may not use the proxy, or the target refuses the API server.
        TooLarge: The response is longer than `MAX_BYTES`.
        KubeError: No response in time, or an error response.
    """
    # Waiting for a turn may take longer than the answer: only the answer is timed, here and in `stream`.
    times: dict[str, Any] = {"idle_s": within_s, "open_s": within_s}
    opened = client.stream(
        path, doing, query=query, **times, is_urgent=False, is_proxied=True, is_endless=False
    )
    try:
        with translated(doing):
            async with opened as body, asyncio.timeout(within_s):
                found = await read_at_most(body, MAX_BYTES + 1)
    except Unreachable as error:
        if isinstance(error.__cause__, TimeoutError):  # the cluster may answer everything else at once
            raise Unreachable(error.what, "It did not answer in time.") from error
        raise
    if len(found) > MAX_BYTES:
        why = f"It answers with more than {MAX_BYTES // 2**20} MiB."
        raise TooLarge(f"Could not {doing}.", why)
    return found


def refusal_text(error: KubeError) -> str:
    """Return the server's reason in one line, without the common prefix."""
    return (error.why or error.what).removeprefix("The cluster says: ").split("\n", 1)[0]


# Also for missing objects; permissions rarely change.
REFUSED_S = 600.0
FAILED_S = 60.0


class Refusals:
    """Reasons to suspend requests, by any hashable key."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until: dict[object, tuple[float, NoReadings]] = {}

    def get(self, key: object) -> NoReadings | None:
        """Return the reason that a request is suspended; None if it is not."""
        until_s, reason = self._until.get(key, (0.0, None))
        return reason if self._now_s() < until_s else None

    def record(self, key: object, error: KubeError, forbidden: str, absent: str = "") -> NoReadings:
        """Record a failure and return the reason.

        Args:
            key: Key of the request.
            error: The failure.
            forbidden: The missing permission, as `get pods/proxy in namespace monitoring`.
            absent: Reason to show for `NotFound`; empty to treat it like any other failure.
        """
        if isinstance(error, Forbidden):
            reason = NoReadings(NoReadingsCause.FORBIDDEN, f"You may not {forbidden}.")
        elif isinstance(error, NotFound) and absent:
            reason = NoReadings(NoReadingsCause.NO_EXPORTER, absent)
        else:
            reason = NoReadings(NoReadingsCause.UNREACHABLE, refusal_text(error))
        is_final = reason.cause is not NoReadingsCause.UNREACHABLE
        self.suspend(key, reason, REFUSED_S if is_final else FAILED_S)
        return reason

    def suspend(self, key: object, reason: NoReadings, for_s: float = REFUSED_S) -> None:
        """Suspend a request for some time, and drop expired entries."""
        now_s = self._now_s()
        self._until = {each: entry for each, entry in self._until.items() if now_s < entry[0]}
        self._until[key] = (now_s + for_s, reason)

    def clear(self) -> None:
        """Forget all reasons."""
        self._until.clear()
