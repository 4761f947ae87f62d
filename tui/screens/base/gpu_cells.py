"""Columns and cells of one GPU, for all tables of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from k8s.telemetry.gpu_warnings import GpuWarning
from k8s.telemetry.readings import GpuReading, GpuSample
from tui.tables.column import Cell, Column
from tui.text.format import NOTHING
from tui.text.gpu_words import (
    ADVICE,
    ago,
    format_clocks,
    gpu_memory,
    percent,
    power,
    temperature,
    temperature_style,
    utilisation_style,
    warning_text,
)
from tui.text.sparkline import sparkline

# Both are the same on every row, so that rows can be compared.
TREND_CELLS = 15
TREND = timedelta(minutes=30)
# A table puts its own columns for the GPU's name before these.
GPU_COLUMNS = (
    Column("util", "UTIL", align="right", min_width=4, sorts_largest_first=True),
    Column("trend", "LAST 30M", min_width=TREND_CELLS, max_width=TREND_CELLS, priority=4),
    Column("gpu_memory", "MEMORY", align="right", priority=2, sorts_largest_first=True),
    Column("power", "POWER", align="right", priority=3, sorts_largest_first=True),
    Column("temp", "TEMP", align="right", priority=1, sorts_largest_first=True),
    Column("clock", "CLOCK", align="right", priority=6),
)


def gpu_cells(
    gpu: GpuReading | None, samples: Sequence[GpuSample], *, is_held: bool = True
) -> tuple[Cell, ...]:
    """Return one cell per column of `GPU_COLUMNS`.

    Args:
        gpu: Latest reading; None if unknown.
        samples: History, oldest first.
        is_held: Highlight an idle GPU.
    """
    if gpu is None:
        return (Cell(NOTHING, "quiet"),) * len(GPU_COLUMNS)
    return (
        Cell(
            percent(gpu.utilisation),
            utilisation_style(gpu.utilisation, is_held=is_held),
            sort=gpu.utilisation,
        ),
        Cell(trend(samples), "quiet"),
        Cell(gpu_memory(gpu.memory_used, gpu.memory_total), sort=gpu.memory_used),
        Cell(power(gpu.power_w, gpu.power_limit_w), sort=gpu.power_w),
        Cell(temperature(gpu.temperature_c), temperature_style(gpu), sort=gpu.temperature_c),
        Cell(format_clocks(gpu.sm_clock_mhz, gpu.throttles), "quiet", sort=gpu.sm_clock_mhz),
    )


def trend(samples: Sequence[GpuSample]) -> str:
    """Draw the utilisation of the last 30 minutes; a gap is a dot, time before the first sample is blank."""
    if not samples:
        return NOTHING
    newest = samples[-1]
    highest: list[float | None] = [None] * TREND_CELLS
    for sample in samples[:-1]:
        back = (newest.at - sample.at) / TREND * (TREND_CELLS - 1)
        if back < TREND_CELLS - 1 and sample.utilisation is not None:
            place = TREND_CELLS - 2 - int(back)
            highest[place] = max(highest[place] or 0.0, sample.utilisation)
    highest[-1] = newest.utilisation
    first = next((place for place, value in enumerate(highest) if value is not None), TREND_CELLS - 1)
    return sparkline(highest[first:], TREND_CELLS)


def warning_detail(warnings: Sequence[GpuWarning]) -> str | None:
    """Return the detail line of a GPU's row: its worst warning with advice; None without warnings."""
    if not warnings:
        return None
    more = f" (+{len(warnings) - 1}; enter shows all)" if len(warnings) > 1 else ""
    return f"└ ! {warnings[0].text}{more} {ADVICE[warnings[0].kind]}"


def gpu_text(gpu: GpuReading, warnings: Sequence[GpuWarning], now: datetime) -> str:
    """Return all readings of a GPU, one per line, with source and age."""
    tensor = "" if gpu.tensor_active is None else percent(gpu.tensor_active)
    hot_memory = "" if gpu.memory_temperature_c is None else temperature(gpu.memory_temperature_c)
    slowed = "not reported" if gpu.throttles is None else ", ".join(sorted(gpu.throttles)) or "nothing"
    fields = (
        ("GPU", f"{gpu.name} of {gpu.node}"),
        ("model", gpu.model),
        ("UUID", gpu.uuid),
        ("MIG", gpu.mig_profile),
        (
            "held by",
            ", ".join(f"{each.namespace}/{each.pod}" for each in gpu.holders) or "none reported",
        ),
        ("utilisation", percent(gpu.utilisation)),
        ("tensor cores", tensor),
        ("memory", gpu_memory(gpu.memory_used, gpu.memory_total)),
        ("power", power(gpu.power_w, gpu.power_limit_w)),
        ("temperature", temperature(gpu.temperature_c)),
        ("memory temp", hot_memory),
        ("clock", format_clocks(gpu.sm_clock_mhz, gpu.throttles)),
        ("throttled by", slowed),
        ("last XID", "not reported" if gpu.xid is None else str(gpu.xid or "none")),
        ("ECC errors", "not reported" if gpu.ecc_errors is None else str(gpu.ecc_errors)),
        ("source", f"{gpu.source}, {ago(gpu.read_at, now)}"),
    )
    lines = [f"{name:<13} {value}" for name, value in fields if value]
    return "\n".join([*(f"! {warning_text(each)}" for each in warnings), *([""] if warnings else []), *lines])
