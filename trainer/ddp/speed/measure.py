"""How fast a training is, in images or tokens a second, and as a share of the device's peak."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeedScale:
    """What a sample counts for."""

    unit: str = "images"
    """images or tokens."""
    units_per_sample: int = 1
    """How many of these a sample is."""
    flops_per_sample: int = 0
    """Operations of a forward and backward pass for one; 0 where they are not counted."""
    peak_flops: float = 0.0
    """The most that all devices together do in a second; 0 where it is not known."""

    def per_s(self, samples_per_s: float) -> float:
        """Return images or tokens a second."""
        return samples_per_s * self.units_per_sample

    def scalars(self, samples_per_s: float) -> dict[str, float]:
        """Return the speed by tag; MFU, 0 to 1, only of devices whose peak is known."""
        found = {f"train/{self.unit}_per_s": self.per_s(samples_per_s)}
        if self.peak_flops and self.flops_per_sample:
            found["train/mfu"] = samples_per_s * self.flops_per_sample / self.peak_flops
        return found
