"""Readings of GPUs, nodes and pods; an unknown number is None. Their ranks, and the history of GPUs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from k8s.snapshot import Instance, Job, NodeRow


class Source(StrEnum):
    """The origin of a reading."""

    # Through the API server's proxy to the exporter's pod.
    DCGM = "DCGM"
    # Through the API server's proxy to the service.
    PROMETHEUS = "Prometheus"
    # Only in the sandbox: the driver of its machine.
    NVML = "NVML"
    # The metrics server, as in `kubectl top`.
    METRICS = "metrics.k8s.io"


class Throttle(StrEnum):
    """A reason for a GPU to run below its full clock. Source: NVML, `nvmlClocksEventReasons`."""

    # Normal for a GPU under full load.
    POWER_CAP = "power cap"
    # Too hot, or an external alarm: the clocks are halved or worse.
    HARDWARE = "hardware slowdown"
    THERMAL = "thermal"
    HARDWARE_THERMAL = "hardware thermal"
    # Requested by the server's power supply.
    POWER_BRAKE = "power brake"


class PodContainer(NamedTuple):
    """A container that holds a GPU, according to the source."""

    namespace: str
    pod: str
    container: str = ""
    """Empty if the source does not name it."""


class GpuKey(msgspec.Struct, frozen=True, order=True):
    """Identity of a GPU or MIG instance across readings."""

    node: str
    index: int
    mig_id: str = ""


class GpuReading(msgspec.Struct, frozen=True):
    """Reading of one GPU or MIG instance; all numbers come from one source."""

    node: str
    index: int
    """Index on the node, as in nvidia-smi."""
    source: Source
    read_at: datetime
    """Time by this machine's clock; an exporter itself collects about every 30 s."""
    uuid: str = ""
    model: str = ""
    mig_id: str = ""
    """MIG instance ID; empty for a full GPU."""
    mig_profile: str = ""
    utilisation: float | None = None
    """Percent of time with any work; for a MIG instance, percent of its engines."""
    tensor_active: float | None = None
    """Percent of cycles with active tensor cores; only from exporters with profiling permission."""
    memory_used: int | None = None
    memory_total: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttles: frozenset[Throttle] | None = None
    """Current reasons; empty if it runs at full speed, None if unknown."""
    xid: int | None = None
    """Last XID error; 0 if there was none since the driver was loaded."""
    ecc_errors: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    row_remap_failed: bool | None = None
    holders: tuple[PodContainer, ...] = ()
    """Several if time-shared; empty if the source does not name them."""

    @property
    def key(self) -> GpuKey:
        """The identity of the GPU across readings."""
        return GpuKey(self.node, self.index, self.mig_id)

    @property
    def name(self) -> str:
        """The name on the node: `3`, or `3:1` for MIG instance 1 of GPU 3."""
        return f"{self.index}:{self.mig_id}" if self.mig_id else str(self.index)

    @property
    def memory_percent(self) -> float | None:
        """The share of used memory in percent; None if unknown."""
        if self.memory_used is None or not self.memory_total:
            return None
        return min(100.0, 100 * self.memory_used / self.memory_total)


class Usage(msgspec.Struct, frozen=True):
    """CPU and memory usage of a node or pod."""

    cpu_cores: float | None
    memory_bytes: int | None
    source: Source
    read_at: datetime


class Traffic(msgspec.Struct, frozen=True):
    """Network and disk throughput of a node or pod, in bytes per second."""

    received_bps: float | None
    sent_bps: float | None
    read_bps: float | None
    written_bps: float | None
    source: Source
    read_at: datetime


class NoReadingsCause(StrEnum):
    """Categories of missing readings."""

    FORBIDDEN = "forbidden"
    NO_EXPORTER = "no exporter"
    # The source exists but does not answer, or its answer is invalid.
    UNREACHABLE = "unreachable"


class NoReadings(msgspec.Struct, frozen=True):
    """The reason that a node has no readings."""

    cause: NoReadingsCause
    words: str
    """One line: `You may not get pods/proxy in namespace gpu-operator.`"""


class NodeReadings(msgspec.Struct, frozen=True):
    """Readings of one node, or the reason that there are none."""

    node: str
    gpus: tuple[GpuReading, ...] = ()
    """By index, MIG instances after their GPU. The last good readings while `missing` is set."""
    missing: NoReadings | None = None
    """None if the readings are current."""
    usage: Usage | None = None
    traffic: Traffic | None = None

    @property
    def source(self) -> Source | None:
        """The origin of the GPU readings; None without readings."""
        return self.gpus[0].source if self.gpus else None

    @property
    def read_at(self) -> datetime | None:
        """The time of the oldest GPU reading; None without readings."""
        return min((gpu.read_at for gpu in self.gpus), default=None)

    @property
    def utilisation(self) -> float | None:
        """The mean of the known utilisations in percent; None if none is known."""
        known = [gpu.utilisation for gpu in self.gpus if gpu.utilisation is not None]
        return sum(known) / len(known) if known else None


class PodReadings(msgspec.Struct, frozen=True):
    """Resource usage of one pod, except GPUs."""

    namespace: str
    pod: str
    usage: Usage | None = None
    traffic: Traffic | None = None


class Telemetry(msgspec.Struct, frozen=True, eq=False):
    """Readings of all visible nodes; compared by identity, like `ClusterSnapshot`."""

    nodes: Mapping[str, NodeReadings] = msgspec.field(default_factory=dict)
    """By node name; nodes that were not polled are missing."""
    pods: Mapping[tuple[str, str], PodReadings] = msgspec.field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """Missing permissions, one line each."""

    @property
    def gpus(self) -> Iterator[GpuReading]:
        """Yield the GPUs of all nodes."""
        for node in self.nodes.values():
            yield from node.gpus


