"""Folders of images, one folder per class, as ImageNet is often unpacked; images are decoded when needed."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.ddp.samples import Samples
from trainer.messages import MissingData, TrainingError, first_line

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
# Images are larger than the crop, so that it can move: 256 for 224.
_MARGIN = 8 / 7


@dataclass(frozen=True, slots=True)
class ImageFiles(Samples):
    """Labelled image files, decoded by threads."""

    paths: Sequence[Path]
    labels_N: Tensor
    """int64."""
    size: int
    # Not processes: Pillow releases the interpreter's lock while it decodes, and nothing goes through
    # /dev/shm, of which a pod has 64 MiB by default.
    threads: ThreadPoolExecutor

    needs_decoding = True

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return pixels (B, 3, size, size), uint8, and labels (B,)."""
        pixels_BHW3 = np.empty((len(indices_B), self.size, self.size, 3), np.uint8)

        def decode(at: int, index: int) -> None:
            pixels_BHW3[at] = decode_image(self.paths[index], self.size)

        done = [self.threads.submit(decode, at, index) for at, index in enumerate(indices_B.tolist())]
        for each in done:
            each.result()
        return torch.from_numpy(pixels_BHW3).permute(0, 3, 1, 2), self.labels_N[indices_B]


def open_image_folder(folder: Path, size: int, workers: int) -> tuple[ImageFiles, ImageFiles, int]:
    """List the images of `folder/train/<class>/` and `folder/val/<class>/`, without reading them.

    `size` is the height and width of the crop that a network gets, `workers` the number of decoding threads.

    Returns:
        Images for training, images for validation, and the number of classes.
    """
    _import_pillow()
    classes = _folders(folder / "train")
    unknown = [name for name in _folders(folder / "val") if name not in classes]
    if unknown:
        raise MissingData(
            f"{folder / 'val' / unknown[0]} is a class that {folder / 'train'} does not have.",
            now="Both need the same folders.",
        )
    threads = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    stored = round(size * _MARGIN)
    train, validation = (_list(folder / part, classes, stored, threads) for part in ("train", "val"))
    return train, validation, len(classes)


def decode_image(path: Path, size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Return the center square of an image in RGB, resized to (size, size, 3)."""
    pillow = _import_pillow()
    try:
        with pillow.open(path) as image:
            image.draft("RGB", (size, size))  # a JPEG decoder can scale by 1/2, 1/4 or 1/8 at no cost
            short = min(image.size)
            left, top = (image.width - short) // 2, (image.height - short) // 2
            square = image.convert("RGB").resize(
                (size, size), pillow.Resampling.BILINEAR, (left, top, left + short, top + short)
            )
        return np.asarray(square)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise MissingData(
            f"Could not read the image {path}.", f"{first_line(error)}.", "Replace or remove it."
        ) from error


def _import_pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise TrainingError(
            "Pillow, which reads images, is not installed.",
            f"{error}.",
            "Install pillow, or use another --dataset.",
        ) from error


def _folders(folder: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        raise MissingData(
            f"Could not list {folder}.",
            f"{error.strerror}.",
            "--data names a folder with train/<class>/ and val/<class>/.",
        ) from error
    if not names:
        raise MissingData(f"{folder} has no folders.", "Each class is a folder of images.")
    return names


def _list(folder: Path, classes: list[str], size: int, threads: ThreadPoolExecutor) -> ImageFiles:
    paths, labels = [], []
    for label, name in enumerate(classes):
        inside = folder / name
        names = sorted(os.listdir(inside)) if inside.is_dir() else []
        found = [inside / each for each in names if each.lower().endswith(_SUFFIXES)]
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise MissingData(f"There is no image below {folder}.", f"Images end in {', '.join(_SUFFIXES)}.")
    return ImageFiles(paths, torch.tensor(labels), size, threads)
