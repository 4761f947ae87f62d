"""Devices held through resource claims (DRA), merged into pods and nodes.

Such devices are in no node's allocatable. They count as the extended resource of their device
class, `amd.com/gpu`, or else as a resource with the name of their driver, `gpu.amd.com`. Limits for
which the scheduler made a claim are in a container's limits too, and count once, by the claim.

The unit is the card: partitions that draw on one set of counters, and all shares of a device,
are one GPU with several holders.

The API fields are the same in v1, v1beta2 and v1beta1, unless a docstring says otherwise.

Source: Kubernetes, "Dynamic Resource Allocation"; API reference, `resource.k8s.io`; KEP-5004
(extended resources), 4815 (partitions), 5075 (shares), 5729 (claims of a PodGroup), 5055 (taints).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from k8s.models.accelerators import Counts, is_accelerator
from k8s.models.base import Meta, Value
from k8s.models.node import Node, Taint
from k8s.models.pod import Pod
from k8s.models.resources import DEVICE_GROUP, DEVICE_VERSIONS, Resource


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
    """An object that may use the allocated devices: a pod, or a PodGroup whose pods may."""

    resource: str = ""
    name: str = ""
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


class CounterConsumption(Value, frozen=True):
    """The set of counters from which a partition of a card takes its part."""

    counter_set: str = ""


class BasicDevice(Value, frozen=True):
    """The properties of a device."""

    node_name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    consumes_counters: list[CounterConsumption] | None = None
    taints: list[Taint] | None = None


class SliceDevice(BasicDevice, frozen=True):
    """A device in a ResourceSlice; v1beta1 has its properties in `basic`."""

    name: str = ""
    basic: BasicDevice | None = None

    @property
    def properties(self) -> BasicDevice:
        """The properties, in whatever version."""
        return self.basic or self

    @property
    def card(self) -> str:
        """The counter set of the card that it is a part or the whole of; else its own name."""
        consumed = self.properties.consumes_counters
        return consumed[0].counter_set if consumed else self.name

    @property
    def is_counted(self) -> bool:
        """Return False for a device that offers a card already counted as another device."""
        attributes = self.properties.attributes or {}
        kind = attributes["type"].string if "type" in attributes else ""
        return kind not in _PARTS or bool(self.properties.consumes_counters)


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


class DeviceTaintRuleSpec(Value, frozen=True):
    """A taint, and the devices that have it; none without a selector."""

    device_selector: dict[str, Any] | None = None
    """Has `driver`, `pool` and `device`; a rule with the CEL of older versions selects nothing here."""
    taint: Taint = Taint()

    def selects(self, of: ResourceSliceSpec, device: SliceDevice) -> bool:
        """Return True if it taints a device of a slice."""
        chosen, found = self.device_selector, (of.driver, of.pool.name, device.name)
        names = dict(zip(("driver", "pool", "device"), found, strict=True))
        return chosen is not None and all(names.get(key) == name for key, name in chosen.items() if name)


class DeviceTaintRule(Value, frozen=True):
    """A taint that an administrator gives to devices, beside those in slices."""

    metadata: Meta
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class DeviceClassSpec(Value, frozen=True):
    """Conditions that all devices of a class meet, and the extended resource that they serve."""

    selectors: list[dict[str, dict[str, str]]] | None = None
    """Each with a CEL `expression`, as `device.driver == "gpu.amd.com"`."""
    extended_resource_name: str = ""


class DeviceClass(Value, frozen=True):
    """A class of devices that claims request."""

    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


DeviceObject = ResourceClaim | ResourceSlice | DeviceClass | DeviceTaintRule


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Claims, classes, taint rules, or the slices in which drivers advertise devices, in one API version."""

    resource: Resource
    value_type: type[DeviceObject]


DEVICE_KINDS = tuple(
    DeviceKind(
        Resource(DEVICE_GROUP, version, plural, value_type.__name__, is_namespaced=is_namespaced), value_type
    )
    for plural, value_type, is_namespaced in (
        ("resourceclaims", ResourceClaim, True),
        ("resourceslices", ResourceSlice, False),
        ("deviceclasses", DeviceClass, False),
        ("devicetaintrules", DeviceTaintRule, False),
    )
    for version in DEVICE_VERSIONS
    if version != ("v1beta1" if value_type is DeviceTaintRule else "v1alpha3")
)
"""Readable kinds, the newest version first."""
_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
# Device types that duplicate others: partitions of a device, or another way to use it.
_PARTS = frozenset({"mig", "vfio", "amdgpu-partition"})
_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
_OF_PARTS = re.compile(f"""["']({"|".join(sorted(_PARTS))})["']""")

T = TypeVar("T", Node, Pod)


class Advertised(NamedTuple):
    """Cards of a node by resource: those that can be claimed, and all of them."""

    allocatable: Counts
    capacity: Counts
    tainted: dict[str, list[str]]
    """Names of devices by the taint that a claim must tolerate to get them."""


