"""GPU warnings, derived from the newest reading and the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from statistics import fmean, median

import msgspec

from k8s.gpus.readings import (
    GpuHistory,
    GpuKey,
    GpuReading,
    GpuSample,
    PodContainer,
    RankReading,
    Throttle,
    holders_of,
    recent,
    since_gap,
)
from k8s.snapshot import Job, NodeRow

# Below this utilisation, a GPU counts as idle.
IDLE_PERCENT = 5.0
# Observed idle time of an allocated GPU before it is reported.
IDLE_FOR = timedelta(minutes=30)
SLOW_WINDOW = timedelta(minutes=5)
SLOW_SAMPLES = 3
# A GPU whose utilisation is below this share of its peers' median is slow.
SLOW_SHARE = 0.5
# A busy GPU whose clock is below this share of its peers' median is slow.
SLOW_CLOCK_SHARE = 0.85
# Below this median the peers have too little work for a comparison.
BUSY_PERCENT = 40.0
# GPUs of a job, including the slow one, that make a median meaningful.
FEWEST_PEERS = 3

HEAT_THROTTLES = frozenset({Throttle.THERMAL, Throttle.HARDWARE_THERMAL})


class WarningKind(StrEnum):
    """Categories of GPU warnings."""

    XID = "xid"
    ECC = "ecc"
    THERMAL = "thermal"
    POWER = "power"
    SLOW = "slow"
    IDLE = "idle"


class GpuWarning(msgspec.Struct, frozen=True):
    """A warning about one GPU."""

    kind: WarningKind
    gpu: GpuKey
    text: str
    """One sentence without the GPU's name: `Allocated to default/bert-worker-0, but idle for 42 min.`"""
    holders: tuple[PodContainer, ...] = ()
    """Pods that hold the GPU, as far as known."""
    is_serious: bool = True
    """False for conditions that may be no fault of the GPU, such as a bug in a kernel."""


# Source: NVIDIA, "XID Errors"
_XID_TEXTS = {
    13: "graphics engine exception, often a bug in a kernel",
    31: "memory page fault, often a bug in a kernel",
    43: "a program's fault stopped its channel",
    45: "a program was ended",
    48: "uncorrectable memory error",
    62: "internal micro-controller halt",
    63: "a memory row was remapped",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many correctable memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the GPU's system processor timed out",
    120: "the GPU's system processor failed",
}
# Caused by programs; the GPU itself may be healthy.
_XIDS_OF_PROGRAMS = frozenset({13, 31, 43, 45})


def uses_of(
    jobs: Iterable[Job], gpus: Iterable[GpuReading], nodes: Sequence[NodeRow] = ()
) -> Iterator[tuple[GpuReading, bool, set[str]]]:
    """Yield each GPU of known utilisation, True if it is idle, and the UIDs of the jobs that hold it."""
    owners = {(job.ref.namespace, each.pod): job.uid for job in jobs for each in job.instances if each.pod}
    for gpu in gpus:
        if gpu.utilisation is not None:
            holders = ((each.namespace, each.pod) for each in holders_of(gpu, nodes))
            yield gpu, gpu.utilisation < IDLE_PERCENT, {owners[each] for each in holders if each in owners}


