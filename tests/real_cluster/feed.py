"""The console's feed on a real cluster, and waiting for what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot, Job
from tui.tables.filters import own_names

LONGEST_S = 90.0  # a loaded machine may take its time to start pods


class Feed:
    """A feed that runs, and its newest snapshot."""

    def __init__(self) -> None:
        self.newest = ClusterSnapshot()
        self._came = asyncio.Event()

    def take(self, snapshot: ClusterSnapshot) -> None:
        self.newest = snapshot
        self._came.set()

    async def until(self, is_so: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        """Wait until a snapshot is as wanted, and return it."""
        try:
            async with asyncio.timeout(LONGEST_S):
                while not is_so(self.newest):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"never came true; the last: {self.described()}") from None
        return self.newest

    def described(self) -> str:
        """Return the newest snapshot in words."""
        jobs = "\n".join(
            f"{each.ref.kind} {each.ref.namespace}/{each.ref.name}: {each.status}, {each.reason};"
            f" {each.gpus_allocated}/{each.gpus_requested};"
            f" {[(one.name, one.status.value) for one in each.instances]}"
            for each in self.newest.jobs
        )
        return f"stale {self.newest.stale!r}, problems {self.newest.problems}\n{jobs}"


@asynccontextmanager
async def feed_of(client: Client, namespace: str = "") -> AsyncIterator[Feed]:
    """Run the console's feed of what `client` may see."""
    feed = Feed()
    mirror = ClusterMirror(client, namespace)
    JobReasons(mirror, own_names)
    task = asyncio.create_task(mirror.run(feed.take))
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait([task])


def job_called(snapshot: ClusterSnapshot, kind: str, name: str, namespace: str = "") -> Job | None:
    """Return the row of a job, whatever its version."""
    return next(
        (
            job
            for job in snapshot.jobs
            if (job.ref.kind, job.ref.name) == (kind, name) and namespace in ("", job.ref.namespace)
        ),
        None,
    )
