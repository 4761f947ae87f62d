"""Search for the GPUs with the fastest links.

The slowest link limits a collective, so sets are compared by it first, then by the sum over
all pairs, then by how little bandwidth the other free GPUs lose.

Kubernetes reports only how many GPUs a pod has. Alibaba Cloud's scheduler and the sandbox record
the device numbers; without them, results hold for any choice of free GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from k8s.gpus.links import LinkMatrix, is_nvlink
from k8s.snapshot import NodeRow

# The search is exact up to this many free GPUs, and greedy beyond.
EXACT_GPUS = 16
_USUAL_SIZES = (2, 4, 8, 16)


class GpuSet(msgspec.Struct, frozen=True):
    """GPUs of a node and the bandwidth between them."""

    gpus: tuple[int, ...]
    bottleneck: float
    """GB/s one way of the slowest link between two of them; infinite for a single GPU."""
    total: float
    """GB/s of all pairs together."""
    link: str = ""
    """Name of the slowest link; empty for a single GPU."""


def best_set(matrix: LinkMatrix, free: Iterable[int], count: int) -> GpuSet | None:
    """Return the best `count` of the free GPUs; None if fewer are free."""
    rows = _rows(matrix, free)
    if count < 1 or count > len(rows):
        return None
    weights = [[round(matrix.between(row, column) * 1000) for column in rows] for row in rows]
    if count == 1:
        # The GPU that the others miss least.
        chosen: tuple[int, ...] = (min(range(len(weights)), key=lambda at: sum(weights[at])),)
    elif count == len(rows):
        chosen = tuple(range(len(rows)))
    elif len(rows) <= EXACT_GPUS:
        chosen = _Search(weights, count).best()
    else:
        chosen = _grown(weights, count)
    return measure(matrix, [matrix.gpus[rows[at]] for at in chosen])


def measure(matrix: LinkMatrix, gpus: Iterable[int]) -> GpuSet:
    """Measure the links between some GPUs; indices that the matrix does not have are ignored."""
    rows = _rows(matrix, gpus)
    pairs = list(combinations(rows, 2))
    slowest = min(pairs, key=lambda pair: matrix.between(*pair), default=None)
    return GpuSet(
        tuple(sorted(matrix.gpus[row] for row in rows)),
        matrix.between(*slowest) if slowest else math.inf,
        round(sum(matrix.between(*pair) for pair in pairs), 3),
        matrix.links[slowest[0]][slowest[1]] if slowest else "",
    )


def split(matrix: LinkMatrix, gpus: Iterable[int], sizes: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Divide a set among the pods of a job so that the GPUs of each pod are close together.

    Returns:
        The GPU indices for each size, in the order of `sizes`; None if there are not enough.
    """
    left = list(gpus)
    parts: dict[int, tuple[int, ...]] = {}
    for at in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        found = best_set(matrix, left, sizes[at]) if sizes[at] else None
        if sizes[at] and found is None:
            return None
        parts[at] = found.gpus if found else ()
        left = [gpu for gpu in left if gpu not in parts[at]]
    return [parts[at] for at in range(len(sizes))]


def _rows(matrix: LinkMatrix, gpus: Iterable[int]) -> list[int]:
    wanted = set(gpus)
    return [row for row, number in enumerate(matrix.gpus) if number in wanted]


