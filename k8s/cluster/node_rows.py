"""Builds the row of a node: its properties, its state and the holders of its accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from k8s.models import Meta, Node, Pod, accelerators, gpu_sharing, quantity
from k8s.models.node import cordon_reason, faults, network_path
from k8s.snapshot import Holder, NodeRow, Share, SharedGpuMemory
from k8s.text.sanitize import parse_integer

# Label of the sandbox's nodes: their accelerators are simulated.
SIMULATED = "gpuconsole.dev/simulated"
_ROLE = "node-role.kubernetes.io/"
_GIB = 2**30
_ON_NO_DEVICE: Mapping[int, int] = {}
# GPUs shared by memory, as by Alibaba's ACK: a node offers gigabytes on a number of devices, and the
# scheduler writes the chosen devices into the pod's annotations. Source: kubeflow/arena,
# `pkg/topnode/gpushare.go`; AliyunContainerService/gpushare-scheduler-extender.
MEMORY = "aliyun.com/gpu-mem"
_DEVICES = "aliyun.com/gpu-count"
_ALLOCATION = "scheduler.framework.gpushare.allocation"
_OLD_DEVICE = "ALIYUN_COM_GPU_MEM_IDX"
_SHARED = frozenset((*accelerators.UNITS_IN_GIB, *accelerators.PERCENT_OF_GPU))


def memory_by_device(meta: Meta, held_gib: int) -> dict[int, int]:
    """Return the GiB that a pod holds of each device, by device number; empty if no annotation says.

    `held_gib` is the pod's total, for the older annotation, which names a single device. The newer one
    has an entry for each container: `{"0": {"1": 8}}` means 8 GiB of device 1 for the first one.
    """
    found: dict[int, int] = {}
    for by_device in _read(meta.annotation(_ALLOCATION)).values():
        for device, amount in by_device.items() if isinstance(by_device, dict) else ():
            number = parse_integer(device)
            if number is not None and isinstance(amount, int):
                found[number] = found.get(number, 0) + amount
    if found:
        return found
    number = parse_integer(meta.annotation(_OLD_DEVICE))
    return {number: held_gib} if number is not None and held_gib else {}


def shared_memory(node: Node, holders: Iterable[Holder]) -> SharedGpuMemory | None:
    """Return the GPU memory that pods share on a node; None if the node does not share it."""
    offered: Mapping[str, Any] = node.status.allocatable or {}
    offers = accelerators.in_quantities({name: offered[name] for name in _SHARED & offered.keys()})
    total = accelerators.gib(offers)
    if not total:
        return None
    by_device: dict[int, int] = {}
    held = 0
    for holder in holders:
        held += holder.gib
        for device, amount in holder.memory_by_device.items():
            by_device[device] = by_device.get(device, 0) + amount
    percent = next((offers[name] for name in accelerators.PERCENT_OF_GPU if name in offers), 0)
    count = quantity.count(offered.get(_DEVICES, 0)) or percent // 100
    return SharedGpuMemory(total, held, count, dict(sorted(by_device.items())))


def _read(annotation: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(annotation) if annotation else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def holder_of(pod: Pod, job: str, fraction: float | None = None) -> Holder | None:
    """Return the accelerators that a pod of `job` holds of its node; None if it holds none.

    `fraction` is its part of a GPU that another pod reserves, whose holder has no job.

    A pod holds them from binding until it has finished, also while it is being deleted.
    """
    if not pod.spec.node_name or pod.is_finished:
        return None
    held = accelerators.of_pod(pod.spec)
    if not held and fraction is None:
        return None
    meta = pod.metadata
    by_device = memory_by_device(meta, held[MEMORY]) if MEMORY in held else _ON_NO_DEVICE
    numbers = tuple(by_device) or gpu_sharing.gpu_numbers(
        meta.annotation(gpu_sharing.GPU_GROUP) or meta.annotation(gpu_sharing.GPU_VISIBLE)
    )
    gpus = accelerators.count(held)
    return Holder(
        meta.namespace, meta.name, job, gpus, held, by_device, numbers,
        0 if gpus else accelerators.gib(held), fraction or 0.0,
        pod.status.start_time or meta.creation_timestamp,
        pod.status.phase,
    )  # fmt: skip


def unready_nodes(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the reason, in words, why a node is not Ready, by the names of those nodes."""
    unready = {}
    for node in nodes:
        ready = next((found for found in node.status.conditions or () if found.type == "Ready"), None)
        if ready is not None and ready.status != "True":
            how = "is not ready" if ready.status == "False" else "does not answer"
            unready[node.metadata.name] = f"its node {node.metadata.name} {how}"
    return unready


