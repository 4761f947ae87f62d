"""GPU telemetry of the visible nodes, polled no faster than exporters collect.

Requests have background priority. Readings are kept for a bounded time, so that trends, warnings
and idle hours can state since when they were observed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from k8s.client.rate_limiter import background_requests
from k8s.cluster.backoff import pause
from k8s.gpus.gpu_warnings import GpuWarning, slow_gpus, warnings_of
from k8s.gpus.readings import (
    LONGEST_GAP,
    GpuHistory,
    GpuKey,
    GpuReading,
    NodeReadings,
    RankReading,
    Telemetry,
    holders_of,
    readings_by_rank,
)
from k8s.kinds import JobRef
from k8s.snapshot import Job, NodeRow
from k8s.status import Status
from k8s.text.errors import KubeError
from tui.session.gpu_facts import in_order, with_gpu_warnings

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.reasons.cause import Cause
    from tui.runs.journal.ledger import IdleMeter

# Interval between two reads of a node: exporters collect no faster.
READ_S = 30.0
# Shortest interval between two rounds, however fast the user scrolls.
REST_S = 1.0
# Beyond this number, only the pods of the last round are kept.
MAX_PODS = 4096
# Nodes per round; of more, the first visible ones.
MAX_NODES = 256


class ReadsTelemetry(Protocol):
    """Reader of nodes' GPUs and jobs' pods; implemented in `k8s.gpus.reader`."""

    async def read(self, nodes: Iterable[NodeRow], jobs: Iterable[Job] = ()) -> Telemetry:
        """Return readings of nodes, and of the pods of jobs."""

    def retry_now(self) -> None:
        """Retry requests that were refused or found nothing."""


def open_telemetry(
    client: Client,
    jobs: Callable[[], Sequence[Job]],
    nodes: Callable[[], Sequence[NodeRow]],
    prometheus: str = "",
    meter: IdleMeter | None = None,
) -> TelemetryFeed:
    """Open the telemetry of a cluster; no request is sent before it is followed.

    Args:
        client: The cluster.
        jobs: Returns all known jobs.
        nodes: Returns all nodes.
        prometheus: Configured address of Prometheus; empty to find it automatically.
        meter: Counts idle GPU time; the feed closes it. Without one, nothing but GPUs is read.
    """
    from k8s.client.proxied import parse_address
    from k8s.gpus.reader import TelemetryReader

    address = parse_address(prometheus) if prometheus else None
    reader = TelemetryReader(client, prometheus=address, has_usage=meter is not None)
    return TelemetryFeed(reader, jobs, nodes, meter=meter)


class TelemetryFeed:
    """Telemetry of one cluster for the visible view."""

    def __init__(
        self,
        reader: ReadsTelemetry,
        jobs: Callable[[], Sequence[Job]] = tuple,
        nodes: Callable[[], Sequence[NodeRow]] = tuple,
        *,
        read_s: float = READ_S,
        rest_s: float = REST_S,
        meter: IdleMeter | None = None,
    ) -> None:
        """Prepare; no request is sent before `follow`.

        Args:
            reader: Sends the requests.
            jobs: Returns all known jobs, to attribute pods.
            nodes: Returns all nodes.
            read_s: Interval between two reads of a node.
            rest_s: Shortest interval between two rounds.
            meter: Counts idle GPU time.
        """
        self.telemetry = Telemetry()
        """Newest readings of the nodes that were recently visible."""
        self.history = GpuHistory()
        self._reader, self._jobs, self._nodes = reader, jobs, nodes
        self._read_s, self._idle_s = read_s, rest_s
        self._meter = meter
        self._wanted: tuple[str | JobRef, ...] = ()
        self._requested_at_s: dict[str | JobRef, float] = {}
        self._wake_event = asyncio.Event()

    def aim(self, nodes: Iterable[str], jobs: Iterable[JobRef] = ()) -> None:
        """Read these nodes and the pods of these jobs from now on; new ones soon."""
        self._wanted = (*tuple(dict.fromkeys(nodes))[:MAX_NODES], *dict.fromkeys(jobs))
        if any(each not in self._requested_at_s for each in self._wanted):
            self._wake_event.set()

    def retry_now(self) -> None:
        """Read everything again, including refused requests."""
        self._reader.retry_now()
        self._requested_at_s.clear()
        self._wake_event.set()

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Poll until cancelled, and call `on_change` after each round."""
        while True:
            now_s = asyncio.get_running_loop().time()
            if due := [each for each in self._wanted if self._is_due(each, now_s)]:
                await self._read(due)
                on_change()
            await asyncio.sleep(self._idle_s)
            await pause(self._wake_event, self._wait_s())

    async def read_once(self, nodes: Iterable[str], jobs: Iterable[JobRef] = ()) -> Telemetry:
        """Read some nodes now and return their readings, for one-shot commands."""
        await self._read((*tuple(nodes)[:MAX_NODES], *jobs))
        return self.telemetry

    def warnings(self, gpu: GpuReading) -> tuple[GpuWarning, ...]:
        """Return the warnings about a GPU, the worst first."""
        return warnings_of(gpu, self.history.of(gpu.key), holders_of(gpu, self._nodes()))

    def ranks(self, job: Job) -> tuple[RankReading, ...]:
        """Return the readings of each rank of a job."""
        return readings_by_rank(job, self.telemetry, self._nodes())

    def job_warnings(self, ranks: Sequence[RankReading]) -> dict[GpuKey, tuple[GpuWarning, ...]]:
        """Return the warnings about the GPUs of a job; GPUs without warnings are left out."""
        slow = slow_gpus(ranks, self.history)
        found = {
            each.gpu.key: (*self.warnings(each.gpu), *(one for one in slow if one.gpu == each.gpu.key))
            for each in ranks
            if each.gpu is not None
        }
        return {key: warnings for key, warnings in found.items() if warnings}

    async def read_gpus(self, job: Job) -> None:
        """Read the GPUs of a running job; does nothing for other jobs."""
        if job.status is Status.RUNNING and job.gpus_allocated:
            await self.read_once(job.nodes)

    def with_warnings(self, job: Job, answer: Cause) -> Cause:
        """Add the warnings of a running job's GPUs, as last read, to an answer."""
        if job.status is not Status.RUNNING or not job.gpus_allocated:
            return answer
        ranks = self.ranks(job)
        return with_gpu_warnings(answer, in_order(ranks, self.job_warnings(ranks)))

    def _is_due(self, each: str | JobRef, now_s: float) -> bool:
        requested_at_s = self._requested_at_s.get(each)
        return requested_at_s is None or now_s - requested_at_s >= self._read_s

    def _wait_s(self) -> float:
        # Seconds until the next read of any wanted node or job.
        now_s = asyncio.get_running_loop().time()
        ages_s = [now_s - self._requested_at_s.get(each, -math.inf) for each in self._wanted]
        return max(0.0, self._read_s - max(ages_s, default=0.0))

    async def _read(self, wanted: Sequence[str | JobRef]) -> None:
        # An unreachable cluster is reported by its mirror; here the readings just age.
        now_s = asyncio.get_running_loop().time()
        self._requested_at_s |= dict.fromkeys(wanted, now_s)
        names = set(wanted)
        nodes = [node for node in self._nodes() if node.name in names]
        jobs = [job for job in self._jobs() if job.ref in names]
        with suppress(KubeError), background_requests():
            gpus = self._store(await self._reader.read(nodes, jobs))
            if self._meter is not None and gpus:
                await asyncio.to_thread(self._meter.add, gpus, self._jobs())

    async def close(self) -> None:
        """Write the idle GPU time that is counted but not written."""
        if self._meter is not None:
            await asyncio.to_thread(self._meter.close)

    def _store(self, read: Telemetry) -> list[GpuReading]:
        # Older readings stay until they are stale.
        recent = {name: each for name, each in self.telemetry.nodes.items() if self._is_fresh(each)}
        pods = self.telemetry.pods if len(self.telemetry.pods) < MAX_PODS else {}
        self.telemetry = replace(read, nodes={**recent, **read.nodes}, pods={**pods, **read.pods})
        rows = self._nodes()
        # Older readings of a node that fails now were counted before, for their holders of that time.
        answered = [node for node in read.nodes.values() if node.missing is None]
        gpus = [replace(gpu, holders=holders_of(gpu, rows)) for node in answered for gpu in node.gpus]
        self.history.add(gpus)
        if len(self._requested_at_s) > 2 * MAX_NODES:
            wanted = set(self._wanted)
            self._requested_at_s = {
                each: at_s for each, at_s in self._requested_at_s.items() if each in wanted
            }
        return gpus

    def _is_fresh(self, node: NodeReadings) -> bool:
        # A failed node has no time; its reason holds until the next read.
        if node.read_at is not None:
            return node.read_at >= datetime.now(UTC) - LONGEST_GAP
        now_s = asyncio.get_running_loop().time()
        return now_s - self._requested_at_s.get(node.node, -math.inf) < 2 * self._read_s
