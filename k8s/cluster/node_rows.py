"""A node as it is shown: what it is, how it is, and who holds its accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from k8s.cluster.gpushare import MEMORY, memory_by_device, shared_memory
from k8s.devices import accelerators
from k8s.devices.node_labels import gpu_memory, gpu_model, is_cut_into_slices, sharing
from k8s.models import Node, Pod
from k8s.snapshot import Holder, NodeRow, Share, SharedGpuMemory
from k8s.topology.ack import GPU_GROUP, GPU_VISIBLE, SCHEDULE_LABEL, TOPOLOGY, gpu_numbers
from k8s.topology.network import network_path

SIMULATED = "gpuconsole.dev/simulated"
"""Label on nodes whose accelerators are simulated: the sandbox's."""
_ROLE = "node-role.kubernetes.io/"
_GIB = 2**30
_ON_NO_DEVICE: Mapping[int, int] = {}


def holder_of(pod: Pod, job: str) -> Holder | None:
    """Return what a pod holds of its node; None when it holds no accelerators.

    A pod holds them from when it is bound until it has finished: one being deleted
    still does.

    Args:
        pod: The pod.
        job: Name of its job, or of whatever else owns it.
    """
    if not pod.spec.node_name or pod.is_finished:
        return None
    held = accelerators.of_pod(pod.spec)
    if not held:
        return None
    meta = pod.metadata
    by_device = memory_by_device(meta, held[MEMORY]) if MEMORY in held else _ON_NO_DEVICE
    numbers = tuple(by_device) or gpu_numbers(meta.annotation(GPU_GROUP) or meta.annotation(GPU_VISIBLE))
    return Holder(
        meta.namespace,
        meta.name,
        job,
        accelerators.count(held),
        held,
        by_device,
        numbers,
        pod.status.start_time or meta.creation_timestamp,
        pod.status.phase,
    )


def unready_nodes(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the nodes that are not Ready, each with why what their pods last said may be untrue."""
    unready = {}
    for node in nodes:
        ready = next((found for found in node.status.conditions or () if found.type == "Ready"), None)
        if ready is not None and ready.status != "True":
            how = "is not ready" if ready.status == "False" else "does not answer"
            unready[node.metadata.name] = f"its node {node.metadata.name} {how}"
    return unready


def node_row(node: Node, holders: Sequence[Holder]) -> NodeRow:
    """Return a node with the pods that hold its accelerators."""
    total = accelerators.in_quantities(node.status.allocatable)
    capacity = accelerators.in_quantities(node.status.capacity)
    allocated = accelerators.total(holder.resources for holder in holders)
    meta = node.metadata
    ready = any(found.type == "Ready" and found.status == "True" for found in node.status.conditions or ())
    addresses = {found.type: found.address for found in node.status.addresses or ()}
    shared = shared_memory(node, holders)
    resources = {
        name: Share(
            _total(name, total, allocated),
            allocated.get(name, 0),
            max(0, capacity.get(name, 0) - total.get(name, 0)),
        )
        for name in sorted({*total, *capacity, *allocated})
        if accelerators.is_countable(name)
    }
    return NodeRow(
        name=meta.name,
        ip=addresses.get("InternalIP") or next(iter(addresses.values()), ""),
        roles=tuple(label.removeprefix(_ROLE) for label in meta.labels or () if label.startswith(_ROLE)),
        status=("Ready" if ready else "NotReady") + (", cordoned" if node.spec.unschedulable else ""),
        is_simulated=meta.label(SIMULATED) == "true",
        gpu_model=gpu_model(meta),
        resources=resources,
        holders=tuple(sorted(holders, key=lambda holder: (-holder.gpus, holder.pod))),
        created=meta.creation_timestamp,
        mode=_mode(node, resources, shared),
        gpu_memory=gpu_memory(meta) or _memory_of_each(shared),
        shared=shared,
        taints=tuple(node.spec.taints or ()),
        conditions=tuple(node.status.conditions or ()),
        network=network_path(meta.labels),
        schedule=meta.label(SCHEDULE_LABEL),
        labels=meta.labels or {},
        allocatable=node.status.allocatable or node.status.capacity or {},
    )


def _mode(node: Node, resources: Mapping[str, Share], shared: SharedGpuMemory | None) -> str:
    """Return how a node gives its GPUs, by Arena's rules and in their order; slices are ours.

    Arena also asks for a ConfigMap in kube-system before it says `topology`, which most
    users may not read.
    """
    meta = node.metadata
    if shared is not None:
        return "share"
    if meta.label(SCHEDULE_LABEL) == TOPOLOGY:
        return "topology"
    offers = [name for name, share in resources.items() if share.total]
    if is_cut_into_slices(meta) or (offers and all("/mig-" in name for name in offers)):
        return "mig"
    if offers and all("/" not in name for name in offers):
        return "dra"  # only drivers of resource claims offer anything here
    if offers and (how := sharing(meta)):
        return how
    if any(name.endswith(".shared") for name in offers):
        return "time-slicing"
    return "exclusive" if offers else "normal"


def _total(name: str, total: Mapping[str, int], allocated: Mapping[str, int]) -> int:
    """Return how many there are: of a driver whose slices may not be read, at least those that are held."""
    is_driver = "/" not in name
    return max(total.get(name, 0), allocated.get(name, 0)) if is_driver else total.get(name, 0)


def _memory_of_each(shared: SharedGpuMemory | None) -> int:
    return shared.total_gib * _GIB // shared.devices if shared is not None and shared.devices else 0