def warnings_of(
    gpu: GpuReading, samples: Sequence[GpuSample] = (), holders: Sequence[PodContainer] = ()
) -> tuple[GpuWarning, ...]:
    """Return the warnings about one GPU, the worst first.

    Args:
        gpu: The newest reading.
        samples: History of the GPU, the oldest first, including the newest reading.
        holders: Holders of the GPU, used if the reading has none.
    """
    held = gpu.holders or tuple(holders)
    found = [
        GpuWarning(kind, gpu.key, text, held, is_serious)
        for kind, text, is_serious in (*_faults(gpu), *_throttles(gpu))
    ]
    # The samples are of whoever had it when it was read, which may not be who has it now.
    is_theirs = bool(held and samples) and _pods(held) == _pods(samples[-1].holders)
    if is_theirs and (idle := idle_for(samples)) >= IDLE_FOR:
        whose = ", ".join(f"{each.namespace}/{each.pod}" for each in held)
        minutes = int(idle.total_seconds() // 60)
        text = f"Allocated to {whose}, but idle for {minutes} min."
        found.append(GpuWarning(WarningKind.IDLE, gpu.key, text, held))
    return tuple(found)


def _faults(gpu: GpuReading) -> Iterable[tuple[WarningKind, str, bool]]:
    if gpu.xid:
        known = _XID_TEXTS.get(gpu.xid)
        yield (
            WarningKind.XID,
            f"Last XID {gpu.xid}{f': {known}' if known else ''}.",
            (gpu.xid not in _XIDS_OF_PROGRAMS),
        )
    if gpu.row_remap_failed:
        yield WarningKind.ECC, "A bad row of its memory could not be replaced: have the GPU replaced.", True
    if gpu.ecc_errors:
        errors = "error" if gpu.ecc_errors == 1 else "errors"
        yield WarningKind.ECC, f"{gpu.ecc_errors} uncorrectable memory {errors} (ECC).", True


def _throttles(gpu: GpuReading) -> Iterable[tuple[WarningKind, str, bool]]:
    # Not the power limit: a healthy H200 is at it all the time while it trains.
    throttles = gpu.throttles or frozenset()
    is_hot = bool(throttles & HEAT_THROTTLES)
    if is_hot or (Throttle.HARDWARE in throttles and Throttle.POWER_BRAKE not in throttles):
        hot = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
        cause = "by its heat" if is_hot else "by its hardware (heat or power)"
        yield WarningKind.THERMAL, f"Slowed down {cause}{hot}.", True
    if Throttle.POWER_BRAKE in throttles:
        yield WarningKind.POWER, "Slowed down by the power brake: the server lacks power.", True


def idle_for(samples: Sequence[GpuSample]) -> timedelta:
    """Return the time that a GPU has been idle up to its newest sample, with the same holders."""
    observed = since_gap(samples)
    if not observed:
        return timedelta()
    newest = observed[-1]
    since = None
    for sample in reversed(observed):
        if sample.utilisation is None or sample.utilisation >= IDLE_PERCENT:
            break
        if _pods(sample.holders) != _pods(newest.holders):
            break
        since = sample.at
    return newest.at - since if since is not None else timedelta()


def _pods(holders: Iterable[PodContainer]) -> frozenset[tuple[str, str]]:
    return frozenset((each.namespace, each.pod) for each in holders)


def slow_gpus(ranks: Iterable[RankReading], history: GpuHistory) -> tuple[GpuWarning, ...]:
    """Return the GPUs of a job that are markedly slower than its other GPUs of the same model.

    All ranks wait for the slowest, so one slow GPU slows the whole job down.
    """
    by_model: dict[str, list[tuple[RankReading, GpuReading]]] = {}
    for rank in ranks:
        if rank.gpu is not None and not rank.gpu.mig_id:
            by_model.setdefault(rank.gpu.model, []).append((rank, rank.gpu))
    return tuple(warning for peers in by_model.values() for warning in _slow_among(peers, history))


def _slow_among(peers: Sequence[tuple[RankReading, GpuReading]], history: GpuHistory) -> Iterable[GpuWarning]:
    windows = {gpu.key: recent(history.of(gpu.key), SLOW_WINDOW) for _, gpu in peers if history.of(gpu.key)}
    work = _means(windows, lambda sample: sample.utilisation)
    clocks = _means(windows, lambda sample: sample.sm_clock_mhz)
    if len(work) < FEWEST_PEERS or median(work.values()) < BUSY_PERCENT:
        return
    for rank, gpu in peers:
        if gpu.key not in work:
            continue
        who = "" if rank.rank is None else f"Rank {rank.rank}: "
        usual = median(work.values())
        if work[gpu.key] < SLOW_SHARE * usual:
            text = f"{who}works {work[gpu.key]:.0f} % of the time, its peers {usual:.0f} %."
        elif (
            len(clocks) == len(work)
            and work[gpu.key] >= BUSY_PERCENT
            and clocks[gpu.key] < SLOW_CLOCK_SHARE * median(clocks.values())
        ):
            text = f"{who}runs at {clocks[gpu.key]:.0f} MHz, its peers at {median(clocks.values()):.0f} MHz."
        else:
            continue
        yield GpuWarning(WarningKind.SLOW, gpu.key, text[0].upper() + text[1:], gpu.holders)


def _means(
    windows: dict[GpuKey, Sequence[GpuSample]], number: Callable[[GpuSample], float | None]
) -> dict[GpuKey, float]:
    # GPUs with too few samples are left out.
    means = {}
    for key, samples in windows.items():
        known = [value for sample in samples if (value := number(sample)) is not None]
        if len(known) >= SLOW_SAMPLES:
            means[key] = fmean(known)
    return means
