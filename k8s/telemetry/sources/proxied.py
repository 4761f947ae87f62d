"""Reads from pods and services through the API server's proxy: bounded in bytes and time, and not in a hurry.

What is read there is not the API server's: it may be any size, take any time, ask for a login of its
own, or be something else altogether. None of that may hold up or log out the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from k8s.client.client import Client
from k8s.client.transport import read_at_most, translated
from k8s.errors import KubeError, ServerFailed, Unreachable

MOST_BYTES = 8 * 1024 * 1024
"""Longest answer that is read: an exporter's of 8 GPUs has 20 KiB, of 16 with seven MIG instances 400."""
WITHIN_S = 15.0
"""Longest time for a whole answer, counted from its turn."""


async def fetch_proxied(
    client: Client,
    path: str,
    doing: str,
    *,
    query: Mapping[str, str] | None = None,
    within_s: float = WITHIN_S,
) -> bytes:
    """Return what a pod or a service answers.

    Raises:
        Forbidden: This user may not ask, or what is asked does not let the API server in.
        KubeError: It did not answer, in time or in `MOST_BYTES`, or it answered with an error.
    """
    # Waiting for a turn may take longer than the answer: only the answer is timed, here and in `stream`.
    opened = client.stream(
        "GET", path, doing, query=query, idle_s=within_s, open_s=within_s, is_urgent=False, is_proxied=True
    )
    try:
        with translated(doing):
            async with opened as body, asyncio.timeout(within_s):
                found = await read_at_most(body, MOST_BYTES + 1)
    except Unreachable as error:
        if isinstance(error.__cause__, TimeoutError):  # the cluster may answer everything else at once
            raise Unreachable(error.what, "It did not answer in time.") from error
        raise
    if len(found) > MOST_BYTES:
        why = f"It answers with more than {MOST_BYTES // 2**20} MiB."
        raise ServerFailed(f"Could not {doing}.", why)
    return found


def refusal_words(error: KubeError) -> str:
    """Return in one line why it was refused, without the words that stand before each such answer."""
    return (error.why or error.what).removeprefix("The cluster says: ").split("\n", 1)[0]
