"""What GPUs do, in words and cells: numbers with their unit, where they come from, and what to do about them.

Shared by screens and commands, so both say the same of the same reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from k8s.telemetry.gpu_warnings import HEAT_THROTTLES, IDLE_PERCENT, GpuWarning, WarningKind
from k8s.telemetry.readings import (
    GpuReading,
    NodeReadings,
    NoReadings,
    NoReadingsCause,
    PodReadings,
    Throttle,
    Traffic,
    Usage,
)
from tui.text.format import NOTHING, Look, age, memory, si

OLD_S = 120.0
"""A number that is older is pointed out: its source is read each 30 s."""
ADVICE: dict[WarningKind, str] = {
    WarningKind.XID: "If it comes again, have the node drained and the GPU tested (dmesg there has more).",
    WarningKind.ECC: "Results may be wrong: have the GPU reset or replaced before you trust them.",
    WarningKind.THERMAL: "The job runs slower than it could: have the node's cooling looked at.",
    WarningKind.POWER: "Usual under full load; where it is not, ask who set the node's power limit.",
    WarningKind.SLOW: "All ranks wait for it: look at its node and its input, or run without that node.",
    WarningKind.IDLE: "Delete the job if it is done, or ask its owner (:users has the sentence).",
}
"""What to do now about each kind of warning."""
_REMEDIES: dict[NoReadingsCause, str] = {
    NoReadingsCause.FORBIDDEN: "Ask for that right; GPUs held are counted from pods without it.",
    NoReadingsCause.NO_EXPORTER: "NVIDIA's dcgm-exporter, which the GPU operator brings, would tell.",
    NoReadingsCause.UNREACHABLE: "It is asked again by itself; ctrl+r asks now.",
}


def percent(value: float | None) -> str:
    """Write a share of time: `97%`."""
    return NOTHING if value is None else f"{value:.0f}%"


def gpu_memory(used: int | None, total: int | None) -> str:
    """Write what is used of a GPU's memory, and of how much: `61G/80G`."""
    if used is None:
        return NOTHING
    return f"{memory(used)}/{memory(total)}" if total else memory(used)


def power(watts: float | None, limit: float | None = None) -> str:
    """Write the power that is drawn, and the limit: `402/700W`."""
    if watts is None:
        return NOTHING
    return f"{watts:.0f}/{limit:.0f}W" if limit else f"{watts:.0f}W"


def temperature(celsius: float | None) -> str:
    """Write a temperature: `71C`."""
    return NOTHING if celsius is None else f"{celsius:.0f}C"


def clock_words(megahertz: float | None, throttles: frozenset[Throttle] | None) -> str:
    """Write the clock of a GPU, and a mark where something slows it down."""
    if megahertz is None:
        return NOTHING
    slow = throttles is not None and bool(throttles - {Throttle.POWER_CAP})
    return f"{megahertz:.0f}MHz{'!' * slow}"


def cores(usage: Usage | None) -> str:
    """Write the CPU that is used, in cores: `3.2`."""
    if usage is None or usage.cpu_cores is None:
        return NOTHING
    return f"{usage.cpu_cores:.1f}" if usage.cpu_cores < 99.95 else f"{usage.cpu_cores:.0f}"


def host_memory(usage: Usage | None) -> str:
    """Write the memory of the host that is used."""
    return NOTHING if usage is None or usage.memory_bytes is None else memory(usage.memory_bytes)


def network(traffic: Traffic | None) -> str:
    """Write what comes in and what goes out, bytes a second: `1.2M↓ 80k↑`."""
    return NOTHING if traffic is None else _rates(traffic.received_bps, traffic.sent_bps, "↓↑")


def storage(traffic: Traffic | None) -> str:
    """Write what is read and written, bytes a second: `210M↓ 4k↑`."""
    return NOTHING if traffic is None else _rates(traffic.read_bps, traffic.written_bps, "↓↑")


def _rates(inward: float | None, outward: float | None, marks: str) -> str:
    if inward is None and outward is None:
        return NOTHING
    both = zip((inward, outward), marks, strict=True)
    return " ".join(f"{NOTHING if rate is None else si(rate)}{mark}" for rate, mark in both)


def utilisation_look(value: float | None, *, is_held: bool) -> Look:
    """Return how a utilisation is meant: a held GPU that does nothing needs somebody."""
    if value is None or not is_held:
        return "quiet"
    return "pending" if value < IDLE_PERCENT else ""


def temperature_look(gpu: GpuReading) -> Look:
    """Return how a temperature is meant: loud where the GPU slows down for it."""
    return "failed" if gpu.throttles and gpu.throttles & HEAT_THROTTLES else ""


def source_words(nodes: Iterable[NodeReadings], now: datetime) -> str:
    """Say who told the numbers, and how old the oldest of them are: `DCGM 12s ago`; empty without any."""
    return _oldest_words((gpu for node in nodes for gpu in node.gpus), now)


def pod_source_words(pods: Iterable[PodReadings], now: datetime) -> str:
    """Say who told what pods use, and how old that is; empty where nobody did."""
    found = (each for pod in pods for each in (pod.usage, pod.traffic) if each is not None)
    return _oldest_words(found, now)


def _oldest_words(told: Iterable[GpuReading | Usage | Traffic], now: datetime) -> str:
    oldest: dict[str, datetime] = {}
    for each in told:
        oldest[each.source] = min(oldest.get(each.source, each.read_at), each.read_at)
    return ", ".join(f"{source} {ago(at, now)}" for source, at in oldest.items())


def ago(at: datetime, now: datetime) -> str:
    """Say how old a number is, and point out where it is too old to go by."""
    seconds = (now - at).total_seconds()
    return f"{age(seconds)} ago{'!' * (seconds > OLD_S)}"


def missing_words(missing: NoReadings) -> str:
    """Say in one line why there are no numbers, and what to do now."""
    words = f"{missing.words[:1].upper()}{missing.words[1:]}".rstrip(".")
    if missing.cause is NoReadingsCause.NO_EXPORTER and "exporter" not in words:
        return f"{words}."  # of simulated GPUs no exporter would tell
    return f"{words}. {_REMEDIES[missing.cause]}"


def warning_words(warning: GpuWarning) -> str:
    """Say what is wrong with a GPU, why, and what to do now, in one line."""
    return f"{warning.words} {ADVICE[warning.kind]}"


def warning_look(warnings: Sequence[GpuWarning]) -> Look:
    """Return how a GPU with these warnings looks."""
    if not warnings:
        return ""
    return "failed" if any(each.is_serious for each in warnings) else "pending"
