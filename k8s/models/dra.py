"""Devices held through resource claims (DRA), merged into pods and nodes.

Such devices are in no container's limits and in no node's allocatable. They count as a
resource with the name of their driver: `gpu.nvidia.com`, without a slash.

The API fields are the same in v1, v1beta2 and v1beta1, unless a docstring says otherwise.

Source: Kubernetes, "Dynamic Resource Allocation"; API reference, `resource.k8s.io`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from k8s.models.accelerators import Counts, is_accelerator
from k8s.models.base import Meta, Value
from k8s.models.node import Node
from k8s.models.pod import Pod
from k8s.models.resources import Resource


class AllocatedDevice(Value, frozen=True):
    """A device allocated to a claim."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    # Administrative access; the device stays available to its user.
    admin_access: bool = False


class DeviceAllocation(Value, frozen=True):
    """`status.allocation.devices`: the devices allocated to a claim."""

    results: list[AllocatedDevice] | None = None


class ClaimAllocation(Value, frozen=True):
    """The device part of `status.allocation`."""

    devices: DeviceAllocation = DeviceAllocation()


class ClaimConsumer(Value, frozen=True):
    """An object that may use the allocated devices."""

    resource: str = ""
    uid: str = ""


class ResourceClaimStatus(Value, frozen=True):
    """The allocation, and the pods it is reserved for."""

    allocation: ClaimAllocation | None = None
    reserved_for: list[ClaimConsumer] | None = None


class ResourceClaim(Value, frozen=True):
    """A request for devices, and its allocation."""

    metadata: Meta
    status: ResourceClaimStatus = ResourceClaimStatus()


class DevicePool(Value, frozen=True):
    """A pool of devices; slices of older generations are outdated."""

    name: str = ""
    generation: int = 0


class DeviceAttribute(Value, frozen=True):
    """An attribute of a device; only strings are decoded."""

    string: str = ""


class BasicDevice(Value, frozen=True):
    """A device in v1beta1, which nests its attributes."""

    attributes: dict[str, DeviceAttribute] | None = None


class SliceDevice(Value, frozen=True):
    """A device in a ResourceSlice; in v1beta1 its attributes are in `basic`."""

    name: str = ""
    node_name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    basic: BasicDevice = BasicDevice()

    @property
    def type(self) -> str:
        """The driver's name for the device type: `gpu`, `mig`; empty if it has none."""
        attributes = self.attributes or self.basic.attributes or {}
        return attributes["type"].string if "type" in attributes else ""


class ResourceSliceSpec(Value, frozen=True):
    """The devices of a driver on a node."""

    driver: str = ""
    node_name: str = ""
    pool: DevicePool = DevicePool()
    devices: list[SliceDevice] = msgspec.field(default_factory=list)


class ResourceSlice(Value, frozen=True):
    """Devices that a driver advertises."""

    metadata: Meta
    spec: ResourceSliceSpec = ResourceSliceSpec()


# `v1` since Kubernetes 1.34.
GROUP = "resource.k8s.io"


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Claims, or the slices in which drivers advertise devices, in one API version."""

    resource: Resource
    value_type: type[ResourceClaim | ResourceSlice]


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
"""Readable kinds, the newest version first."""
# Device types that duplicate others: partitions of a device, or another way to use it.
_PARTS = frozenset({"mig", "vfio", "amdgpu-partition"})

T = TypeVar("T", Node, Pod)


def held_by_pod(claims: Iterable[ResourceClaim]) -> dict[str, Counts]:
    """Return the devices of each pod that holds any: pod UID to driver to count.

    A shared device counts for the first pod only, so that the sum is the number in use.
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


def advertised_by_node(slices: Iterable[ResourceSlice]) -> dict[str, Counts]:
    """Return the devices that can be claimed on each node: node name to driver to count."""
    newest: dict[tuple[str, str], int] = {}
    found = [each.spec for each in slices if is_accelerator(each.spec.driver)]
    for spec in found:
        pool = (spec.driver, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    offered: dict[str, Counts] = {}
    for spec in found:
        if spec.pool.generation < newest[spec.driver, spec.pool.name]:
            continue
        for device in (each for each in spec.devices if each.type not in _PARTS):
            counts = offered.setdefault(spec.node_name or device.node_name, {})
            counts[spec.driver] = counts.get(spec.driver, 0) + 1
    return offered


class DeviceClaims:
    """Merges claims and slices into pods and nodes; an unchanged result is the same object as before."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Pod, Counts, Pod]] = {}
        self._nodes: dict[str, tuple[Node, Counts, Node]] = {}

    def merge(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        claims: Iterable[ResourceClaim],
        slices: Iterable[ResourceSlice],
    ) -> tuple[Iterable[Node], Iterable[Pod]]:
        """Return the nodes with the devices they advertise, and the pods with the devices they hold."""
        offered, held = advertised_by_node(slices), held_by_pod(claims)
        if offered:
            nodes = [
                _merged(self._nodes, name, node, offered[name], _with_advertised) if name in offered else node
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


def _with_advertised(node: Node, counts: Counts) -> Node:
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
