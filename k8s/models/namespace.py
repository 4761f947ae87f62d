"""Namespaces, resource quotas and persistent volume claims."""

from __future__ import annotations

from typing import Any

from k8s.models.base import Meta, Quantities, Value


class NamespaceStatus(Value, frozen=True):
    """The phase, `Active` or `Terminating`."""

    phase: str = ""


class Namespace(Value, frozen=True):
    """A `v1.Namespace`."""

    metadata: Meta
    status: NamespaceStatus = NamespaceStatus()


class QuotaSpec(Value, frozen=True):
    """The pods that a quota counts; all if both fields are None."""

    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Value, frozen=True):
    """Limits and usage."""

    hard: Quantities | None = None
    used: Quantities | None = None


class Quota(Value, frozen=True):
    """A `v1.ResourceQuota`."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


class ClaimResources(Value, frozen=True):
    """The requested `storage`."""

    requests: Quantities | None = None


class ClaimSpec(Value, frozen=True):
    """The requested volume; `volume_name` is empty until it is bound."""

    access_modes: list[str] | None = None
    resources: ClaimResources = ClaimResources()
    storage_class_name: str = ""
    volume_name: str = ""


class ClaimStatus(Value, frozen=True):
    """The phase, and the properties of the bound volume."""

    phase: str = ""
    access_modes: list[str] | None = None
    capacity: Quantities | None = None


class Claim(Value, frozen=True):
    """A `v1.PersistentVolumeClaim`."""

    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def access_modes(self) -> tuple[str, ...]:
        """The access modes of the volume, or the requested ones while it is not bound."""
        return tuple(self.status.access_modes or self.spec.access_modes or ())

    @property
    def short_modes(self) -> str:
        """The access modes in kubectl's abbreviations: `RWX,ROX`."""
        return ",".join(_SHORT_MODES.get(mode, mode) for mode in self.access_modes)

    @property
    def size(self) -> str:
        """The capacity, or the requested size while not bound; empty if neither is known."""
        found = self.status.capacity or self.spec.resources.requests or {}
        return str(found.get("storage", ""))

    @property
    def state(self) -> str:
        """`Terminating` while it is being deleted, else the phase: Bound, Pending, Lost."""
        return "Terminating" if self.metadata.deletion_timestamp else self.status.phase
