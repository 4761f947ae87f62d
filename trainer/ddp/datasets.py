"""The data set that the arguments name."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.ddp.batches import BatchLoader
from trainer.ddp.digits import draw_digits
from trainer.ddp.image_folder import open_image_folder
from trainer.ddp.mapped_files import open_mnist, open_tokens, vocabulary_size
from trainer.ddp.samples import Images, Samples, noise_images, noise_tokens
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.torchvision import import_torchvision
from trainer.messages import MissingData

_DEFAULT_IMAGE_SIZE = 224


@dataclass(frozen=True, slots=True)
class Dataset:
    """Training and validation samples, their shape, and how batches of them are loaded."""

    train: Samples
    validation: Samples
    shape: tuple[int, ...]
    """Of one input: channels, height and width of an image, or the length of a sequence."""
    classes: int
    """For tokens, the vocabulary."""
    loader: BatchLoader

    @property
    def unit(self) -> str:
        """Unit of the throughput."""
        return "images" if len(self.shape) == 3 else "tokens"

    @property
    def units_per_sample(self) -> int:
        """1 for images, the length for sequences."""
        return 1 if len(self.shape) == 3 else self.shape[0]


def open_dataset(arguments: argparse.Namespace, group: ProcessGroup) -> Dataset:
    """Open the data set that the arguments name; one process per machine downloads MNIST.

    Raises:
        TrainingError: Files are missing or damaged; raised on all ranks.
    """
    if arguments.dataset == "mnist" and arguments.download:
        folder = Path(arguments.data)
        group.run_on_all(lambda: download_mnist(folder) if group.ranks.is_first_here else None)
    train, validation, shape, classes, crop = group.run_on_all(lambda: _open(arguments))
    loader = BatchLoader(group.device, crop, arguments.augment)
    return Dataset(train.to(group.device), validation.to(group.device), shape, classes, loader)


def _open(arguments: argparse.Namespace) -> tuple[Samples, Samples, tuple[int, ...], int, int]:
    """Return training and validation samples, shape of an input, classes, and size of the crop."""
    name, folder, seed = arguments.dataset, Path(arguments.data), arguments.seed
    size, length = arguments.image_size or _DEFAULT_IMAGE_SIZE, arguments.sequence_length
    counts = arguments.train_images, arguments.val_images
    train: Samples
    validation: Samples
    if name == "folder":
        workers = arguments.workers or torch.get_num_threads()
        train, validation, classes = open_image_folder(folder, size, workers)
        return train, validation, (3, size, size), classes, size
    if name == "images":
        classes = arguments.classes
        train, validation = (noise_images(counts[at], size, classes, seed + at) for at in (0, 1))
        return train, validation, (3, size, size), classes, 0
    if name in ("tokens", "sequences"):
        token_bytes = int(arguments.token_bytes)
        vocabulary = vocabulary_size(arguments.vocabulary, token_bytes)
        if name == "tokens":
            train, validation = open_tokens(folder, length, token_bytes, vocabulary)
        else:
            train, validation = (noise_tokens(counts[at], length, vocabulary, seed + at) for at in (0, 1))
        return train, validation, (length,), vocabulary, 0
    train, validation = draw_digit_images(*counts, seed) if name == "digits" else open_mnist(folder)
    return train, validation, (1, 28, 28), 10, 0


def draw_digit_images(train_images: int, val_images: int, seed: int) -> tuple[Images, Images]:
    """Draw digits for training and for validation, from separate random sequences."""
    drawn = (draw_digits(count, (seed, part)) for part, count in enumerate((train_images, val_images)))
    train, validation = (
        Images(torch.from_numpy(digits.images)[:, None], torch.from_numpy(digits.labels)) for digits in drawn
    )
    return train, validation


def download_mnist(folder: Path) -> None:
    """Download MNIST into `folder`, or above it if it is MNIST/raw, as torchvision lays out the files.

    Raises:
        MissingData: The download failed.
        TrainingError: torchvision is not installed.
    """
    root = folder.parent.parent if (folder.parent.name, folder.name) == ("MNIST", "raw") else folder
    datasets = import_torchvision("datasets", "--dataset digits")
    try:
        for train in (True, False):
            datasets.MNIST(str(root), train=train, download=True)
    except (OSError, RuntimeError, ValueError, AssertionError, IndexError) as error:
        raise MissingData(
            f"Could not download MNIST into {root}.",
            f"{type(error).__name__}: {str(error) or 'a file is not in the IDX format'}.",
            "Try again, or use --dataset digits, which needs no files.",
        ) from error
