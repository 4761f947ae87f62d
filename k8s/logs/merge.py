"""Several logs that end, as one in the order of their times."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing

from k8s.logs.lines import Item, Mark, Marker, Target

MAX_STREAMS = 32
"""Logs that are streamed at once; the others are asked for every few seconds, and lose nothing either."""


async def by_time(sources: Sequence[AsyncGenerator[list[Item], None]]) -> AsyncGenerator[list[Item], None]:
    """Merge logs that end, holding one batch of each in memory; too many follow one after the other."""
    if len(sources) > MAX_STREAMS:
        words = f"{len(sources)} logs are too many to be merged by time; they follow one after the other"
        yield [Marker(Mark.NOTE, words, Target("", ""))]
        for source in sources:
            async with aclosing(source) as batches:
                async for batch in batches:
                    yield batch
        return
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(each)) for each in sources]
        firsts = await asyncio.gather(*(anext(stream, None) for stream in streams))
        heap = [
            (batch[0].stamp_ns, position, 0, batch)
            for position, batch in enumerate(firsts)
            if batch is not None
        ]
        heapq.heapify(heap)
        while heap:
            _, position, index, batch = heap[0]
            yield [batch[index]]
            index += 1
            if index == len(batch):
                following = await anext(streams[position], None)
                if following is None:
                    heapq.heappop(heap)
                    continue
                batch, index = following, 0
            heapq.heapreplace(heap, (batch[index].stamp_ns, position, index, batch))
