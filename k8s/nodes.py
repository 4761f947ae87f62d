"""A node as it is shown: what it is, how it is, and who holds its accelerators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from k8s import devices
from k8s.models import Node, Pod
from k8s.snapshot import Holder, NodeRow, Share

SIMULATED = "gpuconsole.dev/simulated"
"""Label on nodes whose accelerators are make-believe."""
_MODEL_LABELS = ("nvidia.com/gpu.product", "aliyun.accelerator/nvidia_name", "amd.com/gpu.product-name")
_ROLE = "node-role.kubernetes.io/"


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
    held = devices.of_pod(pod.spec)
    if not held:
        return None
    meta = pod.metadata
    return Holder(meta.namespace, meta.name, job, devices.count(held), held)


def silent_nodes(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the nodes that are not Ready, each with why what their pods last said may be untrue."""
    silent = {}
    for node in nodes:
        ready = next((found for found in node.status.conditions or () if found.type == "Ready"), None)
        if ready is not None and ready.status != "True":
            how = "is not ready" if ready.status == "False" else "does not answer"
            silent[node.metadata.name] = f"its node {node.metadata.name} {how}"
    return silent


def node_row(node: Node, holders: Sequence[Holder]) -> NodeRow:
    """Return a node with the pods that hold its accelerators."""
    total = devices.in_quantities(node.status.allocatable)
    capacity = devices.in_quantities(node.status.capacity)
    allocated = devices.total(holder.resources for holder in holders)
    meta = node.metadata
    ready = any(found.type == "Ready" and found.status == "True" for found in node.status.conditions or ())
    addresses = {found.type: found.address for found in node.status.addresses or ()}
    return NodeRow(
        name=meta.name,
        ip=addresses.get("InternalIP") or next(iter(addresses.values()), ""),
        roles=tuple(label.removeprefix(_ROLE) for label in meta.labels or () if label.startswith(_ROLE)),
        status=("Ready" if ready else "NotReady") + (", cordoned" if node.spec.unschedulable else ""),
        is_simulated=meta.label(SIMULATED) == "true",
        gpu_model=next((model for label in _MODEL_LABELS if (model := meta.label(label))), ""),
        resources={
            name: Share(
                total.get(name, 0),
                allocated.get(name, 0),
                max(0, capacity.get(name, 0) - total.get(name, 0)),
            )
            for name in sorted({*total, *capacity, *allocated})
            if devices.is_countable(name) and (total.get(name) or capacity.get(name) or allocated.get(name))
        },
        holders=tuple(sorted(holders, key=lambda holder: (-holder.gpus, holder.pod))),
        created=meta.creation_timestamp,
    )
