"""Reads the links between this machine's GPUs from NVIDIA's driver, by NVML.

Source: NVML API reference, "NvLink Methods" and `nvmlDeviceGetTopologyCommonAncestor`. A GPU that is linked
to NVSwitches reaches every other one that is, over as many links as the one of the two with fewer has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from k8s.devices.nvml import ask_driver, handles_of, text_of
from k8s.topology.links import SELF, UNKNOWN, LinkMatrix

SOURCE = "NVML"
"""What the matrix says of where it is from."""
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""`nvmlGpuTopologyLevel_t` to the names of `nvidia-smi topo -m`; 0 are GPUs on one board."""
_REMOTE_SWITCH = 2
"""`NVML_NVLINK_DEVICE_TYPE_SWITCH`."""


def read_nvml(nvml: Any = None) -> LinkMatrix | None:
    """Return the links between all GPUs of this machine; None without a driver or GPUs.

    Args:
        nvml: The module that speaks to the driver; `pynvml` by default.
    """
    return ask_driver(_read, nvml)


def _read(nvml: Any) -> LinkMatrix | None:
    handles = handles_of(nvml)
    if not handles:
        return None
    return LinkMatrix.of(_links(nvml, handles), text_of(nvml.nvmlDeviceGetName(handles[0])), SOURCE)


def _links(nvml: Any, handles: Sequence[Any]) -> list[list[str]]:
    buses = [_bus(nvml.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
    direct: list[Counter[int]] = []
    switched: list[int] = []
    for handle in handles:
        ends = [_far_end(nvml, handle, link, buses) for link in range(nvml.NVML_NVLINK_MAX_LINKS)]
        direct.append(Counter(end for end in ends if isinstance(end, int)))
        switched.append(ends.count("switch"))
    return [
        [
            SELF
            if row == column
            else _name(direct[row][column], min(switched[row], switched[column]))
            or _ancestor(nvml, handles[row], handles[column])
            for column in range(len(handles))
        ]
        for row in range(len(handles))
    ]


def _name(direct: int, switched: int) -> str:
    links = direct or switched
    return f"NV{links}" if links else ""


def _far_end(nvml: Any, handle: Any, link: int, buses: Sequence[tuple[int, ...]]) -> int | str:
    """Return to which GPU a link goes, or `switch`; empty when it is off or goes elsewhere."""
    try:
        if not nvml.nvmlDeviceGetNvLinkState(handle, link):
            return ""
        bus = _bus(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
    except nvml.NVMLError:
        return ""
    if bus in buses:
        return buses.index(bus)
    try:
        kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    except nvml.NVMLError:  # a driver before 470, which knows of no other far end that is no GPU
        return "switch"
    return "switch" if kind == _REMOTE_SWITCH else ""


def _ancestor(nvml: Any, one: Any, other: Any) -> str:
    try:
        return _ANCESTORS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other), UNKNOWN)
    except nvml.NVMLError:
        return UNKNOWN


def _bus(text: str | bytes) -> tuple[int, ...]:
    """Return a PCI address as numbers: `00000000:07:00.0` and `0000:07:00.0` are the same."""
    words = text_of(text).replace(".", ":").split(":")
    return tuple(int(word, 16) for word in words)
