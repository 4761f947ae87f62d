"""A network by its name, for the shape of what it is to learn."""

import torch
from torch import Tensor, nn

from trainer.ddp.models.convolutional import ImageShape, lenet, small_cnn, t9k_cnn
from trainer.ddp.models.gpt import Gpt, GptSize
from trainer.distributed.torchvision import import_torchvision
from trainer.messages import InvalidArguments

OWN = {"cnn": small_cnn, "lenet": lenet, "t9k-cnn": t9k_cnn}
"""Ours for images, by name."""

_WITH_EXTRA_OUTPUTS = ("googlenet", "inception_v3")
"""Those that return more than logits unless told not to, and warn unless told how to start."""


def make_model(
    name: str, shape: ImageShape = (1, 28, 28), classes: int = 10, *, image_size: int = 0
) -> nn.Module:
    """Make a network that turns images_BCHW (floats) into logits_BK.

    Args:
        name: One of ours, or one of torchvision's classification models.
        shape: Of an image.
        classes: K.
        image_size: Height and width that torchvision's network gets, resized; 0 leaves images as they are.

    Raises:
        TrainingError: torchvision is not installed, has no such network, or it takes no such images.
    """
    if name in OWN:
        try:
            return OWN[name](shape, classes)
        except RuntimeError as error:
            raise _too_small(name, shape) from error
    models = import_torchvision("models", "--model cnn")
    more = {"aux_logits": False, "init_weights": True} if name in _WITH_EXTRA_OUTPUTS else {}
    try:
        network: nn.Module = models.get_model(name, weights=None, num_classes=classes, **more)
    except ValueError as error:
        raise InvalidArguments(
            f"--model {name}: this torchvision has no such network.",
            now="Install a newer torchvision, or choose another.",
        ) from error
    return nn.Sequential(_Coloured(image_size), network)


def make_gpt(size: GptSize) -> Gpt:
    """Make a GPT.

    Raises:
        InvalidArguments: The width cannot be split into so many heads.
    """
    if size.width % size.heads:
        raise InvalidArguments(
            f"--width {size.width} is no multiple of --heads {size.heads}.",
            now="Choose a width that is.",
        )
    return Gpt(size)


def check_input(network: nn.Module, name: str, shape: ImageShape, device: torch.device) -> None:
    """Let two images through once, without learning from them.

    Raises:
        InvalidArguments: The network takes no images of this shape.
    """
    was_training = network.training
    network.eval()
    parameter = next(network.parameters())
    try:
        with torch.no_grad():
            network(torch.zeros(2, *shape, device=device, dtype=parameter.dtype))
    except (RuntimeError, ValueError, AssertionError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise _too_small(name, shape) from error
    finally:
        network.train(was_training)


def _too_small(name: str, shape: ImageShape) -> InvalidArguments:
    size = "x".join(map(str, shape[1:]))
    return InvalidArguments(
        f"--model {name} takes no images of {size}.",
        now="Choose another --image-size (most take 224, inception_v3 299), or another --model.",
    )


class _Coloured(nn.Module):
    """Make images what torchvision's networks expect: three channels, and a size they take.

    Grey images of 28x28 become 32x32, with a border.
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size

    def forward(self, images_BCHW: Tensor) -> Tensor:
        height = images_BCHW.shape[-1]
        if self.size and height != self.size:
            images_BCHW = nn.functional.interpolate(
                images_BCHW, (self.size, self.size), mode="bilinear", antialias=height > self.size
            )
        elif height == 28:
            images_BCHW = nn.functional.pad(images_BCHW, (2, 2, 2, 2))
        return images_BCHW.expand(-1, 3, -1, -1)
