"""Checkpoints of one run: where it resumes, its arguments, and writing while training continues."""

import argparse
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.ddp.checkpoint import (
    CheckpointNotWritten,
    State,
    check_finite,
    list_checkpoints,
    load_latest,
    set_aside,
    step_of,
    write_checkpoint,
)
from trainer.ddp.datasets import Dataset
from trainer.ddp_arguments import OWN_MODELS
from trainer.messages import TrainingError, ago, log, log_error

CheckpointArgs = dict[str, str | int | float]
"""Arguments by name, with `auto` resolved."""

_OF_GPT = ("layers", "heads", "width")
_OF_NETWORK = ("model", *_OF_GPT, "sequence-length", "vocabulary", "image-size", "classes")
_OF_OPTIMIZER = ("optimizer", "momentum")
_OF_STEPS = (
    *("lr", "weight-decay", "schedule", "warmup", "step-epochs", "gamma", "epochs", "batch-size"),
    *("accumulate", "clip-norm", "precision", "dataset", "data", "train-images", "augment", "seed"),
)


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A folder that holds one run at a time; used by rank 0 only."""

    path: Path
    keep: int
    model: str
    """Name of the network; checkpoints of others are refused."""
    job: str
    """Name of this job, recorded in each checkpoint; empty outside a cluster."""
    continues_when_full: bool

    def load(self, resume: str) -> tuple[Path, State] | None:
        """Return the checkpoint to resume from, with its file; None for a new run.

        With `never`, existing checkpoints are moved aside. Otherwise nothing changes: see `resumed`.

        Raises:
            TrainingError: There is none and `resume` is `must`, or it cannot be used.
        """
        existing = list_checkpoints(self.path)
        if resume == "never":
            if existing:
                aside = set_aside(self.path, existing)
                log(f"starts from scratch; the old checkpoints ({len(existing)}) are now in {aside}")
            return None
        found = load_latest(self.path, _warn)
        if found is None:
            if resume == "must":
                raise TrainingError(
                    f"There is no checkpoint in {self.path}.",
                    now="Check --checkpoint-dir, or use --resume auto.",
                )
            return None
        path, state = found
        if state["network"] != self.model:
            raise TrainingError(
                f"The checkpoint {path} holds a {state['network']}, not a {self.model}.",
                now="Choose that --model, another --checkpoint-dir, or --resume never.",
            )
        return path, state

    def resumed(self, path: Path, state: State) -> None:
        """Log which checkpoint the run resumes from, once all ranks have loaded it.

        Damaged checkpoints of later steps are moved aside, so that this run's are the highest.

        Raises:
            TrainingError: They cannot be moved.
        """
        saved_at = state.get("saved_at", path.stat().st_mtime)
        job = f" of {state['job']}" if state.get("job") else ""
        log(f"continues step {state['step']}{job}, saved {ago(time.time() - saved_at)}")
        log(f"resumed from {path}: epoch {state['epoch'] + 1}, step {state['step']}")
        if "averages" in state:
            log("the moving average of the weights in it (--ema) is no longer used")
        damaged = [each for each in list_checkpoints(self.path) if step_of(each) > step_of(path)]
        if damaged:
            _warn(f"What could not be read is now in {set_aside(self.path, damaged)}.")

    def write(self, state: State) -> str:
        """Write a checkpoint of `state`, which is finite, and return its path.

        Returns:
            "" if the disk is full and training continues.

        Raises:
            TrainingError: It could not be written, and training must stop.
        """
        state |= {"network": self.model, "job": self.job, "saved_at": time.time()}
        try:
            return str(write_checkpoint(self.path, state["step"], state, self.keep))
        except CheckpointNotWritten as error:
            what, why, _ = error.args
            if error.is_full and self.continues_when_full:
                _warn(f"{what} {why} Training goes on; {self._last()}.")
                return ""
            raise TrainingError(
                what,
                f"{why} Training stops; {self._last()}.",
                "Make room or choose another --checkpoint-dir, then start again"
                + ("; --on-full-disk continue would train on." if error.is_full else "."),
            ) from error

    def _last(self) -> str:
        existing = list_checkpoints(self.path)
        return f"the last checkpoint is {existing[0]}" if existing else f"no checkpoint is in {self.path}"


def _warn(text: str) -> None:
    log_error(f"warning: {text}")


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread: a step waits for a copy of the weights, not for the disk.

    Used by rank 0 only.
    """

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._saved = ""
        self._error: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """True if the last checkpoint could not be written; `finish` then raises the reason."""
        return self._error is not None

    def start(self, state: State) -> None:
        """Copy `state` and start to write the copy, once the previous checkpoint is written.

        Raises:
            NotFinite: `state` holds a number that is not finite; nothing is written.
            TrainingError: The previous checkpoint could not be written, and training must stop.
        """
        self.finish()
        check_finite(state["step"], state)
        copy: State = _copy(state)
        self._thread = threading.Thread(target=self._write, args=(copy,), name="checkpoint")
        self._thread.start()

    def finish(self) -> str:
        """Wait until the last checkpoint is on the disk, and return its path.

        Returns:
            "" if the disk is full and training continues.

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

    def _write(self, state: State) -> None:
        try:
            self._saved = self._folder.write(state)
        except BaseException as error:  # the rank raises it: a thread would only print it
            self._error = error


def _copy(value: Any) -> Any:
    """Return a deep copy, with all tensors on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copy(each) for each in value]
    return value


def checkpoint_args(arguments: argparse.Namespace, dataset: Dataset, optimizer: str) -> CheckpointArgs:
    """Return the arguments that a checkpoint records.

    Args:
        arguments: Arguments of the run, with the precision resolved.
        dataset: Gives the size of an input and the classes.
        optimizer: `adamw` or `sgd`.
    """
    given = {name.replace("_", "-"): value for name, value in vars(arguments).items()}
    is_gpt = arguments.model == "gpt"
    sizes = {
        "vocabulary" if is_gpt else "classes": dataset.classes,
        "sequence-length" if is_gpt else "image-size": dataset.shape[-1],
    }
    names = ("model", *(_OF_GPT if is_gpt else ()), *_OF_STEPS)
    momentum = given["momentum"] if optimizer == "sgd" else 0
    return {name: given[name] for name in names} | sizes | {"optimizer": optimizer, "momentum": momentum}


def check_resumable(saved: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return the arguments that differ from the checkpoint's, as `--lr 0.1 (was 0.3)`; "" if none does.

    Raises:
        TrainingError: With some of them no run can resume.
    """
    # torchvision's networks accept images of any size.
    is_own = now.get("model") in OWN_MODELS
    of_network = tuple(name for name in _OF_NETWORK if is_own or name != "image-size")
    if _differences(saved, now, (*of_network, "optimizer")):
        different = _differences(saved, now, (*of_network, *_OF_OPTIMIZER))
        raise TrainingError(
            f"The checkpoint was made with {', '.join(different)}.",
            now="Choose what it was made with, another --checkpoint-dir, or --resume never.",
        )
    return ", ".join(_differences(now, saved, (*_OF_OPTIMIZER, "image-size", *_OF_STEPS), label="was"))


def _differences(
    ours: Mapping[str, object], theirs: Mapping[str, object], names: Iterable[str], label: str = "here"
) -> list[str]:
    return [
        f"--{name} {ours[name]} ({label} {theirs[name]})"
        for name in names
        if name in ours and name in theirs and ours[name] != theirs[name]
    ]
