"""The links between the GPUs of a node: their names as `nvidia-smi topo -m` has them, and how fast they are.

A bandwidth is in GB/s, one way. Where nobody measured it, it is what NCCL reckons with for links of that
type, which is what can be had and not what the data sheet promises.

Source: NCCL, `src/graph/topo.h` (`SM70_NVLINK_BW`, `PCI_BW`, `BDW_QPI_BW` and their like).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

SELF = "X"
"""What stands for the GPU itself."""
UNKNOWN = "?"
"""A link of which nothing is told."""
PCIE_LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Links that are not NVLink, the nearest first; the words are in `LINK_WORDS`."""
LINK_WORDS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "several host bridges of one NUMA node",
    "SYS": "the link between CPU sockets",
    UNKNOWN: "not told",
}
"""What data goes over, by the name of the link."""
NCCL_SOURCE = "NCCL's constant for the link type"
"""Where a bandwidth comes from that nobody measured."""
MEASURED_SOURCE = "measured on the node"
"""Where a bandwidth comes from that the cluster tells."""
_NVLINK = re.compile(r"NV([1-9][0-9]?)")
_OLD_NAMES = {"SOC": "SYS", "N-A": SELF, "N/A": UNKNOWN}
"""SYS was called SOC by drivers before 396; ACK writes N-A for the GPU itself."""


@dataclass(frozen=True, slots=True)
class LinkSpeeds:
    """What the links of GPUs of one generation carry, GB/s one way."""

    nvlink: float
    """Each NVLink."""
    pcie: float
    """PCIe with 16 lanes."""
    sockets: float
    """Between the CPU sockets of servers that such GPUs are sold in."""


_PASCAL = LinkSpeeds(18.0, 12.0, 6.0)
_VOLTA = LinkSpeeds(20.0, 12.0, 6.0)
_AMPERE = LinkSpeeds(20.0, 24.0, 16.0)
_AMPERE_SMALL = LinkSpeeds(12.0, 24.0, 16.0)
_HOPPER = LinkSpeeds(20.6, 48.0, 22.0)
_BLACKWELL = LinkSpeeds(40.1, 48.0, 40.0)
_SPEEDS = (
    (re.compile(r"\bP100\b"), _PASCAL),
    (re.compile(r"\b(V100|V100S|TITAN[- ]V|T4)\b"), _VOLTA),
    (re.compile(r"\b(A100|A100X|A800|A30)\b"), _AMPERE),
    (re.compile(r"\b(A40|A10|A10G|A16|A[456][05]00|RTX[- ]A\w+|3090)\b"), _AMPERE_SMALL),
    (re.compile(r"\b(G?H100|G?H200|H800|H20|L40S?|L20|L4)\b"), _HOPPER),
    (re.compile(r"\b(G?B[123]00|RTX[- ]PRO[- ]6000)\b"), _BLACKWELL),
)
"""Models, as `NVIDIA-A100-SXM4-40GB`, to speeds: NVLink of SM 60, 70, 80, 86, 90 and 100."""


@lru_cache(maxsize=256)
def speeds_of(model: str) -> LinkSpeeds:
    """Return what the links of a GPU's model carry; of an unknown model as little as Volta's do."""
    words = model.upper().replace("_", "-")
    return next((speeds for pattern, speeds in _SPEEDS if pattern.search(words)), _VOLTA)


def link_name(text: str) -> str:
    """Return the name of a link as newer drivers write it: `SYS` for `SOC`; `?` for what is no name."""
    word = text.strip().upper()
    word = _OLD_NAMES.get(word, word)
    return word if word == SELF or word in PCIE_LINKS or _NVLINK.fullmatch(word) else UNKNOWN


def is_nvlink(link: str) -> bool:
    """Tell whether a link is NVLink, over however many lanes."""
    return _NVLINK.fullmatch(link) is not None


def link_bandwidth(link: str, model: str = "") -> float:
    """Return what a link carries between GPUs of a model, GB/s one way; 0 when it is not known.

    What goes through a CPU costs a fifth more PCIe bandwidth: `INTEL_P2P_OVERHEAD`.
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
    """Return how far apart two GPUs with this link are: 0 by NVLink, then by `PCIE_LINKS`."""
    if link == SELF or is_nvlink(link):
        return 0
    return PCIE_LINKS.index(link) + 1 if link in PCIE_LINKS else len(PCIE_LINKS) + 1


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """The links between all GPUs of a node."""

    links: tuple[tuple[str, ...], ...]
    """Row by row, a name each; square, `X` for the GPU itself."""
    bandwidth: tuple[tuple[float, ...], ...]
    """GB/s one way, in the same order; 0 where it is not known."""
    source: str = ""
    """Who told: `NVML`, `nvidia-smi topo -m in pod gpu-operator/dcgm-x`."""
    is_measured: bool = False
    """Its bandwidths were measured on this node; otherwise they are NCCL's constants."""
    numbers: tuple[int, ...] = ()
    """Number of the GPU of each row; empty where they are 0, 1, 2…"""
    cpus: tuple[str, ...] = ()
    """Which CPUs are near each GPU, as `0-19,40-59`; empty where that is not told."""
    numa: tuple[str, ...] = ()
    """NUMA node of each GPU; empty where that is not told."""
    nics: tuple[str, ...] = ()
    """Network adapters, as `mlx5_0`."""
    nic_links: tuple[tuple[str, ...], ...] = ()
    """For each GPU its link to each network adapter."""

    @classmethod
    def of(cls, links: Sequence[Sequence[str]], model: str = "", source: str = "") -> LinkMatrix:
        """Return a matrix with the bandwidths that NCCL reckons with for GPUs of a model."""
        names = tuple(tuple(row) for row in links)
        return cls(names, tuple(tuple(link_bandwidth(link, model) for link in row) for row in names), source)

    @property
    def gpus(self) -> tuple[int, ...]:
        """Return the number of the GPU of each row."""
        return self.numbers or tuple(range(len(self.links)))

    @property
    def bandwidth_source(self) -> str:
        """Return where its bandwidths come from, in words."""
        return MEASURED_SOURCE if self.is_measured else NCCL_SOURCE

    def between(self, row: int, column: int) -> float:
        """Return what two GPUs can send each other, by their rows: the slower of both ways."""
        return min(self.bandwidth[row][column], self.bandwidth[column][row])

    @property
    def names(self) -> tuple[str, ...]:
        """Return the types of link that there are, the nearest and fastest first."""
        found = {link for row in self.links for link in row if link != SELF}
        return tuple(sorted(found, key=lambda link: (distance(link), -link_bandwidth(link))))
