"""The cost of watching the signs of life of 200 running jobs: requests a minute, and CPU."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from k8s.logs.tail import read_tail
from k8s.status import Status
from tests.bench.figures import Figure
from tests.load.running import LoadServer
from tui.feeds.cluster_feed import ClusterFeed
from tui.feeds.life_feed import LifeFeed

JOBS, NODES, ALL_JOBS = 200, 400, 600
BURST_S, MEASURED_S = 40.0, 60.0


def measure() -> Iterator[Figure]:
    """Read logs of 200 jobs for a minute after the first round; all 200 lines of each reading are new."""
    with LoadServer(NODES, ALL_JOBS, log_lines=0) as server:
        jobs, requests, cpu_s = asyncio.run(_watch(server))
    yield Figure(f"signs of life of {jobs} running jobs, requests", requests, "", None, "<= 120", unit="/min")
    yield Figure("  hundredths of a core", cpu_s / MEASURED_S * 100, "", None, "<= 2", unit="")


async def _watch(server: LoadServer) -> tuple[int, float, float]:
    requests = 0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal requests
        requests += 1
        return await read_tail(*arguments, **options)

    async with server.client() as client:
        snapshot = await ClusterFeed(client).read_once()
        running = [job for job in snapshot.jobs if job.status is Status.RUNNING][:JOBS]
        with patch("tui.feeds.life_feed.BURST", JOBS):  # the first round, in which every line is new
            feed = LifeFeed(client, None, tuple)
        feed.watch("bench", lambda: running)
        patched = patch("tui.feeds.life_feed.read_tail", counted)
        patched.start()
        try:
            reading = asyncio.create_task(feed.run())
            await asyncio.sleep(BURST_S)
            requests, began_s = 0, time.process_time()
            await asyncio.sleep(MEASURED_S)
            used_s = time.process_time() - began_s
        finally:
            patched.stop()
        reading.cancel()
        await asyncio.wait([reading])
    return len(running), requests / MEASURED_S * 60, used_s
