"""Checkpoint files: written atomically, checked when read.

A checkpoint is one file, `step-<step>.pt`, written under a temporary name, flushed to the disk and renamed.
It is read with `weights_only`, so it cannot run code. Numbers that are not finite are neither written nor
accepted.
"""

import contextlib
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from trainer.distributed.folders import DISK_FULL
from trainer.messages import DamagedCheckpoints, NotFinite, TrainingError, first_line

_NAME = re.compile(r"step-(\d+)\.pt")
_FORMAT = 1

State = dict[str, Any]
"""Content of a checkpoint: tensors, numbers, strings, and lists and dicts of them."""


class CheckpointNotWritten(TrainingError):
    """A checkpoint could not be written; earlier ones are still there."""

    is_full = False
    """True if the disk, or the user's quota on it, is full."""


def check_finite(step: int, state: State) -> None:
    """Check that `state`, of `step`, may be saved.

    Raises:
        NotFinite: It holds a number that is not finite.
    """
    where = find_not_finite(state)
    if where:
        raise NotFinite(
            f"The weights are no longer finite after step {step} (in {where}), so they are not saved.",
            "The learning rate may be too high.",
            "Choose a smaller --lr; a new start resumes from the checkpoint before, if there is one.",
        )


def write_checkpoint(folder: Path, step: int, state: State, keep: int) -> Path:
    """Write `state` as the checkpoint of `step`, then delete old ones of earlier steps so that `keep` remain.

    Damaged files do not count. A reader finds the complete file or none, also after a crash.

    Raises:
        CheckpointNotWritten: The file cannot be written.
    """
    path = folder / f"step-{step:08d}.pt"
    partial = folder / f".{path.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(partial, {"format": _FORMAT, **state})
        partial.replace(path)
        _sync_folder(folder)
        _drop_older(folder, step, keep - 1)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        reason = f"{error.strerror or first_line(error)}."
        failure = CheckpointNotWritten(f"Could not write the checkpoint {path}.", reason)
        failure.is_full = error.errno in DISK_FULL
        raise failure from error
    return path


def find_not_finite(state: State) -> str:
    """Return the name of a tensor that holds an infinity or NaN, as `model.0.weight`; "" if there is none."""
    # One pass over each tensor, and one synchronization per device.
    names: dict[torch.device, list[str]] = {}
    largest: dict[torch.device, list[Tensor]] = {}
    for name, tensor in _tensors("", state):
        if tensor.is_floating_point() and tensor.numel():
            names.setdefault(tensor.device, []).append(name)
            norm = torch.linalg.vector_norm(tensor.detach(), float("inf"))
            largest.setdefault(tensor.device, []).append(norm.double())
    for device, norms in largest.items():
        for name, is_finite in zip(names[device], torch.stack(norms).isfinite().tolist(), strict=True):
            if not is_finite:
                return name
    return ""


def _tensors(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(f"{name}.{key}" if name else str(key), each)


def _write(path: Path, state: State) -> None:
    with path.open("wb") as file:
        recorder = _ErrorRecorder(file)
        try:
            torch.save(state, cast(IO[bytes], recorder))
        except RuntimeError as error:
            # torch reports only that its own count of bytes is wrong.
            raise recorder.error or OSError(first_line(error)) from error
        file.flush()
        os.fsync(file.fileno())


class _ErrorRecorder:
    """A writable file that remembers its first error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        self._file.flush()


def _drop_older(folder: Path, step: int, keep: int) -> None:
    for path in list_checkpoints(folder):
        if step_of(path) >= step:  # of another run, if higher
            continue
        if keep > 0:
            keep -= zipfile.is_zipfile(path)
        else:
            path.unlink(missing_ok=True)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name; -1 for other names."""
    matched = _NAME.fullmatch(path.name)
    return int(matched[1]) if matched else -1


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, highest step first; empty if there is no folder.

    Raises:
        TrainingError: The folder cannot be listed.
    """
    try:
        found = [path for path in folder.iterdir() if step_of(path) >= 0]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TrainingError(
            f"Cannot read {folder}.", f"{error.strerror}.", "Choose another folder with --checkpoint-dir."
        ) from error
    return sorted(found, key=step_of, reverse=True)


def set_aside(folder: Path, paths: list[Path]) -> Path:
    """Move checkpoints of `folder` to a new subfolder `old-<number>` and return that.

    Raises:
        TrainingError: They cannot be moved.
    """
    number = 1
    while True:
        aside = folder / f"old-{number}"
        try:
            aside.mkdir()
            for path in paths:
                path.rename(aside / path.name)
            _sync_folder(aside)
            _sync_folder(folder)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise TrainingError(
                f"Could not move the old checkpoints to {aside}.",
                f"{error.strerror}.",
                "Choose another folder with --checkpoint-dir.",
            ) from error
        else:
            return aside


def load_latest(folder: Path, warn: Callable[[str], None]) -> tuple[Path, State] | None:
    """Return the readable checkpoint of the highest step; None if there is no checkpoint at all.

    `warn` is called for each damaged one.

    Raises:
        DamagedCheckpoints: There are checkpoints, but all are damaged.
        TrainingError: The folder cannot be listed.
    """
    paths = list_checkpoints(folder)
    for path in paths:
        try:
            return path, load_checkpoint(path)
        except TrainingError as error:
            warn(str(error))
    if paths:
        raise DamagedCheckpoints(
            f"None of the {len(paths)} checkpoints in {folder} can be read.",
            now="Move them away, or start from scratch with --resume never.",
        )
    return None


def load_checkpoint(path: Path) -> State:
    """Read one checkpoint, with its tensors on the CPU.

    Raises:
        TrainingError: The file is damaged, of another program, or holds numbers that are not finite.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is not None:
            raise ValueError(f"its part {damaged} does not match its checksum")
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except (
        OSError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        raise TrainingError(f"The checkpoint {path} cannot be read.", f"{first_line(error)}.") from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise TrainingError(f"The checkpoint {path} was not written by this trainer.")
    where = find_not_finite(state)
    if where:
        raise TrainingError(f"The checkpoint {path} cannot be used.", f"{where} in it is not finite.")
    return state


def _sync_folder(folder: Path) -> None:
    # Without it, the new name may not survive a power cut.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