def node_row(node: Node, holders: Sequence[Holder]) -> NodeRow:
    """Return the row of a node."""
    total = accelerators.in_quantities(node.status.allocatable)
    capacity = accelerators.in_quantities(node.status.capacity)
    allocated = accelerators.total(holder.resources for holder in holders)
    meta = node.metadata
    ready = any(found.type == "Ready" and found.status == "True" for found in node.status.conditions or ())
    addresses = {found.type: found.address for found in node.status.addresses or ()}
    shared = shared_memory(node, holders)
    if capacity.keys() - {"nvidia.com/gpu"}:
        gpu_sharing.without_cores(total, allocated)
        gpu_sharing.without_cores(capacity, {})
    parts = gpu_sharing.parts_of(meta, capacity)
    resources = {
        name: Share(
            _total(name, total, allocated, node.status.capacity),
            allocated.get(name, 0),
            max(0, capacity.get(name, 0) - total.get(name, 0)),
            parts[name].cards if name in parts else None,
        )
        for name in sorted({*total, *capacity, *allocated})
        if accelerators.is_countable(name)
    }
    # ExtendedResourceToleration lets a pod past a taint with the key of a resource that it requests.
    is_tainted = any(each.keeps_pods_away and each.key not in resources for each in node.spec.taints or ())
    return NodeRow(
        name=meta.name,
        ip=addresses.get("InternalIP") or next(iter(addresses.values()), ""),
        roles=tuple(label.removeprefix(_ROLE) for label in meta.labels or () if label.startswith(_ROLE)),
        status=("Unknown" if meta.unreadable else "Ready" if ready else "NotReady")
        + (", cordoned" if node.spec.unschedulable else "")
        + (", tainted" if is_tainted else ""),
        is_simulated=meta.label(SIMULATED) == "true",
        gpu_model=gpu_sharing.gpu_model(meta), resources=resources,
        holders=tuple(
            sorted([each for each in holders if each.job], key=lambda holder: (-holder.gpus, holder.pod))
        ),
        created=meta.creation_timestamp,
        mode=_mode(node, resources, shared, parts),
        uncounted=() if resources or shared else gpu_sharing.uncounted(meta, node.status.allocatable or {}),
        gpu_memory=gpu_sharing.gpu_memory(meta) or _memory_of_each(shared),
        shared=shared, taints=tuple(node.spec.taints or ()),
        conditions=tuple(node.status.conditions or ()),
        faults=faults(node.status.conditions),
        tainted_devices=node.status.tainted_devices or {},
        cordon=cordon_reason(meta) if node.spec.unschedulable else "",
        network=network_path(meta.labels),
        schedule=meta.label(gpu_sharing.SCHEDULE_LABEL),
        labels=meta.labels or {}, annotations=meta.annotations or {},
        allocatable=node.status.allocatable or node.status.capacity or {},
        versions={
            "os": node.status.node_info.os_image,
            "kernel": node.status.node_info.kernel_version,
            "container_runtime": node.status.node_info.container_runtime_version,
            "kubelet": node.status.node_info.kubelet_version,
            **gpu_sharing.nvidia_versions(meta),
        },
    )  # fmt: skip


def _mode(
    node: Node,
    resources: Mapping[str, Share],
    shared: SharedGpuMemory | None,
    parts: Mapping[str, gpu_sharing.GpuParts],
) -> str:
    """Return the way a node hands out its GPUs, by Arena's rules in Arena's order, parts of GPUs added.

    Arena says `topology` only if a ConfigMap in kube-system agrees, which most users may not read.
    """
    meta = node.metadata
    if shared is not None:
        return "share"
    if meta.label(gpu_sharing.SCHEDULE_LABEL) == gpu_sharing.TOPOLOGY:
        return "topology"
    offers = [name for name, share in resources.items() if share.total]
    modes = list(dict.fromkeys(parts[name].mode if name in parts else "exclusive" for name in offers))
    if offers and all("/" not in name for name in offers):
        return "dra"  # only drivers of resource claims offer anything here
    return ", ".join(sorted(modes)) or "normal"


def _total(
    name: str, total: Mapping[str, int], allocated: Mapping[str, int], capacity: Mapping[str, Any] | None
) -> int:
    # Devices of resource claims are held although no slice that offers them may be read.
    is_claimed = "/" not in name or (capacity is not None and name not in capacity)
    return max(total.get(name, 0), allocated.get(name, 0)) if is_claimed else total.get(name, 0)


def _memory_of_each(shared: SharedGpuMemory | None) -> int:
    return shared.total_gib * _GIB // shared.devices if shared is not None and shared.devices else 0
