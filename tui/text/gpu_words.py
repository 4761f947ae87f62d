"""Texts for GPU readings: numbers with units, sources, and advice.

Shared by screens and one-shot commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from k8s.gpus.gpu_warnings import HEAT_THROTTLES, IDLE_PERCENT, GpuWarning, WarningKind
from k8s.gpus.readings import (
    GpuReading,
    NodeReadings,
    NoReadings,
    NoReadingsCause,
    PodReadings,
    Throttle,
    Traffic,
    Usage,
)
from tui.text.format import NOTHING, CellStyle, age, memory, si

# Sources are polled every 30 s; older readings are marked.
OLD_S = 120.0
ADVICE: dict[WarningKind, str] = {
    WarningKind.XID: "If it recurs, have the node drained and the GPU tested (dmesg has more).",
    WarningKind.ECC: "Results may be wrong: have the GPU reset or replaced before you trust them.",
    WarningKind.THERMAL: "The job runs slower than it could: have the node's cooling checked.",
    WarningKind.POWER: "The job runs slower than it could: have the node's power supply checked.",
    WarningKind.SLOW: "All ranks wait for it: check its node and input, or run without that node.",
    WarningKind.IDLE: "Delete the job if it is done, or ask its owner (:users has a message to send).",
}
_REMEDIES: dict[NoReadingsCause, str] = {
    NoReadingsCause.FORBIDDEN: "Ask for permission; held GPUs are counted from pods anyway.",
    NoReadingsCause.NO_EXPORTER: "NVIDIA's dcgm-exporter, which the GPU operator brings, would provide them.",
    NoReadingsCause.UNREACHABLE: "Retrying automatically; ctrl+r retries now.",
}


def percent(value: float | None) -> str:
    """Format a percentage: `97%`."""
    return NOTHING if value is None else f"{value:.0f}%"


def gpu_memory(used: int | None, total: int | None) -> str:
    """Format used and total GPU memory: `61G/80G`."""
    if used is None:
        return NOTHING
    return f"{memory(used)}/{memory(total)}" if total else memory(used)


def power(watts: float | None, limit: float | None = None) -> str:
    """Format power draw and limit: `402/700W`."""
    if watts is None:
        return NOTHING
    return f"{watts:.0f}/{limit:.0f}W" if limit else f"{watts:.0f}W"


def temperature(celsius: float | None) -> str:
    """Format a temperature: `71C`."""
    return NOTHING if celsius is None else f"{celsius:.0f}C"


def format_clocks(megahertz: float | None, throttles: frozenset[Throttle] | None) -> str:
    """Format a clock rate; `!` marks throttling."""
    if megahertz is None:
        return NOTHING
    slow = throttles is not None and bool(throttles - {Throttle.POWER_CAP})
    return f"{megahertz:.0f}MHz{'!' * slow}"


def cores(usage: Usage | None) -> str:
    """Format CPU usage in cores: `3.2`."""
    if usage is None or usage.cpu_cores is None:
        return NOTHING
    return f"{usage.cpu_cores:.1f}" if usage.cpu_cores < 99.95 else f"{usage.cpu_cores:.0f}"


def host_memory(usage: Usage | None) -> str:
    """Format host memory usage."""
    return NOTHING if usage is None or usage.memory_bytes is None else memory(usage.memory_bytes)


def network(traffic: Traffic | None) -> str:
    """Format received and sent bytes per second: `1.2M↓ 80k↑`."""
    return NOTHING if traffic is None else _rates(traffic.received_bps, traffic.sent_bps, "↓↑")


def storage(traffic: Traffic | None) -> str:
    """Format read and written bytes per second: `210M↓ 4k↑`."""
    return NOTHING if traffic is None else _rates(traffic.read_bps, traffic.written_bps, "↓↑")


def _rates(inward: float | None, outward: float | None, marks: str) -> str:
    if inward is None and outward is None:
        return NOTHING
    both = zip((inward, outward), marks, strict=True)
    return " ".join(f"{NOTHING if rate is None else si(rate)}{mark}" for rate, mark in both)


def utilisation_style(value: float | None, *, is_held: bool) -> CellStyle:
    """Return the look of a utilisation; an idle held GPU stands out."""
    if value is None or not is_held:
        return "quiet"
    return "pending" if value < IDLE_PERCENT else ""


def temperature_style(gpu: GpuReading) -> CellStyle:
    """Return the look of a temperature; thermal throttling stands out."""
    return "failed" if gpu.throttles and gpu.throttles & HEAT_THROTTLES else ""


def source_text(nodes: Iterable[NodeReadings], now: datetime) -> str:
    """Return the sources with the age of their oldest reading: `DCGM 12s ago`; empty without readings."""
    return _format_oldest((gpu for node in nodes for gpu in node.gpus), now)


def describe_pod_source(pods: Iterable[PodReadings], now: datetime) -> str:
    """Return the sources of pod readings with their ages; empty without readings."""
    found = (each for pod in pods for each in (pod.usage, pod.traffic) if each is not None)
    return _format_oldest(found, now)


def _format_oldest(readings: Iterable[GpuReading | Usage | Traffic], now: datetime) -> str:
    oldest: dict[str, datetime] = {}
    for each in readings:
        oldest[each.source] = min(oldest.get(each.source, each.read_at), each.read_at)
    return ", ".join(f"{source} {ago(at, now)}" for source, at in oldest.items())


def ago(at: datetime, now: datetime) -> str:
    """Format the age of a reading; `!` marks an old one."""
    seconds = (now - at).total_seconds()
    return f"{age(seconds)} ago{'!' * (seconds > OLD_S)}"


def missing_text(missing: NoReadings) -> str:
    """Explain missing readings in one line, with advice."""
    words = f"{missing.words[:1].upper()}{missing.words[1:]}".rstrip(".")
    if missing.cause is NoReadingsCause.NO_EXPORTER and "exporter" not in words:
        return f"{words}."  # of simulated GPUs no exporter would tell
    return f"{words}. {_REMEDIES[missing.cause]}"


def warning_text(warning: GpuWarning) -> str:
    """Describe a warning in one line, with advice."""
    return f"{warning.text} {ADVICE[warning.kind]}"


def warning_style(warnings: Sequence[GpuWarning]) -> CellStyle:
    """Return the look of a GPU with these warnings."""
    if not warnings:
        return ""
    return "failed" if any(each.is_serious for each in warnings) else "pending"
