"""Scripted GPU telemetry, with readings and samples built in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from k8s.gpus.readings import (
    GpuHistory,
    GpuReading,
    NodeReadings,
    NoReadings,
    NoReadingsCause,
    PodContainer,
    PodReadings,
    Source,
    Telemetry,
)
from k8s.snapshot import Job, NodeRow
from tui.session.telemetry_feed import TelemetryFeed

GIB = 1024**3
NO_EXPORTER = NoReadings(NoReadingsCause.NO_EXPORTER, "Nothing on this node tells what its GPUs do.")


def reading(
    node: str, index: int, utilisation: float | None = 97.0, pod: str = "", **more: Any
) -> GpuReading:
    at = datetime.now(UTC) - timedelta(seconds=more.pop("ago_s", 0))
    told: dict[str, Any] = {
        "uuid": f"GPU-{node}-{index}",
        "model": "NVIDIA A100-SXM4-80GB",
        "memory_used": 61 * GIB,
        "memory_total": 80 * GIB,
        "power_w": 402.0,
        "power_limit_w": 400.0,
        "temperature_c": 64.0,
        "sm_clock_mhz": 1410.0,
        "throttles": frozenset(),
        "xid": 0,
        "ecc_errors": 0,
        "holders": (PodContainer("default", pod, "pytorch"),) if pod else (),
    }
    return GpuReading(node, index, Source.DCGM, at, utilisation=utilisation, **{**told, **more})


def telemetry_of(
    *gpus: GpuReading, pods: Sequence[PodReadings] = (), missing: Mapping[str, NoReadings] | None = None
) -> Telemetry:
    nodes = {
        name: NodeReadings(name, tuple(gpu for gpu in gpus if gpu.node == name))
        for name in dict.fromkeys(gpu.node for gpu in gpus)
    }
    nodes |= {name: NodeReadings(name, missing=why) for name, why in (missing or {}).items()}
    return Telemetry(nodes, {(each.namespace, each.pod): each for each in pods})


class ScriptedReader:
    """Tells what the test says of the nodes and jobs that are asked of, and writes down which those were."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.asked: list[tuple[str, ...]] = []  # the nodes of each round
        self.jobs: list[tuple[str, ...]] = []  # the jobs of each round
        self.retries = 0

    async def read(self, nodes: Iterable[NodeRow], jobs: Iterable[Job] = ()) -> Telemetry:
        names = tuple(node.name for node in nodes)
        pods = {(job.ref.namespace, each.pod): job for job in jobs for each in job.instances}
        self.asked.append(names)
        self.jobs.append(tuple(dict.fromkeys(job.ref.name for job in pods.values())))
        found = self.telemetry
        return replace(
            found,
            nodes={name: each for name, each in found.nodes.items() if name in names},
            pods={key: each for key, each in found.pods.items() if key in pods},
        )

    def retry_now(self) -> None:
        self.retries += 1


def feed_of(reader: ScriptedReader, **more: Any) -> TelemetryFeed:
    """Return a feed that reads it often."""
    return TelemetryFeed(reader, **{"read_s": 0.02, "rest_s": 0.01, **more})


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)  # start of the tests' readings


def gpu(
    index: int = 0, *, at_s: float = 0.0, node: str = "a100-1", pod: str = "", **fields: Any
) -> GpuReading:
    usual: dict[str, Any] = {"utilisation": 90.0, "model": "NVIDIA A100-SXM4-80GB"}
    holders = (PodContainer("default", pod, "pytorch"),) if pod else ()
    return GpuReading(
        node=node,
        index=index,
        source=Source.DCGM,
        read_at=NOON + timedelta(seconds=at_s),
        **{"holders": holders, **usual, **fields},
    )


def observed(
    reading: GpuReading, *, for_s: float, each_s: float = 30.0, history: GpuHistory | None = None
) -> GpuHistory:
    """Return a history in which a GPU was read as it is now, each `each_s` for `for_s` seconds."""
    history = history or GpuHistory()
    for number in range(int(for_s // each_s) + 1):
        history.add([replace(reading, read_at=reading.read_at + timedelta(seconds=number * each_s))])
    return history
