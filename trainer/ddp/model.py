"""The networks a trainer can train: a small one of our own, and torchvision's."""

from torch import Tensor, nn

from trainer.distributed.torchvision import import_torchvision


def make_model(name: str) -> nn.Module:
    """Make a network that turns images_B1HW (floats, 0 to 1) into logits_B10.

    Raises:
        TrainingError: torchvision is not installed.
    """
    if name == "cnn":
        return small_cnn()
    network: nn.Module = getattr(import_torchvision("models", "--model cnn"), name)(num_classes=10)
    return nn.Sequential(_Coloured(), network)


def small_cnn() -> nn.Module:
    """Make a network of 120,000 weights that learns digits in a minute on one core."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(inplace=True),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


class _Coloured(nn.Module):
    """Make grey 28x28 images what torchvision's networks expect: three channels, 32x32."""

    def forward(self, images_B1HW: Tensor) -> Tensor:
        return nn.functional.pad(images_B1HW, (2, 2, 2, 2)).expand(-1, 3, -1, -1)
