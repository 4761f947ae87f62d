"""What was read of GPUs, nodes and pods, as frozen values; a number that is not known is None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Source(StrEnum):
    """Who told a number."""

    DCGM = "DCGM"
    """A DCGM exporter, through the API server's proxy to its pod."""
    PROMETHEUS = "Prometheus"
    """A Prometheus, through the API server's proxy to its service."""
    NVML = "NVML"
    """The driver of the sandbox's own machine."""
    METRICS = "metrics.k8s.io"
    """The metrics server, as `kubectl top` reads it."""


class Throttle(StrEnum):
    """Why a GPU runs slower than it could. Source: NVML, `nvmlClocksEventReasons`."""

    POWER_CAP = "power cap"
    """At its power limit, as a GPU under full load may be."""
    HARDWARE = "hardware slowdown"
    """Too hot, or an external alarm: the clocks are halved or worse."""
    THERMAL = "thermal"
    """Too hot, slowed down by the driver."""
    HARDWARE_THERMAL = "hardware thermal"
    """Too hot, slowed down by the GPU itself."""
    POWER_BRAKE = "power brake"
    """The server's power supply asks for less."""


class PodContainer(NamedTuple):
    """A container to which a GPU was given, as the source says."""

    namespace: str
    pod: str
    container: str = ""
    """Empty where the source does not say."""


@dataclass(frozen=True, slots=True, order=True)
class GpuKey:
    """Which GPU, or which MIG instance of one, from one reading to the next."""

    node: str
    index: int
    mig_id: str = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, or one MIG instance, at one moment; all its numbers come from one source."""

    node: str
    index: int
    """Number on its node, as nvidia-smi counts."""
    source: Source
    read_at: datetime
    """When the source had it, by this machine's clock; an exporter itself collects each 30 s or so."""
    uuid: str = ""
    model: str = ""
    """As `NVIDIA H100 80GB HBM3`."""
    mig_id: str = ""
    """Number of the MIG instance; empty for a whole GPU."""
    mig_profile: str = ""
    """Its size, as `1g.10gb`."""
    utilisation: float | None = None
    """Percent of time in which it worked at all; of a MIG instance, percent of its engines."""
    tensor_active: float | None = None
    """Percent of cycles in which tensor cores worked; exporters tell it where they may profile."""
    memory_used: int | None = None
    """Bytes."""
    memory_total: int | None = None
    """Bytes."""
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttles: frozenset[Throttle] | None = None
    """What slows it down now; empty for nothing, None where the source does not say."""
    xid: int | None = None
    """Number of the last XID error, 0 for none since the driver was loaded."""
    ecc_errors: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    row_remap_failed: bool | None = None
    """A row of its memory is bad and could not be replaced."""
    holders: tuple[PodContainer, ...] = ()
    """To whom it is given, several when shared in time; empty where the source does not say."""

    @property
    def key(self) -> GpuKey:
        """Return what stays the same from one reading to the next."""
        return GpuKey(self.node, self.index, self.mig_id)

    @property
    def name(self) -> str:
        """Return what it is called on its node: `3`, or `3:1` for MIG instance 1 of GPU 3."""
        return f"{self.index}:{self.mig_id}" if self.mig_id else str(self.index)

    @property
    def memory_percent(self) -> float | None:
        """Return how much of its memory is used."""
        if self.memory_used is None or not self.memory_total:
            return None
        return min(100.0, 100 * self.memory_used / self.memory_total)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node or a pod uses of CPU and memory."""

    cpu_cores: float | None
    memory_bytes: int | None
    source: Source
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a node or a pod moves over the network, and to and from its disks; bytes a second."""

    received_bps: float | None
    sent_bps: float | None
    read_bps: float | None
    written_bps: float | None
    source: Source
    read_at: datetime


class NoReadingsCause(StrEnum):
    """Why a node has no readings."""

    FORBIDDEN = "forbidden"
    """This user may not ask."""
    NO_EXPORTER = "no exporter"
    """Nothing on the node tells."""
    UNREACHABLE = "unreachable"
    """It is there and does not answer, or what it answers makes no sense."""


@dataclass(frozen=True, slots=True)
class NoReadings:
    """Why a node has no readings, for a program and in words."""

    cause: NoReadingsCause
    words: str
    """One line: `You may not get pods/proxy in namespace gpu-operator.`"""


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """The GPUs of one node at one moment, or why there are none."""

    node: str
    gpus: tuple[GpuReading, ...] = ()
    """By index, MIG instances after their GPU. The last good ones while `missing` says what failed since."""
    missing: NoReadings | None = None
    """Why nothing, or nothing newer, is known; None while all is well."""
    usage: Usage | None = None
    traffic: Traffic | None = None

    @property
    def source(self) -> Source | None:
        """Return who told of the GPUs; None when nobody did."""
        return self.gpus[0].source if self.gpus else None

    @property
    def read_at(self) -> datetime | None:
        """Return when the oldest of its GPUs was read."""
        return min((gpu.read_at for gpu in self.gpus), default=None)

    @property
    def utilisation(self) -> float | None:
        """Return the mean of its GPUs, as far as each is known."""
        known = [gpu.utilisation for gpu in self.gpus if gpu.utilisation is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class PodReadings:
    """What one pod uses beside its GPUs."""

    namespace: str
    pod: str
    usage: Usage | None = None
    traffic: Traffic | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """All that was read of the nodes in sight; compared by identity, as `ClusterSnapshot` is."""

    nodes: Mapping[str, NodeReadings] = field(default_factory=dict)
    """Name to readings; a node that was not asked of is not in it."""
    pods: Mapping[tuple[str, str], PodReadings] = field(default_factory=dict)
    """Namespace and name to what the pod uses."""
    notices: tuple[str, ...] = ()
    """What this user may not read, one line each, said once for the whole cluster."""

    @property
    def gpus(self) -> Iterator[GpuReading]:
        """Yield the GPUs of all nodes."""
        for node in self.nodes.values():
            yield from node.gpus
