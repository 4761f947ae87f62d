"""Files that are mapped into memory: MNIST in the IDX format, and tokens as bytes or little-endian numbers.

Source: "THE MNIST DATABASE", file formats.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.ddp.samples import Samples, TensorSamples
from trainer.messages import MissingData, first_line

_MNIST_FILES = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_UNSIGNED_BYTES = 8
"""Type of the elements, in the third byte of an IDX file."""

_VALIDATION_SHARE = 0.1
"""Of a single file of tokens, the end that is for validation."""
_TOKEN_TYPES: dict[int, Any] = {1: np.uint8, 2: np.dtype("<u2"), 4: np.dtype("<u4")}


def map_file(path: Path, kind: "np.dtype[np.generic]") -> "np.memmap[tuple[int], np.dtype[np.generic]]":
    """Map a whole file of numbers, to read; pages are loaded as they are needed."""
    try:
        size = path.stat().st_size
        if size % kind.itemsize:
            raise _unreadable(path, f"its size, {size} bytes, is not a multiple of {kind.itemsize}")
        if not size:
            raise _unreadable(path, "it is empty")
        return np.memmap(path, kind, mode="c")  # "c" (private): torch warns of arrays that are read-only
    except OSError as error:
        raise _unreadable(path, error.strerror or first_line(error)) from error


def _unreadable(path: Path, why: str) -> MissingData:
    return MissingData(f"Could not read {path}.", f"{why[:1].upper()}{why[1:]}.", "Download it again.")


def open_mnist(folder: Path) -> tuple[TensorSamples, TensorSamples]:
    """Map MNIST's training and test images, in `folder` or where torchvision puts them in it, MNIST/raw."""
    inside = folder / "MNIST" / "raw"
    raw = folder if any((folder / _mnist_name(name)).is_file() for name in _MNIST_FILES) else inside
    paths = [raw / _mnist_name(name) for name in _MNIST_FILES]
    for path in paths:
        if not path.is_file():
            packed = path.with_name(f"{path.name}.gz").exists()
            raise MissingData(
                f"MNIST is not complete: there is no {path}{' (only its .gz: unpack it)' if packed else ''}.",
                now="Put the four files there, use --download, or use --dataset digits.",
            )
    return _open_labelled(*paths[:2]), _open_labelled(*paths[2:])


def _mnist_name(name: str) -> str:
    return f"{name}-idx{3 if name.endswith('images') else 1}-ubyte"


def _open_labelled(images: Path, labels: Path) -> TensorSamples:
    pixels_NHW, labels_N = _open_idx(images, 3), _open_idx(labels, 1)
    if len(pixels_NHW) != len(labels_N):
        raise _unreadable(labels, f"{len(labels_N)} labels for {len(pixels_NHW)} images")
    if int(labels_N.max()) > 9:
        raise _unreadable(labels, f"it has a label {int(labels_N.max())}, and there are 10 classes")
    return TensorSamples(pixels_NHW[:, None], labels_N.long())


def _open_idx(path: Path, dimensions: int) -> Tensor:
    """Map an IDX file of unsigned bytes: uint8, with its shape."""
    head = 4 + 4 * dimensions
    mapped = torch.from_numpy(map_file(path, np.dtype(np.uint8)))
    if len(mapped) < head or bytes(mapped[:4].numpy()) != bytes((0, 0, _UNSIGNED_BYTES, dimensions)):
        raise _unreadable(path, "it is not in the IDX format")
    shape = struct.unpack(f">{dimensions}I", bytes(mapped[4:head].numpy()))
    size = head + int(np.prod(shape, dtype=np.uint64))
    if len(mapped) != size or not all(shape):
        raise _unreadable(path, f"its header announces {size} bytes and it has {len(mapped)}")
    return mapped[head:].view(shape)


@dataclass(frozen=True, slots=True)
class TokenWindows(Samples):
    """Consecutive sequences of a mapped file; the target of each token is the next one."""

    path: Path
    tokens: Any
    """Mapped numpy array (N,)."""
    length: int
    vocabulary: int

    def __post_init__(self) -> None:
        if len(self.tokens) <= self.length:
            raise MissingData(
                f"{self.path} is too short.",
                f"A part of it has {len(self.tokens)} tokens, and a sequence needs {self.length + 1}.",
                "Choose a smaller --sequence-length, or more text.",
            )

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.length

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens and the tokens after them, int64 (B, T)."""
        starts_B = indices_B.numpy() * self.length
        window = np.arange(self.length + 1)
        taken = torch.from_numpy(self.tokens[starts_B[:, None] + window].astype(np.int64))
        largest = int(taken.max())
        if largest >= self.vocabulary:
            raise MissingData(
                f"{self.path} has a token {largest}.",
                f"The vocabulary is {self.vocabulary}.",
                "Choose --vocabulary and --token-bytes as the file was made.",
            )
        return taken[:, :-1], taken[:, 1:]


def open_tokens(
    path: Path, length: int, token_bytes: int, vocabulary: int
) -> tuple[TokenWindows, TokenWindows]:
    """Map the tokens for training and for validation.

    `path` is a file, whose last tenth is for validation; a folder with a single .bin or .txt file; or a
    folder with `train` and `val`, each with the suffix .bin, .txt or none. A token has 1, 2 or 4 bytes.
    """
    if not path.exists():
        raise MissingData(f"There is no {path}.", now="Name a file or folder of tokens with --data.")
    kind = np.dtype(_TOKEN_TYPES[token_bytes])
    if path.is_dir() and len(files := _token_files(path)) == 1 and files[0].stem not in ("train", "val"):
        [path] = files
    train: tuple[Path, Any]
    validation: tuple[Path, Any]
    if path.is_dir():
        files = [_find(path, name) for name in ("train", "val")]
        train, validation = ((file, map_file(file, kind)) for file in files)
    else:
        tokens = map_file(path, kind)
        end = max(length + 1, int(len(tokens) * (1 - _VALIDATION_SHARE)))
        train, validation = (path, tokens[:end]), (path, tokens[end:])
    return TokenWindows(*train, length, vocabulary), TokenWindows(*validation, length, vocabulary)


def _token_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in (".bin", ".txt") and path.is_file())
    except OSError as error:
        raise MissingData(f"Cannot list {folder}.", f"{error.strerror}.") from error


def _find(folder: Path, name: str) -> Path:
    for suffix in (".bin", ".txt", ""):
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    names = ", ".join(path.name for path in _token_files(folder)[:5])
    raise MissingData(
        f"There is no {folder / name}.bin.",
        f"Files of tokens or text there: {names or 'none'}.",
        "Put train.bin and val.bin there, or name one file with --data.",
    )
