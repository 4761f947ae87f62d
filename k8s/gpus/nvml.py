"""Access to this machine's NVIDIA driver through NVML, and the links between its GPUs.

Source: NVML API reference, "NvLink Methods" and `nvmlDeviceGetTopologyCommonAncestor`.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from k8s.gpus.links import SELF, UNKNOWN, LinkMatrix

T = TypeVar("T")
SOURCE = "NVML"
# `nvmlGpuTopologyLevel_t` to names of `nvidia-smi topo -m`; 0 are GPUs on one board.
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# `NVML_NVLINK_DEVICE_TYPE_SWITCH`
_REMOTE_SWITCH = 2


def query_driver(question: Callable[[Any], T], nvml: Any = None) -> T | None:
    """Initialise NVML, ask one question, and shut it down again; None without a driver or on an NVML error.

    Args:
        question: Called with the initialised module.
        nvml: The NVML module; `pynvml` by default.
    """
    if nvml is None:
        nvml = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return question(nvml)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def visible_gpus() -> list[str] | None:
    """Return the numbers or UUIDs in CUDA_VISIBLE_DEVICES; None if it is not set, and all may be used.

    UUIDs are those of GPUs or of MIG instances, and may be shortened. What follows an invalid entry does not
    count. Source: CUDA C++ Programming Guide, "Environment Variables".
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    names = (each.strip() for each in listed.split(","))
    return list(
        itertools.takewhile(lambda name: name.isdecimal() or name.startswith(("GPU-", "MIG-")), names)
    )


def handles_of(nvml: Any) -> list[Any]:
    """Return the handles of the GPUs that this process may use, in its order."""
    visible = visible_gpus()
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return list(
        itertools.takewhile(lambda handle: handle is not None, (_named(nvml, name) for name in visible))
    )


def _named(nvml: Any, name: str) -> Any:
    """Return the handle of a number or UUID; None if a shortened UUID begins none or several."""
    by_index, by_uuid = nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetHandleByUUID
    with suppress(nvml.NVMLError):
        return by_index(int(name)) if name.isdecimal() else by_uuid(name)
    with suppress(nvml.NVMLError):
        found = [each for each in _devices(nvml) if text_of(nvml.nvmlDeviceGetUUID(each)).startswith(name)]
        return found[0] if len(found) == 1 else None
    return None


def _devices(nvml: Any) -> Iterator[Any]:
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        yield gpu
        with suppress(nvml.NVMLError):  # a GPU without MIG
            for instance in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(nvml.NVMLError):  # fewer instances exist than could
                    yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, instance)


def text_of(name: str | bytes) -> str:
    """Return an NVML string as text; older releases of `pynvml` return bytes."""
    return name.decode() if isinstance(name, bytes) else str(name)


def read_nvml(nvml: Any = None) -> LinkMatrix | None:
    """Return the links between the GPUs of this machine that may be used; None without a driver or GPUs.

    Args:
        nvml: The NVML module; `pynvml` by default.
    """
    return query_driver(_read, nvml)


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
    # As numbers: drivers write both `00000000:07:00.0` and `0000:07:00.0` for the same address.
    parts = text_of(text).replace(".", ":").split(":")
    return tuple(int(word, 16) for word in parts)
