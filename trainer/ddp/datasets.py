"""The data set that the arguments name: digits, MNIST, folders of images, tokens in files, or noise.

A digit is a few strokes through control points. Every image moves the points, bends and slants the digit,
chooses a pen, and adds blur and noise. The same seed draws the same images on every machine. Files are mapped
into memory; images are decoded when needed. Source: "THE MNIST DATABASE", file formats.
"""

import argparse
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.catalogue import OF_TOKENS
from trainer.ddp.batches import Batch, BatchLoader, Samples, TensorSamples, noise_images, noise_tokens
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.runtime import import_torchvision
from trainer.messages import MissingData, TrainingError, first_line

_DEFAULT_IMAGE_SIZE = 224
_DIFFERENT_BYTES = 256
_MNIST_FILES = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_UNSIGNED_BYTES = 8  # type of the elements, in the third byte of an IDX file

_VALIDATION_SHARE = 0.1  # of a single file of tokens, the end that is for validation
_TOKEN_TYPES: dict[int, Any] = {1: np.uint8, 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
# Images are larger than the crop, so that it can move: 256 for 224.
_MARGIN = 8 / 7


@dataclass(frozen=True, slots=True)
class Dataset:
    """Training and validation samples, their shape, and how batches of them are loaded."""

    train: Samples
    validation: Samples
    shape: tuple[int, ...]
    """Of one input: channels, height and width of an image, or the length of a sequence."""
    classes: int  # for tokens, the vocabulary
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
    return draw_digits(train_images, (seed, 0)), draw_digits(val_images, (seed, 1))


def download_mnist(folder: Path) -> None:
    """Download MNIST into `folder`, or above it if it is MNIST/raw, as torchvision lays out the files."""
    root = folder.parent.parent if (folder.parent.name, folder.name) == ("MNIST", "raw") else folder
    datasets = import_torchvision("datasets", "--dataset digits")
    try:
        for train in (True, False):
            datasets.MNIST(str(root), train=train, download=True)
    except (OSError, RuntimeError, ValueError, AssertionError, IndexError) as error:
        why = f"{type(error).__name__}: {str(error) or 'a file is not in the IDX format'}."
        now = "Try again, or use --dataset digits, which needs no files."
        raise MissingData(f"Could not download MNIST into {root}.", why, now) from error


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
            what = f"there is no {path}{' (only its .gz: unpack it)' if packed else ''}."
            now = "Put the four files there, use --download, or use --dataset digits."
            raise MissingData(f"MNIST is not complete: {what}", now=now)
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
    tokens: Any  # mapped numpy array (N,)
    length: int
    vocabulary: int

    def __post_init__(self) -> None:
        if len(self.tokens) <= self.length:
            why = f"A part of it has {len(self.tokens)} tokens, and a sequence needs {self.length + 1}."
            now = "Choose a smaller --sequence-length, or more text."
            raise MissingData(f"{self.path} is too short.", why, now)

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.length

    def take(self, indices_B: Tensor) -> Batch:
        """Return tokens and the tokens after them, int64 (B, T)."""
        starts_B = indices_B.numpy() * self.length
        window = np.arange(self.length + 1)
        taken = torch.from_numpy(self.tokens[starts_B[:, None] + window].astype(np.int64))
        largest = int(taken.max())
        if largest >= self.vocabulary:
            what, now = (
                f"{self.path} has a token {largest}.",
                "Choose --vocabulary and --token-bytes to fit the file.",
            )
            raise MissingData(what, f"The vocabulary is {self.vocabulary}.", now)
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
    names = ", ".join(path.name for path in _token_files(folder)[:5]) or "none"
    now = "Put train.bin and val.bin there, or name one file with --data."
    raise MissingData(f"There is no {folder / name}.bin.", f"Files of tokens or text there: {names}.", now)


@dataclass(frozen=True, slots=True)
class ImageFiles(Samples):
    """Labelled image files, decoded by threads."""

    paths: Sequence[Path]
    labels_N: Tensor  # int64
    size: int
    # Not processes: Pillow releases the interpreter's lock while it decodes, and nothing goes through
    # /dev/shm, of which a pod has 64 MiB by default.
    threads: ThreadPoolExecutor

    needs_decoding = True

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, indices_B: Tensor) -> Batch:
        """Return pixels (B, 3, size, size), uint8, and labels (B,)."""
        pixels_BHW3 = np.empty((len(indices_B), self.size, self.size, 3), np.uint8)

        def decode(at: int, index: int) -> None:
            pixels_BHW3[at] = decode_image(self.paths[index], self.size)

        done = [self.threads.submit(decode, at, index) for at, index in enumerate(indices_B.tolist())]
        for each in done:
            each.result()
        return torch.from_numpy(pixels_BHW3).permute(0, 3, 1, 2), self.labels_N[indices_B]


