"""Devices given by name, `resource.k8s.io`: what a claim got, and what a node's drivers offer.

The fields read here are the same in v1, v1beta2 and v1beta1, save where they are noted.
"""

from __future__ import annotations

import msgspec

from k8s.models.base import Meta, Value


class AllocatedDevice(Value, frozen=True):
    """A device that a claim was given."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    """For looking after the device; whoever uses it goes on."""


class DeviceAllocation(Value, frozen=True):
    """`status.allocation.devices`: the devices allocated to a claim."""

    results: list[AllocatedDevice] | None = None


class ClaimAllocation(Value, frozen=True):
    """`status.allocation`; only its devices are kept."""

    devices: DeviceAllocation = DeviceAllocation()


class ClaimConsumer(Value, frozen=True):
    """Who may use what a claim was given."""

    resource: str = ""
    uid: str = ""


class ResourceClaimStatus(Value, frozen=True):
    """What was allocated, and to which pods it is reserved."""

    allocation: ClaimAllocation | None = None
    reserved_for: list[ClaimConsumer] | None = None


class ResourceClaim(Value, frozen=True):
    """A request for devices, and which were allocated."""

    metadata: Meta
    status: ResourceClaimStatus = ResourceClaimStatus()


class DevicePool(Value, frozen=True):
    """Which devices belong together; slices of older generations are out of date."""

    name: str = ""
    generation: int = 0


class DeviceAttribute(Value, frozen=True):
    """Something about a device, as far as it is text."""

    string: str = ""


class BasicDevice(Value, frozen=True):
    """What v1beta1 says of a device, one step further in."""

    attributes: dict[str, DeviceAttribute] | None = None


class SliceDevice(Value, frozen=True):
    """A device in a ResourceSlice; its attributes lie in `basic` in v1beta1."""

    name: str = ""
    node_name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    basic: BasicDevice = BasicDevice()

    @property
    def type(self) -> str:
        """Return what the driver calls this type of device: `gpu`, `mig`; empty when it does not tell."""
        attributes = self.attributes or self.basic.attributes or {}
        return attributes["type"].string if "type" in attributes else ""


class ResourceSliceSpec(Value, frozen=True):
    """The devices of a driver on a node."""

    driver: str = ""
    node_name: str = ""
    pool: DevicePool = DevicePool()
    devices: list[SliceDevice] = msgspec.field(default_factory=list)


class ResourceSlice(Value, frozen=True):
    """Devices that a driver offers."""

    metadata: Meta
    spec: ResourceSliceSpec = ResourceSliceSpec()
