"""What the instances of a job do with their GPUs: columns of their table, and lines of warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from k8s.telemetry.gpu_warnings import GpuWarning
from k8s.telemetry.job_ranks import RankReading
from k8s.telemetry.readings import GpuKey
from tui.jobs.gpu_facts import in_order, place_words
from tui.text.format import NOTHING
from tui.text.gpu_words import (
    ADVICE,
    gpu_memory,
    percent,
    power,
    temperature,
    utilisation_look,
    warning_look,
)
from tui.text.sparkline import GAP, level
from tui.widgets.table.table import Cell, Column, Row

USAGE_COLUMNS = (
    Column("util", "UTIL", align="right", min_width=4, sorts_largest_first=True),
    Column("gpu_memory", "GPU MEM", align="right", priority=3, sorts_largest_first=True),
    Column("power", "POWER", align="right", priority=5, sorts_largest_first=True),
    Column("temp", "TEMP", align="right", priority=4, sorts_largest_first=True),
)
"""What the GPUs of an instance do together; there while anything tells."""
USAGE_PLACE = 3
"""Where these columns stand among those of the instances: after the status."""
MOST_MARKS = 8
"""GPUs of an instance that have a mark each beside their mean."""


def with_usage(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of instances with those of their GPUs."""
    return (*columns[:USAGE_PLACE], *USAGE_COLUMNS, *columns[USAGE_PLACE:])


def rows_with_usage(
    rows: Iterable[Row], ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]
) -> list[Row]:
    """Return the rows of instances with cells for their GPUs; a warning is said below where no reason is."""
    found = []
    for row in rows:
        own = [each for each in ranks if each.instance.name == row.key]
        cells = (*row.cells[:USAGE_PLACE], *_cells(own, warnings), *row.cells[USAGE_PLACE:])
        found.append(row._replace(cells=cells, detail=row.detail or _detail(own, warnings)))
    return found


def _cells(ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]) -> tuple[Cell, ...]:
    gpus = [each.gpu for each in ranks if each.gpu is not None]
    if not gpus:
        return (Cell(NOTHING, "quiet"),) * len(USAGE_COLUMNS)
    known = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    mean = sum(known) / len(known) if known else None
    marks = "".join(GAP if gpu.utilisation is None else level(gpu.utilisation) for gpu in gpus)
    bad = [warning for gpu in gpus for warning in warnings.get(gpu.key, ())]
    look = warning_look(bad) or utilisation_look(min(known, default=None), is_held=True)
    words = f"{percent(mean)}{'!' * bool(bad)}"
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    total = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    hottest = max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None)
    return (
        Cell.of((f"{marks} " if 1 < len(gpus) <= MOST_MARKS else "", "quiet"), (words, look), sort=mean),
        Cell(gpu_memory(sum(used) if used else None, sum(total) if total else None), sort=sum(used)),
        Cell(power(sum(watts) if watts else None), "quiet", sort=sum(watts)),
        Cell(temperature(hottest), "quiet", sort=hottest),
    )


def _detail(ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]) -> str | None:
    found = in_order(ranks, warnings)
    if not found:
        return None
    rank, warning = found[0]
    more = f" (+{len(found) - 1}; u shows all)" if len(found) > 1 else ""
    return f"└ ! {place_words(rank)}: {warning.words}{more} {ADVICE[warning.kind]}"
