"""Checkpoints of a run: files that are written atomically and checked when read, and where a run resumes.

A checkpoint is one file, `step-<step>.pt`. It is read with `weights_only`, so it cannot run code. Numbers
that are not finite are neither written nor accepted.
"""

import argparse
import re
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.catalogue import OWN_MODELS
from trainer.ddp.datasets import Dataset
from trainer.distributed.outputs import DISK_FULL, replace_file, sync_folder
from trainer.messages import DamagedCheckpoints, NotFinite, TrainingError, ago, first_line, log, log_error

_NAME = re.compile(r"step-(\d+)\.pt")
_FORMAT = 1

State = dict[str, Any]  # content of a checkpoint: tensors, numbers, strings, and lists and dicts of them
CheckpointArgs = dict[str, str | int | float]  # arguments by name, with `auto` resolved

_OF_GPT = ("layers", "heads", "width")
_OF_NETWORK = ("model", *_OF_GPT, "sequence-length", "vocabulary", "image-size", "classes")
_OF_OPTIMIZER = ("optimizer", "momentum")
_OF_STEPS = (
    *("lr", "weight-decay", "schedule", "warmup", "step-epochs", "gamma", "epochs", "batch-size"),
    *("accumulate", "clip-norm", "precision", "dataset", "data", "train-images", "augment", "seed"),
)


class CheckpointFolder:
    """A folder with the checkpoints of one run, used by rank 0 only.

    They are written one at a time, in a thread: a step waits for a copy of the weights, not for the disk.
    """

    def __init__(self, path: Path, keep: int, job: str, continues_when_full: bool) -> None:
        """Keep the newest checkpoints in `path`; `job`, recorded in each, is empty outside a cluster."""
        self.path, self._keep, self._job = path, keep, job
        self.continues_when_full = continues_when_full
        self._thread: threading.Thread | None = None
        self._saved = ""
        self._error: BaseException | None = None

    def load(self, resume: str) -> tuple[Path, State] | None:
        """Return the checkpoint to resume from, with its file; None for a new run.

        With `never`, existing checkpoints are moved aside. Otherwise nothing changes: see `resumed`.
        """
        existing = list_checkpoints(self.path)
        if resume == "never":
            if existing:
                aside = set_aside(self.path, existing)
                log(f"starts from scratch; the old checkpoints ({len(existing)}) are now in {aside}")
            return None
        found = load_latest(self.path)
        if found is None and resume == "must":
            now = "Check --checkpoint-dir, or use --resume auto."
            raise TrainingError(f"There is no checkpoint in {self.path}.", now=now)
        return found

    def resumed(self, path: Path, state: State) -> None:
        """Log which checkpoint the run resumes from, once all ranks have loaded it.

        Damaged checkpoints of later steps are moved aside, so that this run's are the highest.
        """
        saved_at = state.get("saved_at", path.stat().st_mtime)
        job = f" of {state['job']}" if state.get("job") else ""
        log(f"continues step {state['step']}{job}, saved {ago(time.time() - saved_at)}")
        log(f"resumed from {path}: epoch {state['epoch'] + 1}, step {state['step']}")
        if "averages" in state:
            log("the moving average of the weights in it (--ema) is no longer used")
        damaged = [each for each in list_checkpoints(self.path) if step_of(each) > step_of(path)]
        if damaged:
            log_error(f"warning: What could not be read is now in {set_aside(self.path, damaged)}.")

    @property
    def has_failed(self) -> bool:
        """True if the last checkpoint could not be written; `finish` then raises the reason."""
        return self._error is not None

    def start(self, state: State) -> None:
        """Copy `state` and start to write the copy, once the previous checkpoint is written: see `finish`."""
        self.finish()
        check_finite(state["step"], state)
        self._thread = threading.Thread(target=self._write_copy, args=(_copy(state),), name="checkpoint")
        self._thread.start()

    def finish(self) -> str:
        """Wait until the last checkpoint is on the disk, and return its path; "" if the disk was full.

        Raises:
            TrainingError: It could not be written, and training must stop.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._saved

    def close(self) -> None:
        """Wait until the last checkpoint is on the disk, and log if it could not be written."""
        try:
            self.finish()
        except TrainingError as error:
            log_error(f"error: {error}")

    def _write_copy(self, state: State) -> None:
        try:
            self._saved = self.write(state)
        except BaseException as error:  # the rank raises it: a thread would only print it
            self._error = error

    def write(self, state: State) -> str:
        """Write a checkpoint of `state`, which is finite; returns and raises as `finish`."""
        state |= {"job": self._job, "saved_at": time.time()}
        path = path_of(self.path, state["step"])
        try:
            write_checkpoint(self.path, state["step"], state, self._keep)
        except OSError as error:
            what = f"Could not write the checkpoint {path}."
            why, is_full = error.strerror or first_line(error), error.errno in DISK_FULL
            existing = list_checkpoints(self.path)
            last = f"the last checkpoint is {existing[0]}" if existing else f"no checkpoint is in {self.path}"
            if is_full and self.continues_when_full:
                log_error(f"warning: {what} {why}. Training goes on; {last}.")
                return ""
            raise TrainingError(
                what,
                f"{why}. Training stops; {last}.",
                "Make room or choose another --checkpoint-dir, then start again"
                + ("; --on-full-disk continue would train on." if is_full else "."),
            ) from error
        return str(path)


def check_finite(step: int, state: State) -> None:
    """Refuse to save a `state` that holds a number that is not finite."""
    if where := find_not_finite(state):
        raise NotFinite(
            f"The weights are no longer finite after step {step} (in {where}), so they are not saved.",
            "The learning rate may be too high.",
            "Choose a smaller --lr; a new start resumes from the checkpoint before, if there is one.",
        )


def write_checkpoint(folder: Path, step: int, state: State, keep: int) -> None:
    """Write the checkpoint of `step`, then delete earlier ones so that `keep` remain, beside damaged ones."""
    replace_file(path_of(folder, step), lambda file: torch.save({"format": _FORMAT, **state}, file))
    keep -= 1
    for path in list_checkpoints(folder):
        if step_of(path) >= step:  # of another run, if higher
            continue
        if keep > 0:
            keep -= zipfile.is_zipfile(path)
        else:
            path.unlink(missing_ok=True)


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


def path_of(folder: Path, step: int) -> Path:
    """Return the file of a step's checkpoint."""
    return folder / f"step-{step:08d}.pt"


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name; -1 for other names."""
    matched = _NAME.fullmatch(path.name)
    return int(matched[1]) if matched else -1


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, highest step first; empty if there is no folder."""
    try:
        found = [path for path in folder.iterdir() if step_of(path) >= 0]
    except FileNotFoundError:
        return []
    except OSError as error:
        now = "Choose another folder with --checkpoint-dir."
        raise TrainingError(f"Cannot read {folder}.", f"{error.strerror}.", now) from error
    return sorted(found, key=step_of, reverse=True)


