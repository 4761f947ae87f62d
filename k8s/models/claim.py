"""Persistent volume claims: what jobs keep things on that must outlive them."""

from __future__ import annotations

from k8s.models.base import Meta, Quantities, Value

_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


class ClaimResources(Value, frozen=True):
    """The `storage` that a claim requests."""

    requests: Quantities | None = None


class ClaimSpec(Value, frozen=True):
    """What is asked for; `volume_name` is filled in once a volume is bound."""

    access_modes: list[str] | None = None
    resources: ClaimResources = ClaimResources()
    storage_class_name: str = ""
    volume_name: str = ""


class ClaimStatus(Value, frozen=True):
    """The phase, and what the bound volume really offers."""

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
        """Return how it may be mounted: as it is, or else as it was asked for."""
        return tuple(self.status.access_modes or self.spec.access_modes or ())

    @property
    def short_modes(self) -> str:
        """Return the same in kubectl's letters: `RWX,ROX`."""
        return ",".join(_SHORT_MODES.get(mode, mode) for mode in self.access_modes)

    @property
    def size(self) -> str:
        """Return how much it holds, or else is to hold, as a quantity; empty when nobody says."""
        found = self.status.capacity or self.spec.resources.requests or {}
        return str(found.get("storage", ""))

    @property
    def state(self) -> str:
        """Return `Terminating` while it goes, else its phase: Bound, Pending, Lost."""
        return "Terminating" if self.metadata.deletion_timestamp else self.status.phase
