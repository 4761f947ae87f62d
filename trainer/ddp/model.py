"""The networks a trainer can train: a small one of our own, and torchvision's."""

import importlib
from types import ModuleType

import torch
from torch import Tensor, nn

from trainer.messages import TrainingError

_shims: list[torch.library.Library] = []


def make_model(name: str) -> nn.Module:
    """Make a network that turns images_B1HW (floats, 0 to 1) into logits_B10.

    Raises:
        TrainingError: torchvision is not installed.
    """
    if name == "cnn":
        return small_cnn()
    network: nn.Module = getattr(import_torchvision("models"), name)(num_classes=10)
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


def import_torchvision(part: str) -> ModuleType:
    """Import `torchvision.<part>`, also where its compiled operators do not load.

    The wheels on PyPI are linked to CUDA. Under a torch without CUDA their
    operators stay away, and the import fails on registering shapes for two of
    them; with the two declared it succeeds, and what is plain Python works.

    Raises:
        TrainingError: torchvision is not installed.
    """
    try:
        return importlib.import_module(f"torchvision.{part}")
    except ModuleNotFoundError as error:
        raise TrainingError(
            "torchvision is not installed.",
            str(error) + ".",
            "Install gpuconsole[trainer], or use --model cnn.",
        ) from error
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    _shims.append(declared)
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor metricss, float iou_threshold) -> Tensor"
        declared.define(schema)  # type: ignore[no-untyped-call]
    return importlib.import_module(f"torchvision.{part}")