class RankReading(msgspec.Struct, frozen=True):
    """The GPU of one rank of a job, or of an instance with unknown ranks."""

    instance: Instance
    rank: int | None
    """None if it is unknown which rank uses the GPU."""
    gpu: GpuReading | None
    """None if there is no reading."""
    is_assumed: bool = False
    """The GPU was attributed by the scheduler's count, not by the source."""


def holders_of(gpu: GpuReading, nodes: Sequence[NodeRow]) -> tuple[PodContainer, ...]:
    """Return the holders of a GPU: from the source, else from allocations if they are unambiguous."""
    if gpu.holders:
        return gpu.holders
    row = next((node for node in nodes if node.name == gpu.node), None)
    if row is None or gpu.mig_id:
        return ()
    named = [each for each in row.holders if gpu.index in each.devices]
    if not named and len(row.holders) == 1 and row.holders[0].gpus == row.gpus_total:
        named = list(row.holders)
    return tuple(PodContainer(each.namespace, each.pod) for each in named)


def readings_by_rank(
    job: Job, telemetry: Telemetry, nodes: Sequence[NodeRow] = ()
) -> tuple[RankReading, ...]:
    """Return one entry per rank of each instance that has a pod and GPUs, in the order of instances.

    A pod's GPUs are assigned to its ranks by index, as torchrun and mpirun do; if the numbers
    differ, the rank is None. `nodes` attributes GPUs for which the source names no holder.
    """
    return tuple(line for instance in job.instances for line in _of_instance(job, instance, telemetry, nodes))


def _of_instance(
    job: Job, instance: Instance, telemetry: Telemetry, nodes: Sequence[NodeRow]
) -> Iterator[RankReading]:
    if not instance.pod or not (instance.gpus or instance.ranks):
        return
    read = telemetry.nodes.get(instance.node, NodeReadings(instance.node))
    pod = (job.ref.namespace, instance.pod)
    gpus = [gpu for gpu in read.gpus if any(each[:2] == pod for each in holders_of(gpu, nodes))]
    if not gpus:
        for rank in instance.ranks or (None,):
            yield RankReading(instance, rank, None)
        return
    ranks: Sequence[int | None] = instance.ranks if len(instance.ranks) == len(gpus) else [None] * len(gpus)
    for rank, gpu in zip(ranks, gpus, strict=True):
        yield RankReading(instance, rank, gpu, is_assumed=not gpu.holders)


# Four hours at one sample per 30 s.
MAX_SAMPLES = 480
# Beyond this number, the least recently read GPU is dropped.
MAX_GPUS = 2048
# A longer gap between two samples means that the node was not polled.
LONGEST_GAP = timedelta(minutes=5)


class GpuSample(msgspec.Struct, frozen=True):
    """The part of a reading that the history stores."""

    at: datetime
    utilisation: float | None
    memory_percent: float | None
    power_w: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    xid: int | None
    ecc_errors: int | None
    throttles: frozenset[Throttle] | None
    holders: tuple[PodContainer, ...]


class GpuHistory:
    """Samples of every GPU that was read, the oldest first."""

    def __init__(self, most_samples: int = MAX_SAMPLES, most_gpus: int = MAX_GPUS) -> None:
        self._most_samples, self._most_gpus = most_samples, most_gpus
        self._rings: dict[GpuKey, deque[GpuSample]] = {}

    def add(self, readings: Iterable[GpuReading]) -> None:
        """Record readings; one that is not newer than the last sample of its GPU is ignored."""
        for reading in readings:
            ring = self._rings.pop(reading.key, None)
            if ring is None:
                ring = deque(maxlen=self._most_samples)
            self._rings[reading.key] = ring  # the last one that was read stands last
            if not ring or reading.read_at > ring[-1].at:
                ring.append(_sample(reading, ring[-1] if ring else None))
        while len(self._rings) > self._most_gpus:
            del self._rings[next(iter(self._rings))]

    def of(self, key: GpuKey) -> tuple[GpuSample, ...]:
        """Return the samples of a GPU, the oldest first; empty if it was never read."""
        return tuple(self._rings.get(key, ()))

    @property
    def keys(self) -> tuple[GpuKey, ...]:
        """The GPUs that have samples."""
        return tuple(self._rings)


def _sample(reading: GpuReading, before: GpuSample | None) -> GpuSample:
    holders = reading.holders
    if before is not None and before.holders == holders:
        holders = before.holders  # one tuple for all samples of a long job
    return GpuSample(
        at=reading.read_at,
        utilisation=reading.utilisation,
        memory_percent=reading.memory_percent,
        power_w=reading.power_w,
        temperature_c=reading.temperature_c,
        sm_clock_mhz=reading.sm_clock_mhz,
        xid=reading.xid,
        ecc_errors=reading.ecc_errors,
        throttles=reading.throttles,
        holders=holders,
    )


def since_gap(samples: Sequence[GpuSample]) -> Sequence[GpuSample]:
    """Return the newest samples without a gap longer than `LONGEST_GAP`."""
    for place in range(len(samples) - 1, 0, -1):
        if samples[place].at - samples[place - 1].at > LONGEST_GAP:
            return samples[place:]
    return samples


def recent(samples: Sequence[GpuSample], window: timedelta) -> Sequence[GpuSample]:
    """Return the samples of the last `window`, counted from the newest one."""
    return [sample for sample in samples if samples[-1].at - sample.at <= window]
