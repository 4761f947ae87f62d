"""The data set that the arguments name."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.ddp.batches import BatchLoader
from trainer.ddp.digits import draw_digits
from trainer.ddp.image_folder import open_image_folder
from trainer.ddp.mapped_files import open_mnist, open_tokens
from trainer.ddp.samples import Samples, TensorSamples, noise_images, noise_tokens
from trainer.ddp_arguments import OF_TOKENS
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.torchvision import import_torchvision
from trainer.messages import MissingData

_DEFAULT_IMAGE_SIZE = 224
_DIFFERENT_BYTES = 256


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
    """Open the data set that the arguments name; one process per machine downloads MNIST."""
    if arguments.dataset == "mnist" and arguments.download:
        folder = Path(arguments.data)
        group.run_on_all(lambda: download_mnist(folder) if group.ranks.is_first_here else None)
    return group.run_on_all(lambda: _open(arguments, group.device))


def _open(arguments: argparse.Namespace, device: torch.device) -> Dataset:
    name, folder, seed = arguments.dataset, Path(arguments.data), arguments.seed
    size, length = arguments.image_size or _DEFAULT_IMAGE_SIZE, arguments.sequence_length
    counts = arguments.train_images, arguments.val_images
    train: Samples
    validation: Samples
    shape: tuple[int, ...] = (3, size, size)
    crop = 0
    if name == "folder":
        workers = arguments.workers or torch.get_num_threads()
        train, validation, classes = open_image_folder(folder, size, workers)
        crop = size
    elif name == "images":
        classes = arguments.classes
        train, validation = (noise_images(counts[at], size, classes, seed + at) for at in (0, 1))
    elif name in OF_TOKENS:
        shape, classes = (length,), arguments.vocabulary or _DIFFERENT_BYTES
        if name == "tokens":
            train, validation = open_tokens(folder, length, int(arguments.token_bytes), classes)
        else:
            train, validation = (noise_tokens(counts[at], length, classes, seed + at) for at in (0, 1))
    else:
        shape, classes = (1, 28, 28), 10
        train, validation = draw_digit_images(*counts, seed) if name == "digits" else open_mnist(folder)
    loader = BatchLoader(device, crop, arguments.augment)
    return Dataset(train.to(device), validation.to(device), shape, classes, loader)


def draw_digit_images(train_images: int, val_images: int, seed: int) -> tuple[TensorSamples, TensorSamples]:
    """Draw digits for training and for validation, from separate random sequences."""

    def draw(count: int, part: int) -> TensorSamples:
        images, labels = draw_digits(count, (seed, part))
        return TensorSamples(torch.from_numpy(images)[:, None], torch.from_numpy(labels))

    return draw(train_images, 0), draw(val_images, 1)


def download_mnist(folder: Path) -> None:
    """Download MNIST into `folder`, or above it if it is MNIST/raw, as torchvision lays out the files."""
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
