"""Which GPUs of a node are free, and how well a job's would be linked: the one copy for views and the form.

Kubernetes does not say which GPUs a pod has, only how many; Alibaba Cloud's scheduler and the sandbox's
write it down. Where it is not told, what is said holds for whichever GPUs are free.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from k8s.snapshot import NodeRow
from k8s.topology.gpu_set import GpuSet, best_set, measure
from k8s.topology.links import LinkMatrix, is_nvlink

_USUAL_SIZES = (2, 4, 8, 16)


def free_gpus(node: NodeRow, matrix: LinkMatrix) -> tuple[int, ...] | None:
    """Return the numbers of the GPUs that nobody holds; None where that is not told."""
    if node.gpus_unhealthy or not node.gives_whole_gpus:
        return None
    held = {device for holder in node.holders for device in holder.devices}
    if node.gpus_allocated != len(held):
        return None
    return tuple(number for number in matrix.gpus if number not in held)


@dataclass(frozen=True, slots=True)
class LinkFit:
    """How a number of GPUs of a node would be linked."""

    worst: GpuSet
    """The set that one gets at worst."""
    best: GpuSet
    """The set that one gets at best: by a scheduler or device plugin that looks at links."""

    @property
    def is_nvlink(self) -> bool:
        """Tell whether all of them are linked by NVLink, whichever one gets."""
        return is_nvlink(self.worst.link)

    @property
    def is_pcie(self) -> bool:
        """Tell whether some of them are not, whichever one gets."""
        return bool(self.best.link) and not is_nvlink(self.best.link)


def link_fit(node: NodeRow, matrix: LinkMatrix, count: int) -> LinkFit | None:
    """Return how `count` of a node's free GPUs would be linked; None where that many cannot be had whole.

    Where it is told which are free, one gets the best of them; otherwise any of the node's.
    """
    if not node.gives_whole_gpus:
        return None
    free = free_gpus(node, matrix)
    best = best_set(matrix, matrix.gpus if free is None else free, count)
    if best is None or count > node.gpus_free:
        return None
    if free is not None or count == 1:
        return LinkFit(best, best)
    return LinkFit(_worst(matrix, best, count), best)


def _worst(matrix: LinkMatrix, best: GpuSet, count: int) -> GpuSet:
    """Return the slowest pair, which some set of any size has."""
    if count == len(matrix.gpus):
        return best
    return min(
        (measure(matrix, pair) for pair in combinations(matrix.gpus, 2)), key=lambda each: each.bottleneck
    )


def best_sets(node: NodeRow, matrix: LinkMatrix) -> list[GpuSet]:
    """Return the best set of each usual size of the GPUs that are free; of all where that is not told."""
    if not node.gives_whole_gpus:
        return []
    free = free_gpus(node, matrix)
    candidates = matrix.gpus if free is None else free
    found = (best_set(matrix, candidates, size) for size in _USUAL_SIZES)
    return [each for each in found if each is not None]
