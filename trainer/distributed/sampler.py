"""Which samples a rank learns from at each step: every one once an epoch, in an order of the seed alone."""

from collections.abc import Iterator

import torch
from torch import Tensor

from trainer.ranks import Ranks


class ElasticSampler:
    """Deals the samples of each epoch out to the ranks, so many a step.

    The epochs follow each other without a gap: the step that takes the last samples
    of one is filled up with the first of the next. So all steps are of one size and
    no sample is left out, and where a run stands is the epoch and the samples taken
    of it, whatever the number of ranks: another number goes on in the same order.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        ranks: Ranks,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.samples = samples
        """Samples of an epoch."""
        self.global_batch_size = batch_size * ranks.world_size
        """Samples a step over all ranks."""
        self._ranks = ranks
        self._seed = seed
        self._device = device
        self._orders: dict[int, Tensor] = {}

    def epoch_batches(self, epoch: int, taken: int = 0) -> Iterator[Tensor]:
        """Yield what this rank takes at each step, int64 (B,), until no sample of `epoch` is left.

        Args:
            epoch: From 0.
            taken: Samples of it that all ranks together have taken already.
        """
        while taken < self.samples:
            yield self._batch(epoch, taken)
            taken += self.global_batch_size

    def steps_left(self, epochs: int, epoch: int = 0, taken: int = 0) -> int:
        """Count the steps from `taken` of `epoch` until all samples of `epochs` epochs are taken."""
        left = (epochs - epoch) * self.samples - taken
        return max(0, -(-left // self.global_batch_size))

    def _batch(self, epoch: int, taken: int) -> Tensor:
        """Pick every world-size-th sample of the step's, from this rank's on."""
        rank, world_size = self._ranks.rank, self._ranks.world_size
        end = taken + self.global_batch_size
        step = self._order(epoch)[taken:end]
        while len(step) < self.global_batch_size:
            epoch += 1
            step = torch.cat([step, self._order(epoch)[: self.global_batch_size - len(step)]])
        return step[rank::world_size]

    def _order(self, epoch: int) -> Tensor:
        """Return the shuffled samples of `epoch`; that of torch's DistributedSampler."""
        order = self._orders.get(epoch)
        if order is None:
            generator = torch.Generator()
            generator.manual_seed(self._seed + epoch)
            order = torch.randperm(self.samples, generator=generator).to(self._device)
            self._orders = {at: kept for at, kept in self._orders.items() if at == epoch - 1} | {epoch: order}
        return order
