"""Noise to learn nothing from: what a step costs without files. The same seed makes the same noise."""

from dataclasses import dataclass

import torch
from torch import Tensor

DIFFERENT = 256
"""Images and sequences that differ; then they come again, so that few lie in memory."""


@dataclass(frozen=True, slots=True)
class Noise:
    """So many samples of noise, on one device."""

    count: int
    """Samples there are said to be."""
    inputs: Tensor
    """(D, C, H, W) uint8, or (D, T) int64."""
    targets: Tensor
    """(D,), or (D, T), int64."""

    @property
    def device(self) -> torch.device:
        """Where the noise lies."""
        return self.targets.device

    @property
    def is_slow(self) -> bool:
        """No."""
        return False

    def __len__(self) -> int:
        return self.count

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets; those of an index are always the same."""
        indices_B = indices_B % len(self.targets)
        return self.inputs[indices_B], self.targets[indices_B]

    def to(self, device: torch.device) -> "Noise":
        """Return the same noise on `device`."""
        return Noise(self.count, self.inputs.to(device), self.targets.to(device))


def noise_images(count: int, size: int, classes: int, seed: int) -> Noise:
    """Make colour images of noise with labels at random."""
    random = torch.Generator().manual_seed(seed)
    different = min(count, DIFFERENT)
    pixels = torch.randint(256, (different, 3, size, size), dtype=torch.uint8, generator=random)
    return Noise(count, pixels, torch.randint(classes, (different,), generator=random))


def noise_tokens(count: int, length: int, vocabulary: int, seed: int) -> Noise:
    """Make sequences of tokens at random, each with the token after."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (min(count, DIFFERENT), length + 1), generator=random)
    return Noise(count, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
