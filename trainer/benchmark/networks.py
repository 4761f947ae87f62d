"""Networks to measure, and their input."""

import torch
from torch import Tensor, nn

from trainer.distributed.torchvision import import_torchvision

CLASSES = 1000


def make_network(name: str) -> tuple[nn.Module, int]:
    """Return a network that turns images_B3HW into logits_BC, and H, which is also W.

    Raises:
        TrainingError: torchvision is not installed.
    """
    if name == "tiny":
        return tiny(), 32
    network: nn.Module = getattr(import_torchvision("models", "--model tiny"), name)()
    return network, 224


def tiny() -> nn.Module:
    """Return a network of 17,000 weights, for trying out a launcher."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=4),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def random_batch(batch_size: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a batch of noise: images_B3HW, normally distributed, and labels_B."""
    images_B3HW = torch.randn(batch_size, 3, size, size, device=device)
    return images_B3HW, torch.randint(CLASSES, (batch_size,), device=device)
