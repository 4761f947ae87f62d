"""Adds the devices that pods hold by resource claims (DRA) to the pods, and what is offered to the nodes.

Such devices are in no container's limits and in no node's allocatable. They count as
a resource with their driver's name, `gpu.nvidia.com`, which has no slash as others have.

Source: Kubernetes, "Dynamic Resource Allocation"; API reference, `resource.k8s.io`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from k8s.devices.accelerators import Counts, is_accelerator
from k8s.models import Node, Pod
from k8s.models.device_claim import ResourceClaim, ResourceSlice, SliceDevice
from k8s.models.resources import Resource

GROUP = "resource.k8s.io"
"""API group of claims and slices, since Kubernetes 1.34 in version v1."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Claims, or the slices in which devices are offered, in one version."""

    resource: Resource
    """Where they are found."""
    value_type: type[ResourceClaim | ResourceSlice]
    """As what they are read."""


_VERSIONS = ("v1", "v1beta2", "v1beta1")
DEVICE_KINDS = (
    *(
        DeviceKind(Resource(GROUP, version, "resourceclaims", "ResourceClaim"), ResourceClaim)
        for version in _VERSIONS
    ),
    *(
        DeviceKind(
            Resource(GROUP, version, "resourceslices", "ResourceSlice", is_namespaced=False), ResourceSlice
        )
        for version in _VERSIONS
    ),
)
"""All that can be read, the newest version first."""
_PARTS = frozenset({"mig", "vfio", "amdgpu-partition"})
"""Types of devices that are others over again: slices of them, or another way to use them."""

T = TypeVar("T", Node, Pod)


def held_by_pod(claims: Iterable[ResourceClaim]) -> dict[str, Counts]:
    """Return the devices of each pod that holds any: its uid to driver to number.

    A device that several share is the first one's, so that the sum is what is in use.
    """
    held: dict[str, Counts] = {}
    counted = set()
    for claim in sorted(claims, key=lambda claim: (claim.metadata.namespace, claim.metadata.name)):
        users = [each.uid for each in claim.status.reserved_for or () if each.resource == "pods"]
        allocation = claim.status.allocation
        for result in (allocation.devices.results or ()) if allocation is not None and users else ():
            device = (result.driver, result.pool, result.device)
            if device not in counted and not result.admin_access and is_accelerator(result.driver):
                counted.add(device)
                counts = held.setdefault(users[0], {})
                counts[result.driver] = counts.get(result.driver, 0) + 1
    return held


def offered_by_node(slices: Iterable[ResourceSlice]) -> dict[str, Counts]:
    """Return the devices that can be claimed on each node: its name to driver to number."""
    newest: dict[tuple[str, str], int] = {}
    found = [each.spec for each in slices if is_accelerator(each.spec.driver)]
    for spec in found:
        pool = (spec.driver, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    offered: dict[str, Counts] = {}
    for spec in found:
        if spec.pool.generation < newest[spec.driver, spec.pool.name]:
            continue
        for device in filter(_is_whole, spec.devices):
            counts = offered.setdefault(spec.node_name or device.node_name, {})
            counts[spec.driver] = counts.get(spec.driver, 0) + 1
    return offered


def _is_whole(device: SliceDevice) -> bool:
    return device.type not in _PARTS


class DeviceClaims:
    """Merges claims and slices into pods and nodes; what comes out the same is the same value as before."""

    def __init__(self) -> None:
        """Start without any."""
        self._pods: dict[str, tuple[Pod, Counts, Pod]] = {}
        self._nodes: dict[str, tuple[Node, Counts, Node]] = {}

    def merge(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        claims: Iterable[ResourceClaim],
        slices: Iterable[ResourceSlice],
    ) -> tuple[Iterable[Node], Iterable[Pod]]:
        """Return the nodes with what they offer by claims, and the pods with what they hold by them."""
        offered, held = offered_by_node(slices), held_by_pod(claims)
        if offered:
            nodes = [
                _merged(self._nodes, name, node, offered[name], _with_offer) if name in offered else node
                for node in nodes
                for name in (node.metadata.name,)
            ]
        if held:
            pods = [
                _merged(self._pods, uid, pod, held[uid], _with_claims) if uid in held else pod
                for pod in pods
                for uid in (pod.metadata.uid,)
            ]
        for gone in self._nodes.keys() - offered.keys():
            del self._nodes[gone]
        for gone in self._pods.keys() - held.keys():
            del self._pods[gone]
        return nodes, pods


def _merged(
    known: dict[str, tuple[T, Counts, T]], key: str, obj: T, counts: Counts, make: Callable[[T, Counts], T]
) -> T:
    before = known.get(key)
    if before is None or before[0] is not obj or before[1] != counts:
        before = known[key] = (obj, counts, make(obj, counts))
    return before[2]


def _with_offer(node: Node, counts: Counts) -> Node:
    status = node.status
    return replace(
        node,
        status=replace(
            status,
            allocatable={**(status.allocatable or {}), **counts},
            capacity={**(status.capacity or {}), **counts},
        ),
    )


def _with_claims(pod: Pod, counts: Counts) -> Pod:
    return replace(pod, spec=replace(pod.spec, claimed=counts))