def set_aside(folder: Path, paths: list[Path]) -> Path:
    """Move checkpoints of `folder` to a new subfolder `old-<number>` and return that."""
    aside = folder / "old-1"
    try:
        aside = next(each for number in count(1) if not (each := folder / f"old-{number}").exists())
        aside.mkdir()
        for path in paths:
            path.rename(aside / path.name)
        sync_folder(aside)
        sync_folder(folder)
    except OSError as error:
        what, now = (
            f"Could not move the old checkpoints to {aside}.",
            "Choose another folder with --checkpoint-dir.",
        )
        raise TrainingError(what, f"{error.strerror}.", now) from error
    return aside


def load_latest(folder: Path) -> tuple[Path, State] | None:
    """Return the readable checkpoint of the highest step, warning of damaged ones; None if none exists."""
    paths = list_checkpoints(folder)
    for path in paths:
        try:
            return path, load_checkpoint(path)
        except TrainingError as error:
            log_error(f"warning: {error}")
    if paths:
        now = "Move them away, or start from scratch with --resume never."
        raise DamagedCheckpoints(f"None of the {len(paths)} checkpoints in {folder} can be read.", now=now)
    return None


def load_checkpoint(path: Path) -> State:
    """Read one checkpoint, with its tensors on the CPU, and check it."""
    try:
        with zipfile.ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is not None:
            raise ValueError(f"its part {damaged} does not match its checksum")
        state: State = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise  # the file may be whole
    except Exception as error:  # from damage, each decompressor, zipfile, pickle and torch raise their own
        raise TrainingError(f"The checkpoint {path} cannot be read.", f"{first_line(error)}.") from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise TrainingError(f"The checkpoint {path} was not written by this trainer.")
    if where := find_not_finite(state):
        raise TrainingError(f"The checkpoint {path} cannot be used.", f"{where} in it is not finite.")
    return state


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copy(each) for each in value]
    return value


def checkpoint_args(arguments: argparse.Namespace, dataset: Dataset) -> CheckpointArgs:
    """Return the arguments that a checkpoint records; those of the run, with `auto` resolved."""
    given = {name.replace("_", "-"): value for name, value in vars(arguments).items()}
    is_gpt = arguments.model == "gpt"
    given |= {
        "vocabulary" if is_gpt else "classes": dataset.classes,
        "sequence-length" if is_gpt else "image-size": dataset.shape[-1],
        "momentum": arguments.momentum if arguments.optimizer == "sgd" else 0,
    }
    others = ("classes", "image-size") if is_gpt else (*_OF_GPT, "sequence-length", "vocabulary")
    recorded = (*_OF_NETWORK, *_OF_OPTIMIZER, *_OF_STEPS)
    return {name: given[name] for name in recorded if name not in others}


def check_resumable(saved: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return the arguments that differ, as `--lr 0.1 (was 0.3)`; TrainingError if no run can resume so."""
    is_own = now.get("model") in OWN_MODELS  # torchvision's networks accept images of any size
    of_network = tuple(name for name in _OF_NETWORK if is_own or name != "image-size")
    if _differences(saved, now, (*of_network, "optimizer")):
        different = _differences(saved, now, (*of_network, *_OF_OPTIMIZER))
        advice = "Choose what it was made with, another --checkpoint-dir, or --resume never."
        raise TrainingError(f"The checkpoint was made with {', '.join(different)}.", now=advice)
    return ", ".join(_differences(now, saved, (*_OF_OPTIMIZER, "image-size", *_OF_STEPS), label="was"))


def _differences(
    ours: Mapping[str, object], theirs: Mapping[str, object], names: Iterable[str], label: str = "here"
) -> list[str]:
    return [
        f"--{name} {ours[name]} ({label} {theirs[name]})"
        for name in names
        if name in ours and name in theirs and ours[name] != theirs[name]
    ]
