"""Free GPUs of a node, and the links between the GPUs that a pod would get.

Kubernetes reports only how many GPUs a pod has. Alibaba Cloud's scheduler and the sandbox record
the device numbers; without them, results hold for any choice of free GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from k8s.gpus.gpu_set import GpuSet, best_set, measure
from k8s.gpus.links import LinkMatrix, is_nvlink
from k8s.snapshot import NodeRow

_USUAL_SIZES = (2, 4, 8, 16)


def free_gpus(node: NodeRow, matrix: LinkMatrix) -> tuple[int, ...] | None:
    """Return the numbers of the free GPUs; None if unknown."""
    if node.gpus_unhealthy or not node.allocates_full_gpus:
        return None
    held = {device for holder in node.holders for device in holder.devices}
    if node.gpus_allocated != len(held):
        return None
    return tuple(number for number in matrix.gpus if number not in held)


@dataclass(frozen=True, slots=True)
class LinkFit:
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
