"""A small GPT: what language models are made of, at a size that a test or a benchmark wants."""

import math
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class GptSize:
    """How large a GPT is."""

    vocabulary: int
    """Tokens there are; 256 for bytes."""
    length: int
    """Tokens of a sequence at most."""
    layers: int
    """Blocks of attention and perceptron."""
    heads: int
    """Attention heads of a block."""
    width: int
    """Numbers that stand for a token between blocks; a multiple of `heads`."""


class Gpt(nn.Module):
    """A decoder with learned positions, norms before each part, and one matrix for tokens in and out."""

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
        """Start as GPT-2 does: normal, and smaller where many blocks add to one sum."""
        if isinstance(module, nn.Linear | nn.Embedding):
            is_last = getattr(module, "adds_to_the_sum", False)
            spread = 0.02 / math.sqrt(2 * self.size.layers) if is_last else 0.02
            nn.init.normal_(module.weight, std=spread)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class GptBlock(nn.Module):
    """Causal attention, then a perceptron of four times the width."""

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
            last.adds_to_the_sum = True  # type: ignore[assignment]

    def forward(self, hidden_BTC: Tensor) -> Tensor:
        """Return the hidden state with what this block adds to it."""
        hidden_BTC = hidden_BTC + self._attend(self.attention_norm(hidden_BTC))
        mlp_BTC: Tensor = self.mlp_out(nn.functional.gelu(self.mlp_in(self.mlp_norm(hidden_BTC))))
        return hidden_BTC + mlp_BTC

    def _attend(self, hidden_BTC: Tensor) -> Tensor:
        batch, length, width = hidden_BTC.shape
        split = self.query_key_value(hidden_BTC).view(batch, length, 3, self.heads, width // self.heads)
        query_BHTD, key_BHTD, value_BHTD = split.permute(2, 0, 3, 1, 4)
        mixed_BHTD = nn.functional.scaled_dot_product_attention(
            query_BHTD, key_BHTD, value_BHTD, is_causal=True
        )
        out: Tensor = self.attention_out(mixed_BHTD.transpose(1, 2).reshape(batch, length, width))
        return out


def training_flops_per_token(model: Gpt) -> int:
    """Count the floating-point operations of a forward and backward pass, for each token.

    Six for each weight of a matrix, and twelve times width and length a layer for
    attention, of which none is left out as masked: as PaLM's appendix B counts.
    """
    size = model.size
    weights = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear))
    return 6 * weights + 12 * size.layers * size.width * size.length