def resource_by_driver(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return the extended resource that the whole devices of a driver serve, if there is exactly one."""
    found: dict[str, set[str]] = {}
    for each in classes:
        name = each.spec.extended_resource_name
        conditions = (selector.get("cel", {}) for selector in each.spec.selectors or ())
        text = " ".join(found.get("expression", "") for found in conditions)
        if is_accelerator(name) and not _OF_PARTS.search(text):
            for driver in _DRIVER.findall(text):
                found.setdefault(driver, set()).add(name)
    return {driver: names.pop() for driver, names in found.items() if len(names) == 1}


def held_by_pod(
    claims: Iterable[ResourceClaim],
    pods: Iterable[Pod] = (),
    slices: Iterable[ResourceSlice] = (),
    resources: Mapping[str, str] | None = None,
) -> dict[str, Counts]:
    """Return the cards of each pod that holds any: pod UID to resource to count.

    A card counts for the first pod that has it or a part of it, so that the sum is the number in use;
    other pods have a count of 0. `resources` has the resource of a driver, unless that is its name.
    """
    held: dict[str, Counts] = {}
    counted = set()
    cards = {
        (spec.driver, spec.pool.name, device.name): device.card
        for spec in _newest(slices)
        for device in spec.devices
    }
    pods = list(pods)
    finished = {pod.metadata.uid for pod in pods if pod.is_finished}
    for claim in sorted(claims, key=lambda claim: (claim.metadata.namespace, claim.metadata.name)):
        allocation = claim.status.allocation
        users = [uid for uid in _users(claim, pods) if uid not in finished]
        for result in (allocation.devices.results or ()) if allocation is not None else ():
            resource = (resources or {}).get(result.driver, result.driver)
            if not users or result.admin_access or not is_accelerator(resource):
                continue
            device = (result.driver, result.pool, result.device)
            card = (result.driver, result.pool, cards.get(device, result.device))
            for uid in users:
                counts = held.setdefault(uid, {})
                counts[resource] = counts.get(resource, 0) + (card not in counted)
                counted.add(card)
    return held


def _users(claim: ResourceClaim, pods: Iterable[Pod]) -> Iterator[str]:
    # A claim that is reserved for a PodGroup does not list the pods.
    meta = claim.metadata
    for consumer in claim.status.reserved_for or ():
        if consumer.resource == "pods":
            yield consumer.uid
        elif consumer.resource == "podgroups":
            for pod in pods:
                is_member = (pod.spec.scheduling_group or {}).get("podGroupName") == consumer.name
                if is_member and pod.metadata.namespace == meta.namespace and meta.name in pod.claim_names:
                    yield pod.metadata.uid


def _newest(slices: Iterable[ResourceSlice]) -> list[ResourceSliceSpec]:
    found = [each.spec for each in slices]
    newest: dict[tuple[str, str], int] = {}
    for spec in found:
        pool = (spec.driver, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    return [spec for spec in found if spec.pool.generation >= newest[spec.driver, spec.pool.name]]


def advertised_by_node(
    slices: Iterable[ResourceSlice],
    resources: Mapping[str, str] | None = None,
    rules: Iterable[DeviceTaintRule] = (),
) -> dict[str, Advertised]:
    """Return the cards that can be claimed on each node, by node name."""
    found: dict[str, Advertised] = {}
    rules = [each for each in rules if each.spec.taint.effect in _EFFECTS]
    usable: dict[tuple[str, str, str, str], bool] = {}
    for spec in _newest(slices):
        resource = (resources or {}).get(spec.driver, spec.driver)
        for device in spec.devices if is_accelerator(resource) else ():
            if device.is_counted:
                node = spec.node_name or device.properties.node_name
                card = (node, resource, spec.pool.name, device.card)
                taints = [str(each) for each in device.properties.taints or () if each.effect in _EFFECTS]
                chosen = [each for each in rules if each.spec.selects(spec, device)]
                taints += [f"{each.spec.taint} (rule {each.metadata.name})" for each in chosen]
                usable[card] = usable.get(card, False) or not taints
                tainted = found.setdefault(node, Advertised({}, {}, {})).tainted
                for taint in taints:
                    tainted.setdefault(taint, []).append(device.name)
    for (node, resource, _, _), is_usable in usable.items():
        allocatable, capacity, _tainted = found[node]
        allocatable[resource] = allocatable.get(resource, 0) + is_usable
        capacity[resource] = capacity.get(resource, 0) + 1
    return found


class DeviceClaims:
    """Merges claims and slices into pods and nodes; an unchanged result is the same object as before."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Pod, Counts, Pod]] = {}
        self._nodes: dict[str, tuple[Node, Advertised, Node]] = {}

    def merge(
        self, nodes: Iterable[Node], pods: Iterable[Pod], devices: Iterable[DeviceObject]
    ) -> tuple[Iterable[Node], Iterable[Pod]]:
        """Return the nodes with the devices they advertise, and the pods with the devices they hold."""
        devices = list(devices)
        claims = [each for each in devices if isinstance(each, ResourceClaim)]
        slices = [each for each in devices if isinstance(each, ResourceSlice)]
        resources = resource_by_driver(each for each in devices if isinstance(each, DeviceClass))
        rules = [each for each in devices if isinstance(each, DeviceTaintRule)]
        offered = advertised_by_node(slices, resources, rules)
        held = held_by_pod(claims, pods, slices, resources) if claims else {}
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
    known: dict[str, tuple[T, Any, T]], key: str, obj: T, found: Any, make: Callable[[T, Any], T]
) -> T:
    before = known.get(key)
    if before is None or before[0] is not obj or before[1] != found:
        before = known[key] = (obj, found, make(obj, found))
    return before[2]


def _with_advertised(node: Node, advertised: Advertised) -> Node:
    status = node.status
    return replace(
        node,
        status=replace(
            status,
            allocatable={**(status.allocatable or {}), **advertised.allocatable},
            capacity={**(status.capacity or {}), **advertised.capacity},
            tainted_devices=advertised.tainted,
        ),
    )


def _with_claims(pod: Pod, counts: Counts) -> Pod:
    extended = pod.status.extended_resource_claim_status
    mappings = (extended.request_mappings or ()) if extended is not None else ()
    limits = tuple(sorted({each.get("resourceName", "") for each in mappings}))
    return replace(pod, spec=replace(pod.spec, claimed=counts, claimed_limits=limits))
