"""GPUs that pods share by memory, as Alibaba's ACK and its gpushare scheduler do it.

A node offers `aliyun.com/gpu-mem` gigabytes on `aliyun.com/gpu-count` devices; the
scheduler writes into a pod's annotations which devices it gave.

Source: kubeflow/arena, `pkg/topnode/gpushare.go`; AliyunContainerService/gpushare-scheduler-extender.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from k8s.models import Meta, Node, quantity
from k8s.snapshot import Holder, SharedGpuMemory
from k8s.text.numbers import whole_number

MEMORY = "aliyun.com/gpu-mem"
"""Gigabytes of the GPUs of a node, all together."""
_DEVICES = "aliyun.com/gpu-count"
_ALLOCATION = "scheduler.framework.gpushare.allocation"
_OLD_DEVICE = "ALIYUN_COM_GPU_MEM_IDX"


def memory_by_device(meta: Meta, held_gib: int) -> dict[int, int]:
    """Return on which devices a pod holds how many gigabytes; nothing where that is not told.

    Args:
        meta: The pod's metadata. The newer annotation says, for each of its containers,
            `{"0": {"1": 8}}`: the first has 8 GiB of device 1. The older one names a device.
        held_gib: What it holds in all.
    """
    found: dict[int, int] = {}
    for by_device in _read(meta.annotation(_ALLOCATION)).values():
        for device, amount in by_device.items() if isinstance(by_device, dict) else ():
            number = whole_number(device)
            if number is not None and isinstance(amount, int):
                found[number] = found.get(number, 0) + amount
    if found:
        return found
    number = whole_number(meta.annotation(_OLD_DEVICE))
    return {number: held_gib} if number is not None and held_gib else {}


def shared_memory(node: Node, holders: Iterable[Holder]) -> SharedGpuMemory | None:
    """Return how the memory of a node's GPUs is shared; None on a node that does not share it."""
    offered: Mapping[str, Any] = node.status.allocatable or {}
    total = quantity.count(offered.get(MEMORY, 0))
    if not total:
        return None
    by_device: dict[int, int] = {}
    held = 0
    for holder in holders:
        held += holder.resources.get(MEMORY, 0)
        for device, amount in holder.memory_by_device.items():
            by_device[device] = by_device.get(device, 0) + amount
    count = quantity.count(offered.get(_DEVICES, 0))
    return SharedGpuMemory(total, held, count, dict(sorted(by_device.items())))


def _read(annotation: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(annotation) if annotation else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
