"""GPU readings and samples built in one line each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from k8s.telemetry.readings import GpuHistory, GpuReading, NodeReadings, PodContainer, Source, Telemetry

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
"""Start of the tests' readings."""


def gpu(
    index: int = 0, *, at_s: float = 0.0, node: str = "a100-1", pod: str = "", **fields: Any
) -> GpuReading:
    """Return a reading of a busy GPU; `pod` holds it in namespace default."""
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


def telemetry(*readings: GpuReading) -> Telemetry:
    """Return telemetry of all nodes that have these readings."""
    names = {reading.node for reading in readings}
    nodes = {
        name: NodeReadings(name, tuple(each for each in readings if each.node == name)) for name in names
    }
    return Telemetry(nodes)
