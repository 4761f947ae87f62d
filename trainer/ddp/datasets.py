"""The images to train on, and each rank's share of them, batch by batch.

Both data sets are small, so they lie on the device as bytes and a batch is one
indexing: no worker processes, no copies from the host.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trainer.ddp.synthetic_digits import draw_digits
from trainer.distributed.sampler import ElasticSampler
from trainer.distributed.torchvision import import_torchvision
from trainer.messages import MissingData, TrainingError
from trainer.ranks import Ranks

MNIST_FILES = ("train-images", "train-labels", "t10k-images", "t10k-labels")
"""What the four files of MNIST are called, up to the kind."""

_TRAIN, _VALIDATION = 0, 1


@dataclass(frozen=True, slots=True)
class Images:
    """Labelled images on one device."""

    pixels_N1HW: Tensor
    """uint8, shape (N, 1, 28, 28)."""
    labels_N: Tensor
    """int64, shape (N,)."""

    def __len__(self) -> int:
        return len(self.labels_N)

    def to(self, device: torch.device) -> "Images":
        """Return these images on `device`; the very same tensors if they are there already."""
        return Images(self.pixels_N1HW.to(device), self.labels_N.to(device))

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Pick images by index: floats from 0 to 1, (B, 1, 28, 28), and labels, (B,)."""
        return self.pixels_N1HW[indices_B].float().div_(255), self.labels_N[indices_B]


def draw_digit_images(train_images: int, val_images: int, seed: int) -> tuple[Images, Images]:
    """Draw digits for training and for validation, from separate random sequences."""
    drawn = (draw_digits(train_images, (seed, _TRAIN)), draw_digits(val_images, (seed, _VALIDATION)))
    train, validation = (
        Images(torch.from_numpy(digits.images)[:, None], torch.from_numpy(digits.labels)) for digits in drawn
    )
    return train, validation


def load_mnist(folder: Path, download: bool) -> tuple[Images, Images]:
    """Read MNIST's training and test images with torchvision.

    `folder` holds MNIST/raw, as torchvision lays it out, or is that `raw` folder.

    Raises:
        TrainingError: A file is missing or damaged, or cannot be fetched.
    """
    root = folder.parent.parent if (folder.parent.name, folder.name) == ("MNIST", "raw") else folder
    if not download:
        _check_mnist_files(root / "MNIST" / "raw")
    datasets = import_torchvision("datasets", "--dataset digits")
    try:
        sets = [datasets.MNIST(str(root), train=train, download=download) for train in (True, False)]
    except (OSError, RuntimeError, ValueError, AssertionError, IndexError) as error:
        raise MissingData(
            f"Could not {'fetch' if download else 'read'} MNIST in {root}.",
            f"{type(error).__name__}: {str(error) or 'a file is not in the IDX format'}.",
            "Try again, or use --dataset digits, which needs no files.",
        ) from error
    train, test = (Images(images.data[:, None].contiguous(), images.targets.long()) for images in sets)
    return train, test


def _check_mnist_files(raw: Path) -> None:
    for name in MNIST_FILES:
        file = raw / f"{name}-idx{3 if name.endswith('images') else 1}-ubyte"
        if not file.is_file():
            packed = (
                " (only its .gz is there: unpack it)" if file.with_name(file.name + ".gz").exists() else ""
            )
            raise MissingData(
                f"MNIST is not complete: there is no {file}{packed}.",
                now="Put the four files there, let --download fetch them, or use --dataset digits.",
            )


class TrainBatches:
    """The training images in a new order each epoch, each of them once; every rank takes its share of a step.

    The order depends on the seed and the epoch alone, so a run that is resumed
    meets the images it has not seen yet, even with another number of ranks.
    """

    def __init__(self, images: Images, batch_size: int, ranks: Ranks, seed: int) -> None:
        self.images = images
        """On the device."""
        self.sampler = ElasticSampler(len(images), batch_size, ranks, seed, images.labels_N.device)
        """Deals them out."""
        if len(images) < self.global_batch_size:
            raise TrainingError(
                f"There are {len(images)} training images, but one step takes {self.global_batch_size}.",
                now="Choose more images, a smaller --batch-size, or fewer processes.",
            )

    @property
    def global_batch_size(self) -> int:
        """Images a step over all ranks."""
        return self.sampler.global_batch_size

    def epoch_batches(self, epoch: int, taken: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 1, 28, 28) and labels (B,) of `epoch` without the first `taken` of it."""
        for indices_B in self.sampler.epoch_batches(epoch, taken):
            yield self.images.take(indices_B)


def validation_batches(images: Images, batch_size: int, ranks: Ranks) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's share of the validation images: over all ranks, each image exactly once."""
    mine = torch.arange(ranks.rank, len(images), ranks.world_size, device=images.labels_N.device)
    for indices_B in torch.split(mine, batch_size):
        yield images.take(indices_B)
