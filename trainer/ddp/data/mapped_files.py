"""Files of fixed layout, mapped into memory: MNIST's IDX and CIFAR's binary version.

Sources: "THE MNIST DATABASE", file formats; "The CIFAR-10 dataset", binary version.
"""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainer.ddp.data.samples import Images, SeveralImages
from trainer.messages import MissingData, first_line

MNIST_FILES = ("train-images", "train-labels", "t10k-images", "t10k-labels")
"""What the four files of MNIST are called, up to the kind."""

_UNSIGNED_BYTES = 8
"""The type of the elements in an IDX file's third byte."""

_CIFAR = {
    "cifar10": (1, 10, [f"data_batch_{number}.bin" for number in range(1, 6)], ["test_batch.bin"]),
    "cifar100": (2, 100, ["train.bin"], ["test.bin"]),
}
"""Bytes of labels before an image, of which the last counts; classes; files for training and for testing."""
_CIFAR_PIXELS = 3 * 32 * 32


def open_mnist(folder: Path) -> tuple[Images, Images]:
    """Map MNIST's training and test images.

    `folder` holds the four files, or MNIST/raw with them, as torchvision lays them out.

    Raises:
        MissingData: A file is missing, torn, or of another shape.
    """
    inside = folder / "MNIST" / "raw"
    raw = folder if any((folder / _mnist_name(name)).is_file() for name in MNIST_FILES) else inside
    for name in MNIST_FILES:
        _check_is_file(
            raw / _mnist_name(name),
            "MNIST is not complete",
            "Put the four files there, let --download fetch them, or use --dataset digits.",
        )
    train, test = (
        _labelled(raw / _mnist_name(images), raw / _mnist_name(labels), classes=10)
        for images, labels in (MNIST_FILES[:2], MNIST_FILES[2:])
    )
    return train, test


def _mnist_name(name: str) -> str:
    return f"{name}-idx{3 if name.endswith('images') else 1}-ubyte"


def _labelled(images: Path, labels: Path, classes: int) -> Images:
    pixels_NHW, labels_N = _open_idx(images, 3), _open_idx(labels, 1)
    if len(pixels_NHW) != len(labels_N):
        raise _unreadable(labels, f"{len(labels_N)} labels for {len(pixels_NHW)} images")
    _check_labels(labels, labels_N, classes)
    return Images(pixels_NHW[:, None], labels_N.long())


def _open_idx(path: Path, dimensions: int) -> Tensor:
    """Map an IDX file of unsigned bytes: uint8 of as many dimensions."""
    head = 4 + 4 * dimensions
    mapped = _map(path, np.dtype(np.uint8))
    if len(mapped) < head or bytes(mapped[:4].numpy()) != bytes((0, 0, _UNSIGNED_BYTES, dimensions)):
        raise _unreadable(path, "it is not in the IDX format")
    shape = struct.unpack(f">{dimensions}I", bytes(mapped[4:head].numpy()))
    size = head + int(np.prod(shape, dtype=np.uint64))
    if len(mapped) != size or not all(shape):
        raise _unreadable(path, f"it says that it holds {size} bytes and has {len(mapped)}")
    return mapped[head:].view(shape)


def open_cifar(name: str, folder: Path) -> tuple[SeveralImages, SeveralImages]:
    """Map the files of CIFAR's binary version, found in `folder` or in the folder of its archive there.

    Raises:
        MissingData: A file is missing, torn, or of another shape.
    """
    label_bytes, classes, *lists = _CIFAR[name]
    unpacked = folder / ("cifar-10-batches-bin" if name == "cifar10" else "cifar-100-binary")
    where = unpacked if unpacked.is_dir() else folder
    parts = []
    for files in lists:
        part = []
        for file in files:
            path = where / file
            _check_is_file(path, f"{name} is not complete", "Unpack the binary version of the archive there.")
            part.append(_open_cifar_file(path, label_bytes, classes))
        parts.append(SeveralImages(part))
    train, test = parts
    return train, test


def _open_cifar_file(path: Path, label_bytes: int, classes: int) -> Images:
    mapped = _map(path, np.dtype(np.uint8))
    record = label_bytes + _CIFAR_PIXELS
    if not len(mapped) or len(mapped) % record:
        raise _unreadable(path, f"its {len(mapped)} bytes are no whole number of images, {record} each")
    records = mapped.view(-1, record)
    labels = records[:, label_bytes - 1]
    _check_labels(path, labels, classes)
    pixels_N3HW = records.as_strided((len(records), 3, 32, 32), (record, 1024, 32, 1), label_bytes)
    return Images(pixels_N3HW, labels.long())


def map_file(path: Path, kind: "np.dtype[np.generic]") -> "np.memmap[tuple[int], np.dtype[np.generic]]":
    """Map a whole file of numbers of one kind, to read; pages come as they are needed.

    Raises:
        MissingData: It cannot be read, or is torn inside a number.
    """
    try:
        size = path.stat().st_size
        if size % kind.itemsize:
            raise _unreadable(path, f"its {size} bytes are no whole number of {kind}")
        if not size:
            raise _unreadable(path, "it is empty")
        return np.memmap(path, kind, mode="c")  # "c": private; torch warns of what cannot be written
    except OSError as error:
        raise _unreadable(path, error.strerror or first_line(error)) from error


def _map(path: Path, kind: "np.dtype[np.generic]") -> Tensor:
    return torch.from_numpy(map_file(path, kind))


def _check_is_file(path: Path, what: str, now: str) -> None:
    if not path.is_file():
        packed = " (only its .gz is there: unpack it)" if path.with_name(path.name + ".gz").exists() else ""
        raise MissingData(f"{what}: there is no {path}{packed}.", now=now)


def _check_labels(path: Path, labels_N: Tensor, classes: int) -> None:
    largest = int(labels_N.max())
    if largest >= classes:
        raise _unreadable(path, f"it has a label {largest}, and there are {classes} classes")


def _unreadable(path: Path, why: str) -> MissingData:
    return MissingData(f"Could not read {path}.", f"{why[:1].upper()}{why[1:]}.", "Fetch it again.")
