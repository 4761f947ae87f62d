"""An average of the weights over the last steps, which is often better than the weights themselves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainer.ddp.step.parallel import parts_like


class AveragedWeights:
    """An exponential moving average of a network's weights, validated and kept in place of them."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._network_weights = list(network.parameters())
        self._decay = decay
        self.weights = [weight.detach().clone() for weight in self._network_weights]
        """The averages, in the order of the network's parameters."""
        self.steps = 0
        """Steps taken in."""

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step; the first steps count more, so that none starts from noise."""
        self.steps += 1
        decay = min(self._decay, self.steps / (self.steps + 10))
        torch._foreach_lerp_(_own(self.weights), _own(self._network_weights), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averages where the weights are, and the weights back at the end."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, average in zip(_own(self._network_weights), _own(self.weights), strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    @torch.no_grad()
    def load(self, whole_weights: Sequence[Tensor], steps: int) -> None:
        """Bring back what a checkpoint holds.

        Raises:
            ValueError: They are of another network.
        """
        for average, whole in zip(self.weights, whole_weights, strict=True):
            if average.shape != whole.shape:
                raise ValueError("averages of another shape")
            average.copy_(parts_like(whole, average))
        self.steps = steps

    @torch.no_grad()
    def start_from_weights(self) -> None:
        """Take the network's weights for their average: a checkpoint without one was read."""
        for average, weight in zip(self.weights, self._network_weights, strict=True):
            average.copy_(weight)


def _own(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return what this rank has of each tensor, sharing its memory."""
    return [getattr(each.detach(), "to_local", each.detach)() for each in tensors]
