"""Samples by index: the interface of a data set, samples in tensors, and noise."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Inputs of at most so many bytes are copied to the GPU once; a batch is then one indexing there.
_MOST_BYTES_ON_GPU = 1 << 30
# Of the channels of ImageNet.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_DIFFERENT = 256
"""Distinct samples of noise; they repeat, so that few are in memory."""


class Samples:
    """Inputs and targets by index; by default in mapped files, which stay on the CPU."""

    needs_decoding = False
    """True if each sample is a file to decode, so that a thread should read ahead."""

    @property
    def device(self) -> torch.device:
        """Device of the samples, and of the indices for `take`."""
        return torch.device("cpu")

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets as they are stored: bytes of images, or tokens."""
        raise NotImplementedError

    def to(self, device: torch.device) -> "Samples":
        """Return the same samples, on `device` if they are small enough to stay there."""
        return self


@dataclass(frozen=True, slots=True)
class TensorSamples(Samples):
    """Samples in two tensors: in memory, on a GPU, or in a mapped file."""

    inputs: Tensor
    """(N, C, H, W) uint8, or (N, T) int64."""
    targets: Tensor
    """(N,), or (N, T), int64."""
    count: int = 0
    """Number of samples if the tensors repeat, as noise does; else 0."""

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

    Grey images are 0 to 1, color images normalized as ImageNet. `size` is the height and width of a center
    crop, 0 for none.
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
    """Crop each image (uint8) to `size` at random and mirror half of them, with random numbers of the CPU.

    An image no larger than the crop is shifted by up to an eighth, over black.
    """
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
