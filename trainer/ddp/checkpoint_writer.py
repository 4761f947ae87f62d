"""Checkpoints written while training goes on: a step waits for a copy of the weights, not for the disk."""

import threading
from typing import Any

from torch import Tensor

from trainer.ddp.checkpoint import State, check_finite
from trainer.ddp.checkpoint_folder import CheckpointFolder
from trainer.messages import TrainingError, log_error


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread; used by rank 0 only."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._saved = ""
        self._error: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the last checkpoint could not be written; `finish` then raises why."""
        return self._error is not None

    def start(self, state: State) -> None:
        """Copy `state`, and have the copy written once the checkpoint before is.

        Raises:
            NotFinite: `state` holds a number that is not finite; nothing of it is written.
            TrainingError: The checkpoint before could not be written; training must stop.
        """
        self.finish()
        check_finite(state["step"], state)
        copy: State = _copied(state)
        self._thread = threading.Thread(target=self._write, args=(copy,), name="checkpoint")
        self._thread.start()

    def finish(self) -> str:
        """Wait until the last checkpoint is on the disk; returns its path.

        Returns:
            "" if the disk is full and training goes on.

        Raises:
            TrainingError: It could not be written; training must stop.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._saved

    def close(self) -> None:
        """Wait until the last checkpoint is on the disk, whatever ended the training; says if it is not."""
        try:
            self.finish()
        except TrainingError as error:
            log_error(f"error: {error}")

    def _write(self, state: State) -> None:
        try:
            self._saved = self._folder.write(state)
        except BaseException as error:  # the rank raises it: a thread would only print it
            self._error = error


def _copied(value: Any) -> Any:
    """Copy what steps change, all tensors to the processor."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value
