"""Bounded history of GPU readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from k8s.telemetry.readings import GpuKey, GpuReading, PodContainer, Throttle

# Four hours at one sample per 30 s.
MAX_SAMPLES = 480
# Beyond this number, the least recently read GPU is dropped.
MAX_GPUS = 2048
# A longer gap between two samples means that the node was not polled.
LONGEST_GAP = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class GpuSample:
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
