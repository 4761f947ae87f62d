"""Networks that turn a batch into logits: small ones for images, a GPT, and torchvision's classifiers."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainer.distributed.runtime import import_torchvision
from trainer.messages import InvalidArguments


class Stack(nn.Sequential):
    """Layers in sequence."""

    # torch.compile does not compile torch's own modules, such as a bare nn.Sequential.

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Return logits_BK."""
        hidden = images_BCHW
        for layer in self:
            hidden = layer(hidden)
        return hidden


def _conv(channels: int, out: int, size: int, padding: int = 0, *, is_pooled: bool = True) -> list[nn.Module]:
    pool = [nn.MaxPool2d(2)] if is_pooled else []
    return [nn.Conv2d(channels, out, size, padding=padding), nn.ReLU(inplace=True), *pool]


def _classifier(
    shape: tuple[int, ...], classes: int, features: list[nn.Module], hidden: list[int], dropout: float = 0.0
) -> nn.Module:
    with torch.no_grad():
        output: Tensor = nn.Sequential(*features)(torch.zeros(1, *shape))
    widths = [output.numel(), *hidden]
    head: list[nn.Module] = []
    for width, out in pairwise(widths):
        head += [nn.Linear(width, out), nn.ReLU(inplace=True)]
    if dropout:
        head.append(nn.Dropout(dropout))
    return Stack(*features, nn.Flatten(), *head, nn.Linear(widths[-1], classes))


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of 120,000 weights for 28x28 images."""
    features = [*_conv(shape[0], 16, 3, padding=1), *_conv(16, 32, 3, padding=1)]
    return _classifier(shape, classes, features, [64], dropout=0.2)


def lenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return LeNet-5 with ReLUs: 62,000 weights for 28x28 images."""
    features = [*_conv(shape[0], 6, 5, padding=2), *_conv(6, 16, 5)]
    return _classifier(shape, classes, features, [120, 84])


def t9k_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network of T9k's tutorial, without its softmax: cross entropy takes logits."""
    features = [*_conv(shape[0], 32, 3), *_conv(32, 64, 3), *_conv(64, 64, 3, is_pooled=False)]
    return _classifier(shape, classes, features, [64])


OWN_IMAGE_MODELS = {"cnn": small_cnn, "lenet": lenet, "t9k-cnn": t9k_cnn}
# These return more than logits, and warn, unless told otherwise.
_WITH_EXTRA_OUTPUTS = ("googlenet", "inception_v3")


def make_model(
    name: str, shape: tuple[int, ...] = (1, 28, 28), classes: int = 10, *, image_size: int = 0
) -> nn.Module:
    """Return a network from images_BCHW, floats of this `shape` (C, H, W), to logits_BK.

    torchvision's classifiers resize the images to `image_size`, if it is not 0.
    """
    if name in OWN_IMAGE_MODELS:
        try:
            return OWN_IMAGE_MODELS[name](shape, classes)
        except RuntimeError as error:
            raise _wrong_size(name, shape) from error
    models = import_torchvision("models", "--model cnn")
    more = {"aux_logits": False, "init_weights": True} if name in _WITH_EXTRA_OUTPUTS else {}
    try:
        network: nn.Module = models.get_model(name, weights=None, num_classes=classes, **more)
    except ValueError as error:
        what, now = f"--model {name}: this torchvision has no such network.", "Install a newer one."
        raise InvalidArguments(what, now=now) from error
    return nn.Sequential(_ToColor(image_size), network)


def check_input(network: nn.Module, name: str, shape: tuple[int, ...], device: torch.device) -> None:
    """Check that the network accepts images of this shape: run two through it, without training."""
    was_training = network.training
    network.eval()
    dtype = next(network.parameters()).dtype
    try:
        with torch.no_grad():
            network(torch.zeros(2, *shape, device=device, dtype=dtype))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, AssertionError) as error:
        raise _wrong_size(name, shape) from error
    finally:
        network.train(was_training)


def _wrong_size(name: str, shape: tuple[int, ...]) -> InvalidArguments:
    what = f"--model {name} does not accept images of {'x'.join(map(str, shape[1:]))}."
    now = "Choose another --image-size (most need 224, inception_v3 299), or another --model."
    return InvalidArguments(what, now=now)


class _ToColor(nn.Module):
    """Converts images to three channels and to `size`; without a size, pads 28x28 to 32x32."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size

    def forward(self, images_BCHW: Tensor) -> Tensor:
        height = images_BCHW.shape[-1]
        if self.size and height != self.size:
            size, shrinks = (self.size, self.size), height > self.size
            images_BCHW = nn.functional.interpolate(images_BCHW, size, mode="bilinear", antialias=shrinks)
        elif height == 28:
            images_BCHW = nn.functional.pad(images_BCHW, (2, 2, 2, 2))
        return images_BCHW.expand(-1, 3, -1, -1)


@dataclass(frozen=True, slots=True)
class GptSize:
    """Size of a GPT."""

    vocabulary: int
    length: int  # longest sequence, in tokens
    layers: int
    heads: int
    width: int  # size of an embedding, a multiple of `heads`


class Gpt(nn.Module):
    """A pre-norm decoder with learned positions and tied input and output embeddings."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.size = size
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(GptBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self._init_weights)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return logits_BTV for the token after each."""
        hidden_BTC = self.tokens(tokens_BT) + self.positions.weight[: tokens_BT.shape[1]]
        for block in self.blocks:
            hidden_BTC = block(hidden_BTC)
        logits_BTV: Tensor = self.head(self.norm(hidden_BTC))
        return logits_BTV

    def _init_weights(self, module: nn.Module) -> None:
        # As GPT-2: smaller for layers that add to the residual stream, of which there are two per block.
        if isinstance(module, nn.Linear | nn.Embedding):
            is_residual = getattr(module, "adds_to_residual", False)
            std = 0.02 / math.sqrt(2 * self.size.layers) if is_residual else 0.02
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class GptBlock(nn.Module):
    """Causal self-attention and an MLP of four times the width."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.attention_norm = nn.LayerNorm(size.width)
        self.query_key_value = nn.Linear(size.width, 3 * size.width)
        self.attention_out = nn.Linear(size.width, size.width)
        self.mlp_norm = nn.LayerNorm(size.width)
        self.mlp_in = nn.Linear(size.width, 4 * size.width)
        self.mlp_out = nn.Linear(4 * size.width, size.width)
        for last in (self.attention_out, self.mlp_out):
            last.adds_to_residual = True  # type: ignore[assignment]

    def forward(self, hidden_BTC: Tensor) -> Tensor:
        """Return the new hidden state (B, T, C)."""
        hidden_BTC = hidden_BTC + self._attend(self.attention_norm(hidden_BTC))
        mlp_BTC: Tensor = self.mlp_out(nn.functional.gelu(self.mlp_in(self.mlp_norm(hidden_BTC))))
        return hidden_BTC + mlp_BTC

    def _attend(self, hidden_BTC: Tensor) -> Tensor:
        B, T, C = hidden_BTC.shape
        split = self.query_key_value(hidden_BTC).view(B, T, 3, self.heads, C // self.heads)
        query_BHTD, key_BHTD, value_BHTD = split.permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention
        mixed_BHTD = attention(query_BHTD, key_BHTD, value_BHTD, is_causal=True)
        out: Tensor = self.attention_out(mixed_BHTD.transpose(1, 2).reshape(B, T, C))
        return out
