"""The console's mirror on a real cluster, and waiting for what it shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.snapshot import ClusterSnapshot, Job
from tests.scripted.feed import Feed

LONGEST_S = 90.0  # a loaded machine may take its time to start pods


@asynccontextmanager
async def feed_of(client: Client, namespace: str = "") -> AsyncIterator[Feed]:
    """Run the console's mirror of what `client` may see."""
    async with Feed(ClusterMirror(client, namespace)).running() as feed:
        yield feed


def job_called(snapshot: ClusterSnapshot, kind: str, name: str, namespace: str = "") -> Job | None:
    """Return the row of a job, whatever its version."""
    for job in snapshot.jobs:
        if (job.ref.kind, job.ref.name) == (kind, name) and namespace in ("", job.ref.namespace):
            return job
    return None
