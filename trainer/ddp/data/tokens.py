"""Files of tokens: text as bytes, or numbers of two or four bytes as GPT's data is often prepared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.ddp.data.mapped_files import map_file
from trainer.messages import InvalidArguments, MissingData

VALIDATION_SHARE = 0.1
"""Of a single file, the end that is not learnt from."""

_KINDS: dict[int, Any] = {1: np.uint8, 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_NAMES = ("{}.bin", "{}.txt", "{}")


@dataclass(frozen=True, slots=True)
class TokenWindows:
    """Sequences side by side in one mapped file; the target of each token is the one after it."""

    numbers: Any
    """The tokens, a mapped numpy array (N,)."""
    length: int
    """Tokens of a sequence."""
    vocabulary: int
    """Tokens there are."""
    path: Path
    """Where they come from."""

    @property
    def device(self) -> torch.device:
        """The processor's."""
        return torch.device("cpu")

    @property
    def is_slow(self) -> bool:
        """No: the kernel keeps the pages of a mapped file."""
        return False

    def __len__(self) -> int:
        return (len(self.numbers) - 1) // self.length

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens (B, T) and the tokens after them (B, T), int64.

        Raises:
            MissingData: One is not in the vocabulary.
        """
        starts_B = indices_B.numpy() * self.length
        window = np.arange(self.length + 1)
        taken = torch.from_numpy(self.numbers[starts_B[:, None] + window].astype(np.int64))
        largest = int(taken.max())
        if largest >= self.vocabulary:
            raise MissingData(
                f"{self.path} has a token {largest}.",
                f"The vocabulary is {self.vocabulary}.",
                "Choose --vocabulary and --token-bytes as the file was made.",
            )
        return taken[:, :-1], taken[:, 1:]

    def to(self, device: torch.device) -> "TokenWindows":
        """Stay where they are: the file is read as it is needed."""
        return self


def open_tokens(
    path: Path, length: int, token_bytes: int, vocabulary: int
) -> tuple[TokenWindows, TokenWindows]:
    """Map a file, whose last tenth is for validation, or a folder with `train.bin` and `val.bin`.

    Args:
        path: The file or folder; the files may also end in .txt or in nothing. A folder may
            hold a single such file too, of any name.
        length: Tokens of a sequence.
        token_bytes: Bytes of a token: 1, 2 or 4, little-endian.
        vocabulary: Tokens there are.

    Raises:
        MissingData: A file is missing, torn, or too short for a sequence.
    """
    if not path.exists():
        raise MissingData(f"There is no {path}.", now="Name a file or folder of tokens with --data.")
    if path.is_dir() and (only := _only_file(path)):
        path = only
    if path.is_dir():
        return (
            _windows(_find(path, "train"), length, token_bytes, vocabulary),
            _windows(_find(path, "val"), length, token_bytes, vocabulary),
        )
    numbers = map_file(path, np.dtype(_KINDS[token_bytes]))
    end = max(length + 1, int(len(numbers) * (1 - VALIDATION_SHARE)))
    parts = numbers[:end], numbers[end:]
    train, validation = (_checked(TokenWindows(part, length, vocabulary, path)) for part in parts)
    return train, validation


def vocabulary_size(chosen: int, token_bytes: int) -> int:
    """Return how many tokens there are: as chosen, and for bytes 256.

    Raises:
        InvalidArguments: It is not known.
    """
    if chosen or token_bytes == 1:
        return chosen or 256
    raise InvalidArguments(
        "--vocabulary: how many tokens there are is not known.",
        "The tokens are no bytes.",
        "Give it; GPT-2's is 50257.",
    )


def _only_file(folder: Path) -> Path | None:
    """Return the file of tokens or text in a folder; None if there are several, or none."""
    found = _files(folder)
    return found[0] if len(found) == 1 and found[0].stem not in ("train", "val") else None


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in (".bin", ".txt") and path.is_file())
    except OSError as error:
        raise MissingData(f"Cannot list {folder}.", f"{error.strerror}.") from error


def _find(folder: Path, name: str) -> Path:
    for pattern in _NAMES:
        path = folder / pattern.format(name)
        if path.is_file():
            return path
    there = ", ".join(path.name for path in _files(folder)[:5])
    raise MissingData(
        f"There is no {folder / name}.bin.",
        f"Of tokens or text there is {there or 'nothing'}.",
        "Put train.bin and val.bin there, or name one file with --data.",
    )


def _windows(path: Path, length: int, token_bytes: int, vocabulary: int) -> TokenWindows:
    numbers = map_file(path, np.dtype(_KINDS[token_bytes]))
    return _checked(TokenWindows(numbers, length, vocabulary, path))


def _checked(windows: TokenWindows) -> TokenWindows:
    if len(windows) < 1:
        raise MissingData(
            f"{windows.path} is too short.",
            f"A part of it has {len(windows.numbers)} tokens, and a sequence needs {windows.length + 1}.",
            "Choose a smaller --sequence-length, or more text.",
        )
    return windows
