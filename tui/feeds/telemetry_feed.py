"""Reads what GPUs do while a view shows it: of the nodes in sight, no faster than exporters collect.

Requests queue behind whatever the user waits for. What was read is kept for a while, bounded, so that
trends, warnings and idle hours say since when they were observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from k8s.client.rate_limiter import background_requests
from k8s.errors import KubeError
from k8s.kinds import JobRef
from k8s.snapshot import Job, NodeRow
from k8s.status import Status
from k8s.telemetry.gpu_warnings import GpuWarning, slow_gpus, warnings_of
from k8s.telemetry.history import LONGEST_GAP, GpuHistory
from k8s.telemetry.job_ranks import RankReading, holders_of, readings_by_rank
from k8s.telemetry.readings import GpuKey, GpuReading, NodeReadings, Telemetry
from k8s.watch.backoff import pause
from tui.jobs.gpu_facts import in_order, with_gpu_warnings
from tui.jobs.idle_report import IdleLedger

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.diagnosis.answer import Answer

READ_S = 30.0
"""Between two readings of a node: exporters collect no faster."""
REST_S = 1.0
"""Shortest time between two rounds, however fast one scrolls."""
MOST_PODS = 4096
"""Pods whose usage is kept; beyond it only those that were read last."""
MOST_NODES = 256
"""Nodes that are read at most in one round; of more, the first ones in sight."""


class ReadsTelemetry(Protocol):
    """Reads nodes' GPUs and jobs' pods, by whichever way a cluster offers: `k8s.telemetry.reader`."""

    async def read(self, nodes: Iterable[NodeRow], jobs: Iterable[Job] = ()) -> Telemetry:
        """Return what is known of some nodes, and of the pods of some jobs."""

    def retry_now(self) -> None:
        """Ask again for what was refused or not found."""


def open_telemetry(
    client: Client,
    jobs: Callable[[], Sequence[Job]],
    nodes: Callable[[], Sequence[NodeRow]],
    prometheus: str = "",
) -> TelemetryFeed:
    """Return the telemetry of a cluster; nothing is asked before it is followed.

    Args:
        client: The cluster.
        jobs: Returns all jobs that are known.
        nodes: Returns all nodes.
        prometheus: Where Prometheus is, if the user said so.
    """
    from k8s.telemetry.reader import TelemetryReader
    from k8s.telemetry.sources.prometheus_address import parse_address

    address = parse_address(prometheus) if prometheus else None
    return TelemetryFeed(TelemetryReader(client, prometheus=address), jobs, nodes)


class TelemetryFeed:
    """What one cluster's GPUs do, read for whichever view is shown."""

    def __init__(
        self,
        reader: ReadsTelemetry,
        jobs: Callable[[], Sequence[Job]] = tuple,
        nodes: Callable[[], Sequence[NodeRow]] = tuple,
        *,
        read_s: float = READ_S,
        rest_s: float = REST_S,
    ) -> None:
        """Prepare to read; nothing is asked before `follow`.

        Args:
            reader: Asks the cluster.
            jobs: Returns all jobs that are known: whose each pod is.
            nodes: Returns all nodes.
            read_s: Between two readings of a node.
            rest_s: Shortest time between two rounds.
        """
        self.telemetry = Telemetry()
        """What was read last, of each node that was looked at lately."""
        self.history = GpuHistory()
        """What was read before."""
        self.ledger = IdleLedger()
        """Idle GPU-hours by job."""
        self._reader, self._jobs, self._nodes = reader, jobs, nodes
        self._read_s, self._rest_s = read_s, rest_s
        self._wanted: tuple[str | JobRef, ...] = ()
        self._asked_at_s: dict[str | JobRef, float] = {}
        self._poked = asyncio.Event()

    def aim(self, nodes: Iterable[str], jobs: Iterable[JobRef] = ()) -> None:
        """Read these nodes from now on, and what the pods of these jobs use; new ones soon."""
        self._wanted = (*tuple(dict.fromkeys(nodes))[:MOST_NODES], *dict.fromkeys(jobs))
        if any(each not in self._asked_at_s for each in self._wanted):
            self._poked.set()

    def retry_now(self) -> None:
        """Read everything anew, also what was refused."""
        self._reader.retry_now()
        self._asked_at_s.clear()
        self._poked.set()

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Read for ever, and call `on_change` after each round, until cancelled."""
        while True:
            now_s = asyncio.get_running_loop().time()
            if due := [each for each in self._wanted if self._is_due(each, now_s)]:
                await self._read(due)
                on_change()
            await asyncio.sleep(self._rest_s)
            await pause(self._poked, self._wait_s())

    async def read_once(self, nodes: Iterable[str], jobs: Iterable[JobRef] = ()) -> Telemetry:
        """Read some nodes now, for a command that ends, and return what is known of them."""
        await self._read((*tuple(nodes)[:MOST_NODES], *jobs))
        return self.telemetry

    def warnings(self, gpu: GpuReading) -> tuple[GpuWarning, ...]:
        """Return what is wrong with a GPU, the worst first."""
        return warnings_of(gpu, self.history.of(gpu.key), holders_of(gpu, self._nodes()))

    def ranks(self, job: Job) -> tuple[RankReading, ...]:
        """Return what each rank of a job does, as far as that was read."""
        return readings_by_rank(job, self.telemetry, self._nodes())

    def job_warnings(self, ranks: Sequence[RankReading]) -> dict[GpuKey, tuple[GpuWarning, ...]]:
        """Return what is wrong with the GPUs of one job's ranks; only those with something are in it."""
        slow = slow_gpus(ranks, self.history)
        found = {
            each.gpu.key: (*self.warnings(each.gpu), *(one for one in slow if one.gpu == each.gpu.key))
            for each in ranks
            if each.gpu is not None
        }
        return {key: warnings for key, warnings in found.items() if warnings}

    async def explain(self, job: Job, answer: Answer) -> Answer:
        """Read the GPUs of a running job, and return an answer that also says what is wrong with them."""
        if job.status is not Status.RUNNING or not job.gpus_allocated:
            return answer
        await self.read_once(job.nodes)
        ranks = self.ranks(job)
        return with_gpu_warnings(answer, in_order(ranks, self.job_warnings(ranks)))

    def _is_due(self, each: str | JobRef, now_s: float) -> bool:
        asked_at_s = self._asked_at_s.get(each)
        return asked_at_s is None or now_s - asked_at_s >= self._read_s

    def _wait_s(self) -> float:
        """Return how long until the first of what is wanted is due again."""
        now_s = asyncio.get_running_loop().time()
        ages_s = [now_s - self._asked_at_s.get(each, 0.0) for each in self._wanted]
        return max(0.0, self._read_s - max(ages_s, default=0.0))

    async def _read(self, wanted: Sequence[str | JobRef]) -> None:
        """Ask for nodes and jobs; that the cluster is away is said elsewhere, and the numbers grow old."""
        now_s = asyncio.get_running_loop().time()
        self._asked_at_s |= dict.fromkeys(wanted, now_s)
        names = set(wanted)
        nodes = [node for node in self._nodes() if node.name in names]
        jobs = [job for job in self._jobs() if job.ref in names]
        with suppress(KubeError), background_requests():
            self._take(await self._reader.read(nodes, jobs))

    def _take(self, read: Telemetry) -> None:
        """Keep what was read, and of what was read before what is not too old."""
        kept = {name: each for name, each in self.telemetry.nodes.items() if self._is_fresh(each)}
        pods = self.telemetry.pods if len(self.telemetry.pods) < MOST_PODS else {}
        self.telemetry = replace(read, nodes={**kept, **read.nodes}, pods={**pods, **read.pods})
        rows = self._nodes()
        # What a node that fails now told before is counted already, for whoever held its GPUs then.
        told = [node for node in read.nodes.values() if node.missing is None]
        gpus = [replace(gpu, holders=holders_of(gpu, rows)) for node in told for gpu in node.gpus]
        self.history.add(gpus)
        self.ledger.add(gpus, self._jobs())
        if len(self._asked_at_s) > 2 * MOST_NODES:
            wanted = set(self._wanted)
            self._asked_at_s = {each: at_s for each, at_s in self._asked_at_s.items() if each in wanted}

    def _is_fresh(self, node: NodeReadings) -> bool:
        """Tell whether numbers can still be shown; why there are none holds until it is asked again."""
        if node.read_at is not None:
            return node.read_at >= datetime.now(UTC) - LONGEST_GAP
        now_s = asyncio.get_running_loop().time()
        return now_s - self._asked_at_s.get(node.node, 0.0) < 2 * self._read_s