class _Search:
    """Exact search: find the highest threshold that has a clique, then the heaviest such clique."""

    def __init__(self, weights: Sequence[Sequence[int]], count: int) -> None:
        self._weights = weights
        self._size = len(weights)
        self._count = count
        self._lost = [sum(row) for row in weights]
        self._heaviest = max(max(row) for row in weights)
        self._best: tuple[int, int] | None = None
        self._chosen: tuple[int, ...] = ()

    def best(self) -> tuple[int, ...]:
        values = sorted({self._weights[i][j] for i, j in combinations(range(self._size), 2)})
        if len(values) == 1:
            return tuple(range(self._count))
        low, high = 0, len(values) - 1
        while low < high:  # the lowest value always has a clique: all of them
            middle = (low + high + 1) // 2
            if self._has_clique(self._near(values[middle]), (1 << self._size) - 1, self._count):
                low = middle
            else:
                high = middle - 1
        self._extend(self._near(values[low]), (1 << self._size) - 1, [], 0)
        return self._chosen

    def _near(self, least: int) -> list[int]:
        """Return a bit mask per GPU: the others that it reaches with at least weight `least`."""
        return [
            sum(1 << j for j in range(self._size) if i != j and self._weights[i][j] >= least)
            for i in range(self._size)
        ]

    def _has_clique(self, near: Sequence[int], candidates: int, wanted: int) -> bool:
        if wanted == 0:
            return True
        while candidates.bit_count() >= wanted:
            lowest = candidates & -candidates
            candidates ^= lowest
            if self._has_clique(near, candidates & near[lowest.bit_length() - 1], wanted - 1):
                return True
        return False

    def _extend(self, near: Sequence[int], candidates: int, chosen: list[int], total: int) -> None:
        wanted = self._count - len(chosen)
        if wanted == 0:
            value = (total, -sum(self._lost[at] for at in chosen))
            if self._best is None or value > self._best:
                self._best, self._chosen = value, tuple(chosen)
            return
        while candidates.bit_count() >= wanted:
            if self._best is not None and self._bound(candidates, chosen, total, wanted) < self._best[0]:
                return
            lowest = candidates & -candidates
            candidates ^= lowest
            at = lowest.bit_length() - 1
            row = self._weights[at]
            self._extend(near, candidates & near[at], [*chosen, at], total + sum(row[i] for i in chosen))

    def _bound(self, candidates: int, chosen: Sequence[int], total: int, wanted: int) -> int:
        """Return an upper bound for the total of any clique that extends `chosen` by `wanted` candidates."""
        gains = sorted(
            sum(self._weights[at][i] for i in chosen) for at in range(self._size) if candidates >> at & 1
        )
        return total + sum(gains[-wanted:]) + self._heaviest * (wanted * (wanted - 1) // 2)


def _grown(weights: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    # Greedy: grow a set from each GPU, and take the best of these.
    found: list[tuple[int, int, tuple[int, ...]]] = []
    for start in range(len(weights)):
        chosen, slowest, total = [start], 0, 0
        while len(chosen) < count:
            others = (at for at in range(len(weights)) if at not in chosen)
            best = max(
                others,
                key=lambda at: (min(weights[at][i] for i in chosen), sum(weights[at][i] for i in chosen)),
            )
            least = min(weights[best][i] for i in chosen)
            slowest = min(slowest, least) if len(chosen) > 1 else least
            total += sum(weights[best][i] for i in chosen)
            chosen.append(best)
        found.append((slowest, total, tuple(sorted(chosen))))
    return max(found)[2]


def free_gpus(node: NodeRow, matrix: LinkMatrix) -> tuple[int, ...] | None:
    """Return the numbers of the free GPUs; None if unknown."""
    if node.gpus_unhealthy or not node.allocates_full_gpus:
        return None
    held = {device for holder in node.holders for device in holder.devices}
    if node.gpus_allocated != len(held):
        return None
    return tuple(number for number in matrix.gpus if number not in held)


class LinkFit(msgspec.Struct, frozen=True):
    """Worst and best links of the GPUs that a pod could get on a node."""

    worst: GpuSet
    best: GpuSet

    @property
    def is_nvlink(self) -> bool:
        """Return True if every possible set is linked by NVLink."""
        return is_nvlink(self.worst.link)

    @property
    def is_pcie(self) -> bool:
        """Return True if no possible set is fully linked by NVLink."""
        return bool(self.best.link) and not is_nvlink(self.best.link)


def link_fit(node: NodeRow, matrix: LinkMatrix, count: int) -> LinkFit | None:
    """Return the links of `count` free GPUs of a node; None if it cannot allocate that many whole GPUs.

    If the free GPUs are known, the best of them are assumed; otherwise any of the node's.
    """
    if not node.allocates_full_gpus:
        return None
    free = free_gpus(node, matrix)
    best = best_set(matrix, matrix.gpus if free is None else free, count)
    if best is None or count > sum(node.free_if_tolerated.values()):
        return None
    if free is not None or count == 1:
        return LinkFit(best, best)
    return LinkFit(_worst(matrix, best, count), best)


def _worst(matrix: LinkMatrix, best: GpuSet, count: int) -> GpuSet:
    # Some set of any size contains the slowest pair.
    if count == len(matrix.gpus):
        return best
    return min(
        (measure(matrix, pair) for pair in combinations(matrix.gpus, 2)), key=lambda each: each.bottleneck
    )


def best_sets(node: NodeRow, matrix: LinkMatrix) -> list[GpuSet]:
    """Return the best set of each usual size among the free GPUs; among all if those are unknown."""
    if not node.allocates_full_gpus:
        return []
    free = free_gpus(node, matrix)
    candidates = matrix.gpus if free is None else free
    found = (best_set(matrix, candidates, size) for size in _USUAL_SIZES)
    return [each for each in found if each is not None]
