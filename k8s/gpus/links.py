"""Links between a node's GPUs: names as in `nvidia-smi topo -m`, bandwidths, groups of close GPUs.

Bandwidths are in GB/s, one way. Those that were not measured are NCCL's constants for the link
type: realistic values, lower than on the data sheet.

Sources: NCCL, `src/graph/topo.h` (`SM70_NVLINK_BW`, `PCI_BW`, `BDW_QPI_BW` and similar); NVIDIA, "DGX-1
With Tesla V100 System Architecture", figure 4 (the hybrid cube mesh), "DGX A100" and "DGX H100" system
architectures. The PCIe server is a typical one with two sockets of two switches, not a specific product.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

SELF = "X"
UNKNOWN = "?"
PCIE_LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Links other than NVLink, the nearest first."""
LINK_WORDS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "several host bridges of one NUMA node",
    "SYS": "the link between CPU sockets",
    UNKNOWN: "not told",
}
NCCL_SOURCE = "NCCL's constant for the link type"
MEASURED_SOURCE = "measured on the node"
_NVLINK = re.compile(r"NV([1-9][0-9]?)")
# Drivers before 396 write SOC for SYS; ACK writes N-A for the GPU itself.
_OLD_NAMES = {"SOC": "SYS", "N-A": SELF, "N/A": UNKNOWN}


class LinkSpeeds(msgspec.Struct, frozen=True):
    """Bandwidths of the links of one GPU generation, in GB/s one way."""

    nvlink: float
    pcie: float
    """PCIe with 16 lanes."""
    sockets: float


_PASCAL = LinkSpeeds(18.0, 12.0, 6.0)
_VOLTA = LinkSpeeds(20.0, 12.0, 6.0)
_AMPERE = LinkSpeeds(20.0, 24.0, 16.0)
_AMPERE_SMALL = LinkSpeeds(12.0, 24.0, 16.0)
_HOPPER = LinkSpeeds(20.6, 48.0, 22.0)
_BLACKWELL = LinkSpeeds(40.1, 48.0, 40.0)
# Patterns of models such as `NVIDIA-A100-SXM4-40GB`; NVLink of SM 60, 70, 80, 86, 90 and 100.
_SPEEDS = (
    (re.compile(r"\bP100\b"), _PASCAL),
    (re.compile(r"\b(V100|V100S|TITAN[- ]V|T4)\b"), _VOLTA),
    (re.compile(r"\b(A100|A100X|A800|A30)\b"), _AMPERE),
    (re.compile(r"\b(A40|A10|A10G|A16|A[456][05]00|RTX[- ]A\w+|3090)\b"), _AMPERE_SMALL),
    (re.compile(r"\b(G?H100|G?H200|H800|H20|L40S?|L20|L4)\b"), _HOPPER),
    (re.compile(r"\b(G?B[123]00|RTX[- ]PRO[- ]6000)\b"), _BLACKWELL),
)


@lru_cache(maxsize=256)
def speeds_of(model: str) -> LinkSpeeds:
    """Return the link speeds of a GPU model; Volta's if the model is unknown."""
    name = model.upper().replace("_", "-")
    return next((speeds for pattern, speeds in _SPEEDS if pattern.search(name)), _VOLTA)


class UnreadableTopology(ValueError):
    """A text that holds no usable link matrix; the message is a full sentence."""


def link_name(text: str) -> str:
    """Normalise the name of a link: `SYS` for `SOC`; `?` if it is not a link."""
    word = text.strip().upper()
    word = _OLD_NAMES.get(word, word)
    return word if word == SELF or word in PCIE_LINKS or _NVLINK.fullmatch(word) else UNKNOWN


def is_nvlink(link: str) -> bool:
    """Return True if a link is NVLink, with any number of lanes."""
    return _NVLINK.fullmatch(link) is not None


def link_bandwidth(link: str, model: str = "") -> float:
    """Return the bandwidth of a link in GB/s one way; 0 if it is unknown.

    Traffic through a CPU loses a sixth of the PCIe bandwidth (`INTEL_P2P_OVERHEAD`).
    """
    speeds = speeds_of(model)
    if found := _NVLINK.fullmatch(link):
        return round(int(found[1]) * speeds.nvlink, 1)
    through_cpu = round(speeds.pcie * 5 / 6, 1)
    return {
        "PIX": speeds.pcie,
        "PXB": speeds.pcie,
        "PHB": through_cpu,
        "NODE": through_cpu,
        "SYS": min(speeds.sockets, through_cpu),
    }.get(link, 0.0)


def distance(link: str) -> int:
    """Return the distance of a link: 0 for NVLink, then the position in `PCIE_LINKS` plus 1."""
    if link == SELF or is_nvlink(link):
        return 0
    return PCIE_LINKS.index(link) + 1 if link in PCIE_LINKS else len(PCIE_LINKS) + 1


class LinkMatrix(msgspec.Struct, frozen=True):
    """The links between all GPUs of a node."""

    links: tuple[tuple[str, ...], ...]
    """Link names, row by row; square, with `X` on the diagonal."""
    bandwidth: tuple[tuple[float, ...], ...]
    """GB/s one way, in the same order; 0 if unknown."""
    source: str = ""
    is_measured: bool = False
    """False if the bandwidths are NCCL's constants."""
    numbers: tuple[int, ...] = ()
    """GPU index of each row; empty for 0, 1, 2…"""
    cpus: tuple[str, ...] = ()
    """CPUs near each GPU, as `0-19,40-59`; empty if unknown."""
    numa: tuple[str, ...] = ()
    """NUMA node of each GPU; empty if unknown."""
    nics: tuple[str, ...] = ()
    nic_links: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, links: Sequence[Sequence[str]], model: str = "", source: str = "") -> LinkMatrix:
        """Build a matrix with NCCL's bandwidths for a GPU model."""
        names = tuple(tuple(row) for row in links)
        return cls(names, tuple(tuple(link_bandwidth(link, model) for link in row) for row in names), source)

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPU index of each row."""
        return self.numbers or tuple(range(len(self.links)))

    @property
    def bandwidth_source(self) -> str:
        """The origin of the bandwidths, for display."""
        return MEASURED_SOURCE if self.is_measured else NCCL_SOURCE

    def between(self, row: int, column: int) -> float:
        """Return the bandwidth between two rows: the slower of the two directions."""
        return min(self.bandwidth[row][column], self.bandwidth[column][row])

    @property
    def names(self) -> tuple[str, ...]:
        """The link types that occur, the nearest and fastest first."""
        found = {link for row in self.links for link in row if link != SELF}
        return tuple(sorted(found, key=lambda link: (distance(link), -link_bandwidth(link))))


class GpuGroups(NamedTuple):
    """The groups of a node's GPUs on one level."""

    title: str
    """One of `NVLink`, `PCIe switch`, `NUMA node`."""
    groups: tuple[tuple[int, ...], ...]
    """GPU indices. Each GPU is in exactly one group, which may hold it alone."""


# Title, and the most distant link within such a group.
_PCIE_LEVELS = (("PCIe switch", "PXB"), ("NUMA node", "NODE"))


def groups_of(matrix: LinkMatrix) -> tuple[GpuGroups, ...]:
    """Return the levels that have a group of more than one GPU.

    Within a group, every pair of GPUs has a link of that level. NVLink hides the PCIe connections
    of GPUs, so with NVLink only the NUMA affinities count besides.
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


class Machine(msgspec.Struct, frozen=True):
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