def open_image_folder(folder: Path, size: int, workers: int) -> tuple[ImageFiles, ImageFiles, int]:
    """List the images of `folder/train/<class>/` and `folder/val/<class>/`, and count the classes.

    `size` is the height and width of the crop that a network gets, `workers` the number of decoding threads.
    """
    _import_pillow()
    classes = _folders(folder / "train")
    unknown = [name for name in _folders(folder / "val") if name not in classes]
    if unknown:
        what = f"{folder / 'val' / unknown[0]} is a class that {folder / 'train'} does not have."
        raise MissingData(what, now="Both need the same folders.")
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
        why = f"{first_line(error)}."
        raise MissingData(f"Could not read the image {path}.", why, "Replace or remove it.") from error


def _import_pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ModuleNotFoundError as error:
        now = "Install pillow, or use another --dataset."
        raise TrainingError("Pillow, which reads images, is not installed.", f"{error}.", now) from error


def _folders(folder: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        now = "--data names a folder with train/<class>/ and val/<class>/."
        raise MissingData(f"Could not list {folder}.", f"{error.strerror}.", now) from error
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


IMAGE_SIZE = 28
# Dots along all strokes of a digit, close enough to look like lines.
_DOTS = 56
# Images drawn at once, few enough to stay in the CPU's cache.
_BATCH = 128

# For each digit, the ways to write it: strokes between "/", each a list of points x,y from 0 to 100.
_STYLES = (
    (
        "50,0 10,20 0,50 10,80 50,100 90,80 100,50 90,20 50,0",
        "10,20 0,50 10,80 50,100 90,80 100,50 90,20 50,0 10,20 0,50",
    ),
    ("50,0 50,50 50,100", "25,25 55,0 55,50 55,100", "25,25 50,0 50,100 / 20,100 80,100"),
    ("5,25 30,0 80,5 90,35 50,70 5,100 50,100 100,97", "10,20 50,0 85,25 50,70 10,95 20,75 50,95 100,100"),
    ("10,10 50,0 85,20 45,47 90,70 60,100 5,90", "10,2 85,2 45,40 90,65 60,100 5,90"),
    ("65,0 35,35 0,65 50,66 100,65 / 70,35 70,70 68,100", "15,0 5,30 10,55 50,57 85,50 / 85,5 83,50 80,100"),
    ("90,2 50,0 20,3 15,42 50,35 90,60 60,100 5,90", "20,0 15,40 60,40 90,70 50,100 5,93 / 20,0 90,2"),
    ("75,0 30,25 5,65 30,100 80,90 85,60 45,50 10,70", "45,0 15,40 10,85 50,100 85,80 60,58 15,75"),
    ("5,3 50,2 95,0 65,45 40,100", "5,10 8,0 95,2 60,50 45,100 / 30,50 80,48"),
    (
        "80,15 50,0 15,20 50,47 90,75 50,100 10,78 50,47 80,22 75,10",
        "50,0 20,22 50,45 80,22 50,0 / 50,45 10,72 50,100 90,72 50,45",
    ),
    ("85,20 50,0 15,25 45,50 85,25 83,60 75,100", "85,25 50,0 15,25 45,48 85,25 85,75 50,100 15,90"),
)


def draw_digits(count: int, seed: tuple[int, ...]) -> TensorSamples:
    """Draw `count` digits, white on black and shuffled; 10,000 take about a second on one core."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % 10)
    styles = random.integers(0, 6, count)
    images = np.empty((count, IMAGE_SIZE, IMAGE_SIZE), np.uint8)
    for digit in range(10):
        for number, style in enumerate(_STYLES[digit]):
            indices = np.flatnonzero((labels == digit) & (styles % len(_STYLES[digit]) == number))
            for start in range(0, len(indices), _BATCH):
                batch = indices[start : start + _BATCH]
                images[batch] = _draw(style, len(batch), random)
    return TensorSamples(torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64)))


def _draw(style: str, count: int, random: np.random.Generator) -> NDArray[np.uint8]:
    strokes = [
        np.array([point.split(",") for point in text.split()], float) / 100 for text in style.split("/")
    ]
    lengths = [np.hypot(*np.diff(stroke, axis=0).T).sum() for stroke in strokes]
    dots_BD2 = np.concatenate(
        [
            _sample_stroke(stroke, count, max(8, round(_DOTS * length / sum(lengths))), random)
            for stroke, length in zip(strokes, lengths, strict=True)
        ],
        axis=1,
    )
    return _degrade(_rasterize(_transform(dots_BD2, random), random), random)


def _sample_stroke(
    stroke: NDArray[np.float64], count: int, dots: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """Return dots (count, dots, 2) on a Catmull-Rom spline through the stroke's points, slightly moved."""
    points_BP2 = stroke + random.normal(0, 0.05, (count, *stroke.shape))
    ends = 2 * points_BP2[:, [0, -1]] - points_BP2[:, [1, -2]]
    padded = np.concatenate([ends[:, :1], points_BP2, ends[:, 1:]], axis=1)
    position = np.linspace(0, len(stroke) - 1, dots)
    piece = np.minimum(position.astype(int), len(stroke) - 2)
    t = (position - piece)[:, None]
    a, b, c, d = (padded[:, piece + k] for k in range(4))
    curve = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - 3 * c + d - a) * t**3)
    dots_BD2: NDArray[np.float32] = curve.astype(np.float32)
    return dots_BD2


