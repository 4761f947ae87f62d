"""A node's GPUs as cells, coloured by job.

A job's colour follows from its name and is the same on all nodes, unless another job there has it.
Neighbouring jobs also differ in shape; cells are in the order of the job names.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import groupby
from zlib import crc32

from k8s.snapshot import NodeRow
from tui.text.format import CellStyle, Run, shares

# More jobs than these share colours.
COLOURS: tuple[CellStyle, ...] = ("series-1", "series-2", "series-3", "series-4", "series-5", "series-6")
# Two alternating shapes of held GPUs.
HELD, FREE, BAD = "▮▰", "▯", "✕"
# Held by the highlighted job; free, and fit for the highlighted waiting job.
HIGHLIGHTED, FITTING = "◆", "◇"
# GPUs of the largest common machine.
MOST_CELLS = 16


def job_style(name: str) -> CellStyle:
    """Return the colour of a job by its name."""
    return COLOURS[crc32(name.encode("utf-8", "replace")) % len(COLOURS)]


@lru_cache(maxsize=1024)
def job_marks(names: tuple[str, ...]) -> tuple[Run, ...]:
    """Return shape and colour for each job on a node, unique as long as there are enough.

    Args:
        names: Names of the jobs in display order.
    """
    marks: list[Run] = []
    for place, name in enumerate(names):
        shape, first = HELD[place % len(HELD)], COLOURS.index(job_style(name))
        pairs: list[Run] = [(shape, colour) for colour in COLOURS[first:] + COLOURS[:first]]
        marks.append(next((pair for pair in pairs if pair not in marks), pairs[0]))
    return tuple(marks)


def node_cells(
    node: NodeRow, width: int = MOST_CELLS, *, highlighted: Collection[tuple[str, str]] = (), fitting: int = 0
) -> list[Run]:
    """Draw the GPUs of a node; beyond `width` they are shares, with at least one cell for each kind.

    GPUs are in their physical order if all holders' device numbers are known, otherwise grouped by holder.

    Args:
        node: The node.
        width: Maximum number of cells.
        highlighted: Highlighted jobs by namespace and name.
        fitting: Number of highlighted free GPUs.
    """
    jobs = [(name, _units(node, namespace, name)) for namespace, name, _ in node.jobs]
    total, bad = node.gpus_total, node.gpus_unhealthy
    if node.shared is not None:
        total, width = node.shared.total_gib, min(width, node.shared.devices or width)
    busy = sum(units for _, units in jobs)
    cells = _by_number(node) or []
    if not 0 < len(cells) <= width - bad:
        held, free, lost = shares((busy, max(0, total - busy), bad), width)
        amounts = [units for _, units in jobs]
        each = shares(amounts, held) if held >= len(jobs) else [1] * held
        cells = [place for place, amount in enumerate(each) for _ in range(amount)]
        cells += [None] * free
        bad = lost
    are_highlighted = [(namespace, name) in highlighted for namespace, name, _ in node.jobs]
    runs: list[Run] = []
    for place, group in groupby(cells):
        amount = len(list(group))
        if place is None:
            shown = min(fitting, amount)
            fitting -= shown
            runs += [(FITTING * shown, "running")] * bool(shown)
            runs += [(FREE * (amount - shown), "gpu-free")] * (amount > shown)
        else:
            highlight_mark: Run = (HIGHLIGHTED, "bright")
            mark, style = highlight_mark if are_highlighted[place] else job_mark(node, place)
            runs.append((mark * amount, style))
    return [*runs, (BAD * bad, "gpu-bad")] if bad else runs


def job_mark(node: NodeRow, place: int) -> Run:
    """Return shape and colour of the job at an index of `node.jobs`."""
    return job_marks(tuple(name for _, name, _ in node.jobs))[place]


def format_holder(node: NodeRow) -> list[Run]:
    """Name the jobs on a node, each with its mark and number of GPUs."""
    runs: list[Run] = []
    for place, (_, name, amount) in enumerate(node.jobs):
        mark, style = job_mark(node, place)
        runs += [("  " * bool(place), ""), (f"{mark} ", style), (name, ""), (f" {amount}", "quiet")]
    return runs


def _units(node: NodeRow, namespace: str, job: str) -> int:
    return sum(each.units for each in node.holders if (each.namespace, each.job) == (namespace, job))


def _by_number(node: NodeRow) -> list[int | None] | None:
    places = {(namespace, name): place for place, (namespace, name, _) in enumerate(node.jobs)}
    cells: list[int | None] = [None] * node.gpus_total
    if node.shared is not None or any(len(each.devices) != each.gpus for each in node.holders):
        return None
    for holder in node.holders:
        for number in holder.devices:
            if number >= len(cells) or cells[number] is not None:
                return None
            cells[number] = places[holder.namespace, holder.job]
    return cells
