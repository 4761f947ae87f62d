"""Batches of a rank: which samples it takes at each step, and how they reach the device."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.ddp.samples import Samples, crop_and_mirror, to_inputs
from trainer.messages import TrainingError
from trainer.ranks import Ranks

_PREFETCH = 3
"""Batches that are read ahead."""

Batch = tuple[Tensor, Tensor]
"""Inputs (B, ...) and targets (B,) or (B, T)."""


@dataclass(frozen=True, slots=True)
class BatchLoader:
    """Turns stored samples into batches on the device; a thread reads ahead if files are read or copied."""

    device: torch.device
    size: int = 0
    """Height and width of the crop that a network gets; 0 for whole images."""
    augments: bool = False

    def batches(
        self, samples: Samples, indices: Iterable[Tensor], *, is_training: bool = False
    ) -> Iterator[Batch]:
        """Yield the batch of each of `indices`, on the device.

        Images are cropped at random in training, if the loader augments, and else in their center.
        """
        for stored, targets in self._stored(samples, indices):
            if is_training and self.augments and stored.dtype == torch.uint8:
                stored = crop_and_mirror(stored, self.size or stored.shape[-1])
            yield to_inputs(stored, self.size), targets

    def _stored(self, samples: Samples, indices: Iterable[Tensor]) -> Iterator[Batch]:
        if samples.device == self.device and not samples.needs_decoding:
            return map(samples.take, indices)
        pin = self.device.type == "cuda"

        def take(indices_B: Tensor) -> Batch:
            inputs, targets = samples.take(indices_B)
            return (inputs.pin_memory(), targets.pin_memory()) if pin else (inputs, targets)

        def copy(batch: Batch) -> Batch:
            inputs, targets = batch
            return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)

        return map(copy, _read_ahead(take, indices))


def _read_ahead(take: Callable[[Tensor], Batch], indices: Iterable[Tensor]) -> Iterator[Batch]:
    pending: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as thread:
        try:
            for indices_B in indices:
                pending.append(thread.submit(take, indices_B))
                if len(pending) > _PREFETCH:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for each in pending:
                each.cancel()


class ElasticSampler:
    """Deals the samples of each epoch out to the ranks.

    Epochs follow each other without a gap: a step that takes the last samples of one is filled up with the
    first of the next. So all steps have the same size and no sample is left out. The order depends on the
    seed and the epoch alone, and the position is the epoch and the number of samples taken of it, so another
    number of ranks continues in the same order.
    """

    def __init__(
        self, samples: int, batch_size: int, ranks: Ranks, seed: int, device: torch.device | str = "cpu"
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
        """Yield the indices of this rank for each step, int64 (B,), until no sample of `epoch` is left.

        `epoch` counts from 0; all ranks together have taken `taken` of its samples already.
        """
        while taken < self.samples:
            yield self._batch(epoch, taken)
            taken += self.global_batch_size

    def steps_left(self, epochs: int, epoch: int = 0, taken: int = 0) -> int:
        """Return the number of steps from `taken` of `epoch` until `epochs` epochs are done."""
        left = (epochs - epoch) * self.samples - taken
        return max(0, -(-left // self.global_batch_size))

    def _batch(self, epoch: int, taken: int) -> Tensor:
        rank, world_size = self._ranks.rank, self._ranks.world_size
        end = taken + self.global_batch_size
        step = self._order(epoch)[taken:end]
        while len(step) < self.global_batch_size:
            epoch += 1
            step = torch.cat([step, self._order(epoch)[: self.global_batch_size - len(step)]])
        return step[rank::world_size]

    def _order(self, epoch: int) -> Tensor:
        """Return the shuffled samples of `epoch`, in the order of torch's DistributedSampler."""
        order = self._orders.get(epoch)
        if order is None:
            generator = torch.Generator()
            generator.manual_seed(self._seed + epoch)
            order = torch.randperm(self.samples, generator=generator).to(self._device)
            # A step at the end of an epoch needs two orders.
            self._orders = {at: old for at, old in self._orders.items() if at == epoch - 1} | {epoch: order}
        return order


class TrainBatches:
    """This rank's batches of the training samples, in a new order each epoch."""

    def __init__(
        self, samples: Samples, batch_size: int, ranks: Ranks, seed: int, loader: BatchLoader | None = None
    ) -> None:
        """Deal out `samples`, of which each rank takes `batch_size` a step."""
        self.sampler = ElasticSampler(len(samples), batch_size, ranks, seed, samples.device)
        self.global_batch_size = self.sampler.global_batch_size
        """Samples a step over all ranks."""
        self._samples = samples
        self._loader = loader or BatchLoader(samples.device)
        if len(samples) < self.global_batch_size:
            raise TrainingError(
                f"There are {len(samples)} training images, but one step takes {self.global_batch_size}.",
                now="Choose more images, a smaller --batch-size, or fewer processes.",
            )

    def epoch_batches(self, epoch: int, taken: int = 0) -> Iterator[Batch]:
        """Yield the batches of `epoch` without its first `taken` samples."""
        return self._loader.batches(self._samples, self.sampler.epoch_batches(epoch, taken), is_training=True)


def validation_batches(
    samples: Samples, batch_size: int, ranks: Ranks, loader: BatchLoader | None = None
) -> Iterator[Batch]:
    """Yield this rank's share of the validation samples; over all ranks, each sample is used exactly once.

    All ranks get the same number of batches, of which the last may be empty.
    """
    mine = torch.arange(ranks.rank, len(samples), ranks.world_size, device=samples.device)
    largest_share = -(-len(samples) // ranks.world_size)
    batches = list(torch.split(mine, batch_size))
    batches += [mine[:0]] * (-(-largest_share // batch_size) - len(batches))
    return (loader or BatchLoader(samples.device)).batches(samples, batches)
