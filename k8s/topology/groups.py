"""Which GPUs of a node belong together, on each level: NVLink, PCIe switch, NUMA node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from k8s.topology.links import LinkMatrix, distance, is_nvlink


class GpuGroups(NamedTuple):
    """How the GPUs of a node fall into groups on one level."""

    title: str
    """What links those of a group: `NVLink`, `PCIe switch`, `NUMA node`."""
    groups: tuple[tuple[int, ...], ...]
    """Numbers of the GPUs of each group, each GPU in one; a GPU alone is a group too."""


_PCIE_LEVELS = (("PCIe switch", "PXB"), ("NUMA node", "NODE"))
"""Titles, each with the farthest link within such a group."""


def groups_of(matrix: LinkMatrix) -> tuple[GpuGroups, ...]:
    """Return the levels on which there are groups of more than one GPU.

    Within a group every GPU is linked so with every other. Where NVLink hides how GPUs are connected
    otherwise, only NVLink and what is told of NUMA nodes counts.
    """
    found = [GpuGroups("NVLink", _cliques(matrix, is_nvlink))]
    if matrix.numa:
        found.append(GpuGroups("NUMA node", _by_numa(matrix)))
    has_nvlink = any(len(group) > 1 for group in found[0].groups)
    if not has_nvlink:
        found += [
            GpuGroups(title, _cliques(matrix, partial(_is_within, farthest=farthest)))
            for title, farthest in _PCIE_LEVELS
            if title != "NUMA node" or not matrix.numa
        ]
    return tuple(each for each in found if any(len(group) > 1 for group in each.groups))


def _is_within(link: str, farthest: str) -> bool:
    return distance(link) <= distance(farthest)


def _by_numa(matrix: LinkMatrix) -> tuple[tuple[int, ...], ...]:
    by_node: dict[str, list[int]] = {}
    for number, node in zip(matrix.gpus, matrix.numa, strict=True):
        by_node.setdefault(node, []).append(number)
    return tuple(map(tuple, by_node.values()))


def _cliques(matrix: LinkMatrix, belongs: Callable[[str], bool]) -> tuple[tuple[int, ...], ...]:
    """Divide the GPUs into sets in which all pairs belong together, the first as large as can be."""
    left = list(range(len(matrix.links)))
    groups = []
    while left:
        best = max((_grown_from(matrix, start, left, belongs) for start in left), key=len)
        groups.append(best)
        left = [row for row in left if row not in best]
    return tuple(sorted(tuple(matrix.gpus[row] for row in group) for group in groups))


def _grown_from(
    matrix: LinkMatrix, start: int, rows: list[int], belongs: Callable[[str], bool]
) -> tuple[int, ...]:
    group = [start]
    for row in rows:
        if row != start and all(belongs(matrix.links[row][other]) for other in group):
            group.append(row)
    return tuple(sorted(group))
