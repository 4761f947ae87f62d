"""Small networks for small images: they learn digits in a minute on one core."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

ImageShape = tuple[int, int, int]
"""Channels, height and width."""

Head = Callable[[int], list[nn.Module]]
"""Makes the layers behind so many features."""


def small_cnn(shape: ImageShape, classes: int) -> nn.Module:
    """Make a network of 120,000 weights for 28x28 images."""
    return _with_head(
        shape,
        [
            nn.Conv2d(shape[0], 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ],
        lambda width: [
            nn.Linear(width, 64),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
            nn.Linear(64, classes),
        ],
    )


def lenet(shape: ImageShape, classes: int) -> nn.Module:
    """Make LeNet-5 with rectified units: 62,000 weights for 28x28 images."""
    return _with_head(
        shape,
        [
            nn.Conv2d(shape[0], 6, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ],
        lambda width: [
            nn.Linear(width, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, classes),
        ],
    )


def t9k_cnn(shape: ImageShape, classes: int) -> nn.Module:
    """Make the network of T9k's tutorial on parallel training, without its softmax.

    Cross entropy takes logits: after a softmax it would learn from squashed gradients.
    """
    return _with_head(
        shape,
        [
            nn.Conv2d(shape[0], 32, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(inplace=True),
        ],
        lambda width: [nn.Linear(width, 64), nn.ReLU(inplace=True), nn.Linear(64, classes)],
    )


def _with_head(shape: ImageShape, features: list[nn.Module], head: Head) -> nn.Module:
    """Put a head behind `features` that is as wide as what these make of an image."""
    with torch.no_grad():
        made: Tensor = nn.Sequential(*features)(torch.zeros(1, *shape))
    return Stack(*features, nn.Flatten(), *head(made.numel()))


class Stack(nn.Sequential):
    """Layers one after the other, for torch.compile too, which leaves torch's own modules as they are."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Return logits_BK."""
        made = images_BCHW
        for layer in self:
            made = layer(made)
        return made
