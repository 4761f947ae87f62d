"""Machines with documented GPU links, for simulated nodes, benchmarks and tests.

Sources: NVIDIA, "DGX-1 With Tesla V100 System Architecture", figure 4 (the hybrid cube mesh; links as
`nvidia-smi topo -m` shows them there), "DGX A100" and "DGX H100" system architectures. The PCIe server
is a typical one with two sockets and two switches on each, not a specific product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from k8s.topology.links import SELF, LinkMatrix


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine model."""

    title: str
    model: str
    gpus: int
    # Takes the indices of two GPUs, the lower one first.
    link: Callable[[int, int], str]

    def matrix(self, gpus: int = 0, source: str = "") -> LinkMatrix:
        """Return the links of its GPUs, or of the first `gpus` of them."""
        size = min(gpus or self.gpus, self.gpus)
        rows = [
            [SELF if row == column else self.link(*sorted((row, column))) for column in range(size)]
            for row in range(size)
        ]
        return LinkMatrix.of(rows, self.model, source or self.title)


# Each GPU has six NVLinks: its quad is fully connected, and one link goes to the other quad.
_CUBE_MESH = {
    **dict.fromkeys(((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)), "NV1"),
    **dict.fromkeys(((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)), "NV2"),
}


def _cube_mesh(one: int, other: int) -> str:
    return _CUBE_MESH.get((one, other), "SYS")


def _two_sockets(one: int, other: int) -> str:
    if one // 2 == other // 2:
        return "PIX"
    return "NODE" if one // 4 == other // 4 else "SYS"


MACHINES: Mapping[str, Machine] = {
    "dgx-1v": Machine("DGX-1 with V100", "Tesla-V100-SXM2-32GB", 8, _cube_mesh),
    "dgx-a100": Machine("DGX A100", "NVIDIA-A100-SXM4-40GB", 8, lambda one, other: "NV12"),
    "dgx-h100": Machine("DGX H100", "NVIDIA-H100-80GB-HBM3", 8, lambda one, other: "NV18"),
    "pcie": Machine("PCIe server", "NVIDIA-A100-PCIE-40GB", 8, _two_sockets),
}
