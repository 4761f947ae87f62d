"""A node's GPUs as cells, so that one sees which jobs hold them, which are free, which are unhealthy.

A job has a colour of its own by its name, the same on every node unless another one there has it.
Two jobs beside each other have different shapes too, and they come in the order in which they are named.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import groupby
from zlib import crc32

from k8s.snapshot import NodeRow
from tui.text.format import Look, Run, shares

COLOURS: tuple[Look, ...] = ("series-1", "series-2", "series-3", "series-4", "series-5", "series-6")
"""What jobs are told apart by; more jobs than these share them."""
HELD, FREE, BAD = "▮▰", "▯", "✕"
"""Held, in two shapes by turns; free; unhealthy."""
LIT, OFFERED = "◆", "◇"
"""Held by the job that is pointed at; free, and a job that waits could take it."""
MOST_CELLS = 16
"""Cells that a node gets at most: one for each GPU of the largest usual machine."""


def job_look(name: str) -> Look:
    """Return the colour of a job, which depends on nothing but its name."""
    return COLOURS[crc32(name.encode("utf-8", "replace")) % len(COLOURS)]


@lru_cache(maxsize=1024)
def job_marks(names: tuple[str, ...]) -> tuple[Run, ...]:
    """Return a shape in a colour for each of the jobs on one node; no two share both while pairs last.

    Args:
        names: The jobs in the order in which they are shown.
    """
    marks: list[Run] = []
    for place, name in enumerate(names):
        shape, first = HELD[place % len(HELD)], COLOURS.index(job_look(name))
        pairs: list[Run] = [(shape, colour) for colour in COLOURS[first:] + COLOURS[:first]]
        marks.append(next((pair for pair in pairs if pair not in marks), pairs[0]))
    return tuple(marks)


def node_cells(
    node: NodeRow, width: int = MOST_CELLS, *, lit: Collection[tuple[str, str]] = (), offered: int = 0
) -> list[Run]:
    """Draw the GPUs of a node; beyond `width` cells are shares, and whatever exists keeps one.

    GPUs are where they are on the node where all holders' numbers are known, else those of
    the first holder come first.

    Args:
        node: The node.
        width: How many cells it gets at most.
        lit: The jobs that are pointed at, each by its namespace and name.
        offered: How many of the free GPUs are pointed at.
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
    are_lit = [(namespace, name) in lit for namespace, name, _ in node.jobs]
    runs: list[Run] = []
    for place, group in groupby(cells):
        amount = len(list(group))
        if place is None:
            shown = min(offered, amount)
            offered -= shown
            runs += [(OFFERED * shown, "running")] * bool(shown)
            runs += [(FREE * (amount - shown), "gpu-free")] * (amount > shown)
        else:
            lit_mark: Run = (LIT, "bright")
            mark, look = lit_mark if are_lit[place] else job_mark(node, place)
            runs.append((mark * amount, look))
    return [*runs, (BAD * bad, "gpu-bad")] if bad else runs


def job_mark(node: NodeRow, place: int) -> Run:
    """Return the shape, in its colour, of the job at this place among those that hold GPUs of a node."""
    return job_marks(tuple(name for _, name, _ in node.jobs))[place]


def holder_words(node: NodeRow) -> list[Run]:
    """Name the jobs that hold GPUs of a node, each after its shape, and how many."""
    runs: list[Run] = []
    for place, (_, name, amount) in enumerate(node.jobs):
        mark, look = job_mark(node, place)
        runs += [("  " * bool(place), ""), (f"{mark} ", look), (name, ""), (f" {amount}", "quiet")]
    return runs


def _units(node: NodeRow, namespace: str, job: str) -> int:
    return sum(each.units for each in node.holders if (each.namespace, each.job) == (namespace, job))


def _by_number(node: NodeRow) -> list[int | None] | None:
    """Return for each GPU the place of the job that holds it; None where a number is not known."""
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
