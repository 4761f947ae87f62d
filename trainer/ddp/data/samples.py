"""Samples by index: what every data set offers, and images that lie in memory or in mapped files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

KEPT_ON_GPU_BYTES = 1 << 30
"""Images of at most so many bytes are copied to the GPU once, and a batch is one indexing there."""

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels of ImageNet's images, which colour images are shifted and scaled by."""


class Samples(Protocol):
    """Inputs and what is to be learnt of them, by index."""

    @property
    def device(self) -> torch.device:
        """Where indices must lie and samples come from."""

    @property
    def is_slow(self) -> bool:
        """Whether a thread should read ahead: there is a file to read or to decode for each sample."""

    def __len__(self) -> int: ...

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets as they are stored: bytes of images, or tokens.

        Raises:
            TrainingError: A file is damaged.
        """

    def to(self, device: torch.device) -> "Samples":
        """Return the same samples, on `device` if they are small enough to stay there."""


@dataclass(frozen=True, slots=True)
class Images:
    """Labelled images as bytes: in memory, on a GPU, or in a mapped file."""

    pixels_N1HW: Tensor
    """uint8, shape (N, C, H, W)."""
    labels_N: Tensor
    """int64, shape (N,)."""

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.labels_N.device

    @property
    def is_slow(self) -> bool:
        """No: the kernel keeps the pages of a mapped file."""
        return False

    def __len__(self) -> int:
        return len(self.labels_N)

    def to(self, device: torch.device) -> "Images":
        """Copy few images to a GPU; a processor reads them where they are, and so it does many."""
        if device == self.device or self.pixels_N1HW.numel() > KEPT_ON_GPU_BYTES:
            return self
        return Images(self.pixels_N1HW.to(device), self.labels_N.to(device))

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Pick images by index: pixels (B, C, H, W) and labels (B,)."""
        return self.pixels_N1HW[indices_B], self.labels_N[indices_B]


@dataclass(frozen=True, slots=True)
class SeveralImages:
    """Labelled images of several mapped files, one after the other."""

    parts: Sequence[Images]
    """One a file."""

    @property
    def device(self) -> torch.device:
        """The processor's."""
        return self.parts[0].device

    @property
    def is_slow(self) -> bool:
        """No: the kernel keeps the pages of a mapped file."""
        return False

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Pick images by index: pixels (B, C, H, W) and labels (B,)."""
        sizes = torch.tensor([len(part) for part in self.parts])
        ends = torch.cumsum(sizes, 0)
        part_B = torch.bucketize(indices_B, ends, right=True)
        pixels_BCHW = self.parts[0].pixels_N1HW.new_empty(
            len(indices_B), *self.parts[0].pixels_N1HW.shape[1:]
        )
        labels_B = torch.empty_like(indices_B)
        for number, part in enumerate(self.parts):
            here = part_B == number
            inside = indices_B[here] - (ends[number] - sizes[number])
            pixels_BCHW[here], labels_B[here] = part.take(inside)
        return pixels_BCHW, labels_B

    def to(self, device: torch.device) -> "Images | SeveralImages":
        """Copy few images to a GPU; a processor reads them where they are, and so it does many."""
        if device == self.device or sum(part.pixels_N1HW.numel() for part in self.parts) > KEPT_ON_GPU_BYTES:
            return self
        pixels = torch.cat([part.pixels_N1HW.to(device) for part in self.parts])
        return Images(pixels, torch.cat([part.labels_N.to(device) for part in self.parts]))


def to_inputs(stored: Tensor, size: int = 0) -> Tensor:
    """Make what a network takes of what is stored: floats for bytes of images; tokens stay as they are.

    Args:
        stored: uint8 (B, C, H, W), or int64 (B, T).
        size: Height and width of the middle to keep; 0 keeps all.

    Returns:
        Floats from 0 to 1 of grey images; of colour images shifted and scaled as ImageNet's are.
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
    """Cut a window out of each image at random and mirror half of them.

    An image that is no larger than the window is moved by up to an eighth, over black.

    Args:
        stored_BCHW: uint8.
        size: Height and width of the window.

    Returns:
        uint8 (B, C, size, size). The random numbers are torch's, of the processor.
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
