"""The data set that the arguments name."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.ddp.data.feed import BatchFeed
from trainer.ddp.data.image_folder import open_image_folder
from trainer.ddp.data.mapped_files import open_cifar
from trainer.ddp.data.samples import Samples
from trainer.ddp.data.synthetic import noise_images, noise_tokens
from trainer.ddp.data.tokens import open_tokens, vocabulary_size
from trainer.ddp.datasets import draw_digit_images, load_mnist
from trainer.distributed.process_group import ProcessGroup

IMAGE_SIZE = 224
"""Height and width of images from a folder and of noise, unless chosen."""


@dataclass(frozen=True, slots=True)
class LearningSet:
    """What is learnt from, and what it is like."""

    train: Samples
    """Learnt from."""
    validation: Samples
    """Judged by."""
    shape: tuple[int, ...]
    """Of one input: channels, height and width of an image, or the tokens of a sequence."""
    classes: int
    """Classes, or tokens there are."""
    feed: BatchFeed
    """Brings samples to the device."""

    @property
    def unit(self) -> str:
        """What speed is counted in."""
        return "images" if len(self.shape) == 3 else "tokens"

    @property
    def units_per_sample(self) -> int:
        """How many of these a sample is."""
        return 1 if len(self.shape) == 3 else self.shape[0]


def open_learning_set(arguments: argparse.Namespace, group: ProcessGroup) -> LearningSet:
    """Open what the arguments name; one process a machine fetches what is to be fetched.

    Raises:
        TrainingError: Files are missing or damaged; on all ranks.
    """
    if arguments.dataset == "mnist" and arguments.download:
        folder = Path(arguments.data)
        group.run_on_all(lambda: load_mnist(folder, download=True) if group.ranks.is_first_here else None)
    train, validation, shape, classes, size = group.run_on_all(lambda: _open(arguments))
    feed = BatchFeed(group.device, size, arguments.augment)
    return LearningSet(train.to(group.device), validation.to(group.device), shape, classes, feed)


def _open(arguments: argparse.Namespace) -> tuple[Samples, Samples, tuple[int, ...], int, int]:
    """Return both parts, the shape of an input, the classes, and the window that images are cut to."""
    name, folder, length = arguments.dataset, Path(arguments.data), arguments.sequence_length
    size, seed = arguments.image_size or IMAGE_SIZE, arguments.seed
    counts = arguments.train_images, arguments.val_images
    parts: tuple[Samples, Samples]
    if name == "folder":
        workers = arguments.workers or torch.get_num_threads()
        train, validation, classes = open_image_folder(folder, size, workers)
        return train, validation, (3, size, size), classes, size
    if name == "images":
        parts = (
            noise_images(counts[0], size, arguments.classes, seed),
            noise_images(counts[1], size, arguments.classes, seed + 1),
        )
        return *parts, (3, size, size), arguments.classes, 0
    if name in ("tokens", "sequences"):
        width = int(arguments.token_bytes)
        vocabulary = vocabulary_size(arguments.vocabulary, width)
        if name == "tokens":
            parts = open_tokens(folder, length, width, vocabulary)
        else:
            parts = (
                noise_tokens(counts[0], length, vocabulary, seed),
                noise_tokens(counts[1], length, vocabulary, seed + 1),
            )
        return *parts, (length,), vocabulary, 0
    if name.startswith("cifar"):
        return *open_cifar(name, folder), (3, 32, 32), 100 if name == "cifar100" else 10, 0
    parts = draw_digit_images(*counts, seed) if name == "digits" else load_mnist(folder, download=False)
    return *parts, (1, 28, 28), 10, 0
