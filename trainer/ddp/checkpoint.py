"""Checkpoints that survive what kills a job: a killed process, a full disk, a torn file.

A checkpoint is one file, `step-<step>.pt`, written beside, flushed to the disk
and renamed; it is read with `weights_only`, so it cannot run code.
"""

import contextlib
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainer.messages import TrainingError, first_line

_NAME = re.compile(r"step-(\d+)\.pt")
_FORMAT = 1

State = dict[str, Any]
"""What a checkpoint holds: tensors, numbers, strings, and lists and dicts of them."""


def save_checkpoint(folder: Path, step: int, state: State, keep: int) -> Path:
    """Write `state` as the checkpoint of `step`, then drop all but the `keep` newest.

    Whoever reads meanwhile, or after a crash, finds either the whole file or none.

    Raises:
        TrainingError: The file cannot be written; older checkpoints are still there.
    """
    path = folder / f"step-{step:08d}.pt"
    partial = folder / f".{path.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            torch.save({"format": _FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(folder)
        for old in list_checkpoints(folder)[keep:]:
            old.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise TrainingError(
            f"Could not write the checkpoint {path}.",
            f"{error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)}.",
            "Make room or choose another --checkpoint-dir; training goes on from the last checkpoint.",
        ) from error
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints in `folder`, newest step first; none if there is no folder."""
    try:
        found = [
            (int(matched[1]), path) for path in folder.iterdir() if (matched := _NAME.fullmatch(path.name))
        ]
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(found, reverse=True)]


def load_latest(folder: Path, warn: Callable[[str], None]) -> tuple[Path, State] | None:
    """Read the newest checkpoint that can be read; None if there is no checkpoint at all.

    `warn` is told of each one that is damaged.

    Raises:
        TrainingError: There are checkpoints, but all are damaged.
    """
    paths = list_checkpoints(folder)
    for path in paths:
        try:
            return path, load_checkpoint(path)
        except TrainingError as error:
            warn(str(error))
    if paths:
        raise TrainingError(
            f"None of the {len(paths)} checkpoints in {folder} can be read.",
            now="Move them away, or start anew with --resume never.",
        )
    return None


def load_checkpoint(path: Path) -> State:
    """Read one checkpoint, onto the processor.

    Raises:
        TrainingError: The file is damaged, or not a checkpoint of ours.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            torn = parts.testzip()
        if torn is not None:
            raise ValueError(f"its part {torn} does not match its checksum")
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
    return state


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
