"""Batches on their way to the device: read ahead by a thread where files must be decoded or copied."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.ddp.data.samples import Samples, crop_and_mirror, to_inputs

AHEAD = 3
"""Batches that are made while one is learnt from."""

Batch = tuple[Tensor, Tensor]
"""Inputs and targets."""


@dataclass(frozen=True, slots=True)
class BatchFeed:
    """How stored samples become what a network on a device takes."""

    device: torch.device
    """Where it computes."""
    size: int = 0
    """Height and width of the part of an image that it gets; 0 for the whole."""
    augments: bool = False
    """Whether that part is chosen at random in training."""

    def train_batches(self, samples: Samples, indices: Iterable[Tensor]) -> Iterator[Batch]:
        """Yield the batch of each of `indices`, on the device.

        Raises:
            TrainingError: A file is damaged; when its batch's turn comes.
        """
        for stored, targets in self._stored(samples, indices):
            is_image = stored.dtype == torch.uint8
            chosen = (
                crop_and_mirror(stored, self.size or stored.shape[-1])
                if is_image and self.augments
                else stored
            )
            yield to_inputs(chosen, self.size), targets

    def validation_batches(self, samples: Samples, indices: Iterable[Tensor]) -> Iterator[Batch]:
        """Yield the batch of each of `indices`, on the device; of an image the middle.

        Raises:
            TrainingError: A file is damaged; when its batch's turn comes.
        """
        for stored, targets in self._stored(samples, indices):
            yield to_inputs(stored, self.size), targets

    def _stored(self, samples: Samples, indices: Iterable[Tensor]) -> Iterator[Batch]:
        if samples.device == self.device and not samples.is_slow:
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
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as thread:
        try:
            for indices_B in indices:
                waiting.append(thread.submit(take, indices_B))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()
