"""The networks that are measured, and the images that each one takes."""

import torch
from torch import Tensor, nn

from trainer.distributed.torchvision import import_torchvision

CLASSES = 1000
"""ImageNet's, whichever the network."""


def make_network(name: str) -> tuple[nn.Module, int]:
    """Make a network that turns images_B3HW into logits_BC; returns it and H, which is also W.

    Raises:
        TrainingError: torchvision is not installed.
    """
    if name == "tiny":
        return tiny(), 32
    network: nn.Module = getattr(import_torchvision("models", "--model tiny"), name)()
    return network, 224


def tiny() -> nn.Module:
    """Make a network of 17,000 weights, to try a launcher with rather than a GPU."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=4),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def random_batch(batch_size: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Make one batch of noise: images_B3HW as normal numbers, and labels_B."""
    images_B3HW = torch.randn(batch_size, 3, size, size, device=device)
    return images_B3HW, torch.randint(CLASSES, (batch_size,), device=device)
