"""A container's log read once more from its start, for a file; gaps are filled with what was held of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.logs.follow import Follower, LogRequest
from k8s.logs.lines import LONGEST_LINE_BYTES, Item, LogLine, Mark, Marker, Target
from k8s.watch.backoff import DEFAULT_BACKOFF, Backoff


async def whole_log(
    client: Client,
    target: Target,
    *,
    is_previous: bool = False,
    has_restarted: bool = False,
    held: Sequence[Item] = (),
    gone: dict[str, int] | None = None,
    backoff: Backoff = DEFAULT_BACKOFF,
    turn: asyncio.Lock | None = None,
) -> AsyncGenerator[list[Item], None]:
    """Yield all lines that a container wrote until now, and markers where some are missing.

    Args:
        client: The cluster.
        target: The container.
        is_previous: Read the run before the last restart.
        has_restarted: Read that run too, before the present one.
        held: What was read of it before, for what the server does not have any more.
        gone: Lines before those, by who wrote them; what was said is taken out.
        backoff: How long to wait for what.
        turn: Shared with the others who read in this console.
    """
    lines = [item for item in held if isinstance(item, LogLine)]
    writers = {target.name, *(f"rank {rank}" for rank in target.ranks), *(line.writer for line in lines)}
    numbers = count()
    reached_ns = 0
    is_cut = False

    def marker(words: str) -> Marker:
        return Marker(Mark.GAP, words, target, reached_ns, next(numbers))

    def filled(until_ns: float) -> list[Item]:
        """Return what was held of what the server does not have, from `reached_ns` on."""
        found = [line for line in lines if reached_ns < line.stamp_ns < until_ns]
        if not found:
            return []
        lost = [writer for writer in writers if gone and writer in gone] if not reached_ns else []
        said = [
            f"{writer}: {(gone or {}).pop(writer):,} earlier lines cannot be read again" for writer in lost
        ]
        words = f"{len(found):,} lines that the server does not have any more, as they were held here"
        return [*map(marker, [*said, words]), *found, marker("from here on as the server has them")]

    for run in (True, False) if has_restarted and not is_previous else (is_previous,):
        request = LogRequest(follow=False, previous=run, kept_bytes=LONGEST_LINE_BYTES)
        follower = Follower(client, target, request, backoff=backoff, numbers=numbers, turn=turn)
        is_begun = False
        try:
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    # Without following, this says that another pod has the name.
                    is_cut |= any(isinstance(item, Marker) and item.mark is Mark.ENDED for item in batch)
                    if not is_begun and any(isinstance(item, LogLine) for item in batch):
                        is_begun = True
                        if older := filled(batch[0].stamp_ns):
                            yield older
                    yield batch
                    reached_ns = max(reached_ns, follower.reached_ns)
        except KubeError as error:
            is_cut = True
            yield [marker(f"cannot be read to its end. {error.why or error.what}")]
    if is_cut and (newer := filled(float("inf"))):
        yield newer[:-1]
