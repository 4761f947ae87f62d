"""Samples by index, which of them a rank takes at each step, and how these reach the device."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.messages import TrainingError
from trainer.ranks import Ranks

_PREFETCH = 3  # batches that are read ahead

Batch = tuple[Tensor, Tensor]  # inputs (B, ...) and targets (B,) or (B, T)

# Inputs of at most so many bytes are copied to the GPU once; a batch is then one indexing there.
_MOST_BYTES_ON_GPU = 1 << 30
# Of the channels of ImageNet.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_DIFFERENT = 256  # distinct samples of noise; they repeat, so that few are in memory


class Samples:
    """Inputs and targets by index; by default in mapped files, which stay on the CPU."""

    needs_decoding = False  # True if each sample is a file to decode, so that a thread should read ahead

    @property
    def device(self) -> torch.device:
        """Device of the samples, and of the indices for `take`."""
        return torch.device("cpu")

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, indices_B: Tensor) -> Batch:
        """Return inputs and targets as they are stored: bytes of images, or tokens."""
        raise NotImplementedError

    def to(self, device: torch.device) -> "Samples":
        """Return the same samples, on `device` if they are small enough to stay there."""
        return self


@dataclass(frozen=True, slots=True)
class TensorSamples(Samples):
    """Samples in two tensors: in memory, on a GPU, or in a mapped file."""

    inputs: Tensor  # (N, C, H, W) uint8, or (N, T) int64
    targets: Tensor  # (N,), or (N, T), int64
    count: int = 0  # number of samples if the tensors repeat, as noise does; else 0

    @property
    def device(self) -> torch.device:
        """Device of both tensors."""
        return self.targets.device

    def __len__(self) -> int:
        return self.count or len(self.targets)

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets."""
        indices_B = indices_B % len(self.targets)
        return self.inputs[indices_B], self.targets[indices_B]

    def to(self, device: torch.device) -> "TensorSamples":
        """Return a copy on `device`; the same samples if they are large or already there."""
        if device == self.device or self.inputs.nbytes > _MOST_BYTES_ON_GPU:
            return self
        return TensorSamples(self.inputs.to(device), self.targets.to(device), self.count)


def noise_images(count: int, size: int, classes: int, seed: int) -> TensorSamples:
    """Return color images of noise with random labels."""
    random = torch.Generator().manual_seed(seed)
    different = min(count, _DIFFERENT)
    pixels = torch.randint(256, (different, 3, size, size), dtype=torch.uint8, generator=random)
    return TensorSamples(pixels, torch.randint(classes, (different,), generator=random), count)


def noise_tokens(count: int, length: int, vocabulary: int, seed: int) -> TensorSamples:
    """Return sequences of random tokens; targets are the next tokens."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (min(count, _DIFFERENT), length + 1), generator=random)
    return TensorSamples(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), count)


def to_inputs(stored: Tensor, size: int = 0) -> Tensor:
    """Return the input of a network: floats for bytes of images (B, C, H, W); tokens unchanged.

    Grey images are 0 to 1, color images normalized as ImageNet. `size` of a center crop may be 0.
    """
    if stored.dtype != torch.uint8:
        return stored
    if size and stored.shape[-1] > size:
        top, left = (stored.shape[-2] - size) // 2, (stored.shape[-1] - size) // 2
        stored = stored[..., top : top + size, left : left + size]
    images_BCHW = stored.float().div_(255)
    if stored.shape[1] == 3:
        mean, deviation = (
            torch.tensor(each, device=stored.device).view(3, 1, 1) for each in (_MEAN, _DEVIATION)
        )
        images_BCHW.sub_(mean).div_(deviation)
    return images_BCHW


def crop_and_mirror(stored_BCHW: Tensor, size: int) -> Tensor:
    """Crop each image (uint8) to `size` at random and mirror half; small ones shift by up to an eighth."""
    count, device = len(stored_BCHW), stored_BCHW.device
    if stored_BCHW.shape[-1] <= size:
        stored_BCHW = torch.nn.functional.pad(stored_BCHW, (size // 8,) * 4)
    height, width = stored_BCHW.shape[-2:]
    window = torch.arange(size)
    rows_BH = torch.randint(height - size + 1, (count, 1)) + window
    columns_BW = torch.randint(width - size + 1, (count, 1)) + window
    columns_BW = torch.where(torch.rand(count, 1) < 0.5, columns_BW.flip(1), columns_BW)
    images = torch.arange(count, device=device)[:, None, None]
    cut_BHWC = stored_BCHW[images, :, rows_BH.to(device)[:, :, None], columns_BW.to(device)[:, None, :]]
    return cut_BHWC.permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class BatchLoader:
    """Turns stored samples into batches on the device; a thread reads ahead if files are read or copied."""

    device: torch.device
    size: int = 0  # height and width of the crop that a network gets; 0 for whole images
    augments: bool = False

    def batches(
        self, samples: Samples, indices: Iterable[Tensor], *, is_training: bool = False
    ) -> Iterator[Batch]:
        """Yield the batch of each of `indices`; in training, a loader that augments crops at random."""
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

        to, batches = self.device, _read_ahead(take, indices)
        return ((x.to(to, non_blocking=True), y.to(to, non_blocking=True)) for x, y in batches)


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
        self.samples = samples  # samples of an epoch
        self.global_batch_size = batch_size * ranks.world_size  # samples a step over all ranks
        self._ranks = ranks
        self._seed = seed
        self._device = device
        self._orders: dict[int, Tensor] = {}

    def epoch_batches(self, epoch: int, taken: int = 0) -> Iterator[Tensor]:
        """Yield this rank's indices of each step, int64 (B,), from the `taken`-th sample of `epoch` on."""
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
        # In the order of torch's DistributedSampler.
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
        self.global_batch_size = self.sampler.global_batch_size  # samples a step over all ranks
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
    """Yield this rank's batches of validation; each sample is used once, and the last batch may be empty."""
    mine = torch.arange(ranks.rank, len(samples), ranks.world_size, device=samples.device)
    largest_share = -(-len(samples) // ranks.world_size)
    batches = list(torch.split(mine, batch_size))
    batches += [mine[:0]] * (-(-largest_share // batch_size) - len(batches))
    return (loader or BatchLoader(samples.device)).batches(samples, batches)