def _transform(dots_BD2: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    count = len(dots_BD2)

    def each(spread: float, middle: float = 0.0) -> NDArray[np.float32]:
        return random.normal(middle, spread, (count, 1)).astype(np.float32)

    x, y = dots_BD2[..., 0] - 0.5, dots_BD2[..., 1] - 0.5
    x = x * (0.75 + each(0.1)) + each(0.05) * np.sin(6 * y + each(2.0))
    y = y + each(0.04) * np.sin(6 * x + each(2.0))
    x = x - y * each(0.22, 0.1)
    angle, size = each(0.14), np.clip(each(1.8, 18.0), 12, 22)
    x, y = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
    middle = (IMAGE_SIZE - 1) / 2
    return np.stack([x * size + middle + each(1.2), y * size + middle + each(1.2)], axis=-1)


def _rasterize(dots_BD2: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    count = len(dots_BD2)
    pixels = np.arange(IMAGE_SIZE, dtype=np.float32)
    dx_DBX = (pixels - dots_BD2[..., 0].T[..., None]) ** 2
    dy_DBY = (pixels - dots_BD2[..., 1].T[..., None]) ** 2
    nearest = np.full((count, IMAGE_SIZE, IMAGE_SIZE), np.inf, np.float32)
    distance = np.empty_like(nearest)
    for dx_BX, dy_BY in zip(dx_DBX, dy_DBY, strict=True):
        np.add(dx_BX[:, None, :], dy_BY[:, :, None], out=distance)
        np.minimum(nearest, distance, out=nearest)
    radius = random.uniform(0.6, 2.0, (count, 1, 1)).astype(np.float32)
    softness = random.uniform(0.5, 1.3, (count, 1, 1)).astype(np.float32)
    ink: NDArray[np.float32] = np.clip((radius - np.sqrt(nearest)) / softness + 0.5, 0, 1)
    return ink


def _degrade(ink: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.uint8]:
    count = len(ink)
    pixels = np.arange(IMAGE_SIZE, dtype=np.float32)
    x, y = random.uniform(6, 22, (2, count, 1)).astype(np.float32)
    reach = random.uniform(0, 2.4, (count, 1, 1)).astype(np.float32)
    patch = (pixels - x)[:, None, :] ** 2 + (pixels - y)[:, :, None] ** 2 < reach**2
    strength = random.uniform(0.55, 1, (count, 1, 1)).astype(np.float32)
    noise = random.standard_normal(ink.shape, np.float32)
    noise *= random.uniform(0.02, 0.2, (count, 1, 1)).astype(np.float32)
    spoiled = np.where(patch, 0, ink * strength) + noise
    return (np.clip(spoiled, 0, 1) * 255).astype(np.uint8)
