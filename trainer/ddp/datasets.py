"""The images to train on, and each rank's share of them, batch by batch.

What is small lies on the device as bytes and a batch is one indexing; the rest is
read ahead by threads: no worker processes.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from trainer.ddp.data.feed import BatchFeed
from trainer.ddp.data.mapped_files import open_mnist
from trainer.ddp.data.samples import Images, Samples
from trainer.ddp.synthetic_digits import draw_digits
from trainer.distributed.sampler import ElasticSampler
from trainer.distributed.torchvision import import_torchvision
from trainer.messages import MissingData, TrainingError
from trainer.ranks import Ranks

_TRAIN, _VALIDATION = 0, 1


def draw_digit_images(train_images: int, val_images: int, seed: int) -> tuple[Images, Images]:
    """Draw digits for training and for validation, from separate random sequences."""
    drawn = (draw_digits(train_images, (seed, _TRAIN)), draw_digits(val_images, (seed, _VALIDATION)))
    train, validation = (
        Images(torch.from_numpy(digits.images)[:, None], torch.from_numpy(digits.labels)) for digits in drawn
    )
    return train, validation


def load_mnist(folder: Path, download: bool) -> tuple[Images, Images]:
    """Map MNIST's training and test images; torchvision fetches them.

    `folder` holds MNIST/raw, as torchvision lays it out, or is a folder with the four files.

    Raises:
        TrainingError: A file is missing or damaged, or cannot be fetched.
    """
    if download:
        root = folder.parent.parent if (folder.parent.name, folder.name) == ("MNIST", "raw") else folder
        datasets = import_torchvision("datasets", "--dataset digits")
        try:
            for train in (True, False):
                datasets.MNIST(str(root), train=train, download=True)
        except (OSError, RuntimeError, ValueError, AssertionError, IndexError) as error:
            raise MissingData(
                f"Could not fetch MNIST into {root}.",
                f"{type(error).__name__}: {str(error) or 'a file is not in the IDX format'}.",
                "Try again, or use --dataset digits, which needs no files.",
            ) from error
    return open_mnist(folder)


class TrainBatches:
    """The training images in a new order each epoch, each of them once; every rank takes its share of a step.

    The order depends on the seed and the epoch alone, so a run that is resumed
    meets the images it has not seen yet, even with another number of ranks.
    """

    def __init__(
        self,
        images: Samples,
        batch_size: int,
        ranks: Ranks,
        seed: int,
        feed: BatchFeed | None = None,
    ) -> None:
        self.images = images
        """Images, or sequences of tokens."""
        self.feed = feed or BatchFeed(images.device)
        """Brings them to the device."""
        self.sampler = ElasticSampler(len(images), batch_size, ranks, seed, images.device)
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
        """Yield inputs (B, ...) and targets (B,) or (B, T) of `epoch` without the first `taken` of it."""
        return self.feed.train_batches(self.images, self.sampler.epoch_batches(epoch, taken))


def validation_batches(
    images: Samples, batch_size: int, ranks: Ranks, feed: BatchFeed | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's share of the validation images: over all ranks, each image exactly once.

    All ranks get as many batches, the last of which may be empty.
    """
    mine = torch.arange(ranks.rank, len(images), ranks.world_size, device=images.device)
    largest_share = -(-len(images) // ranks.world_size)
    batches = list(torch.split(mine, batch_size))
    batches += [mine[:0]] * (-(-largest_share // batch_size) - len(batches))
    return (feed or BatchFeed(images.device)).validation_batches(images, batches)
