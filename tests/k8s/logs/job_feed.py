"""A job of scripted pods, and a queue of its logs that is drained as by a view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from k8s.logs import Item, JobLogs, LineQueue, LogLine, Mark, Marker, Target
from tests.scripted.logs import START_NS, ScriptedPod, target


def pod_of(rank: int, lines: int = 3) -> ScriptedPod:
    pod = ScriptedPod(f"job-worker-{rank}", restart_policy="Never")
    for number in range(lines):
        pod.write(f"r{rank} line {number}", stamp_ns=START_NS + number * 10_000_000 + rank)
    return pod


def target_of(pod: ScriptedPod, *ranks: int, **more: bool) -> Target:
    name = pod.name.removeprefix("job-")
    return target(pod, instance=name, ranks=ranks, ranks_proof="declared" if ranks else "none", **more)


@asynccontextmanager
async def running(logs: JobLogs) -> AsyncIterator[None]:
    task = asyncio.create_task(logs.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error


async def taken_until(queue: LineQueue, amount: int) -> list[Item]:
    """Drain a queue as a view does, until it gave this many items."""
    items: list[Item] = []
    async with asyncio.timeout(120):
        while len(items) < amount:
            items += queue.take()
            await asyncio.sleep(0)
    return items


def texts(items: Sequence[Item]) -> list[str]:
    return [item.text.decode() if isinstance(item, LogLine) else f"-- {item.text}" for item in items]


def ended(items: Sequence[Item], pods: int) -> bool:
    return sum(isinstance(item, Marker) and item.mark is Mark.ENDED for item in items) == pods
