"""The checkpoints of one run: where it goes on from, what it keeps, and what happens on a full disk."""

import time
from dataclasses import dataclass
from pathlib import Path

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
from trainer.messages import TrainingError, ago, log, log_error


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A folder that holds one run at a time; used by rank 0 only."""

    path: Path
    keep: int
    """How many of the newest to keep."""
    model: str
    """Name of the network, which a checkpoint must be of."""
    job: str
    """Name of this job, recorded in each checkpoint; "" where there is none."""
    continues_when_full: bool
    """Whether training goes on when the disk is full."""

    def load(self, resume: str) -> tuple[Path, State] | None:
        """Read the checkpoint to go on from, as `resume` says, with its file; None to start anew.

        If training starts anew, all that is there is moved aside: see `go_on_from`.

        Raises:
            TrainingError: There is none but must be one, or it cannot be used.
        """
        there = list_checkpoints(self.path)
        if resume == "never":
            if there:
                aside = set_aside(self.path, there)
                log(f"starts anew; the checkpoints of an earlier run ({len(there)}) are now in {aside}")
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

    def go_on_from(self, path: Path, state: State) -> None:
        """Log whose checkpoint the run goes on from, once all ranks have taken it.

        What is still there of later steps is damaged and moved aside: this run's
        checkpoints are the highest from the first on.

        Raises:
            TrainingError: It cannot be moved.
        """
        saved_at = state.get("saved_at", path.stat().st_mtime)
        job = f" of {state['job']}" if state.get("job") else ""
        log(f"continues step {state['step']}{job}, saved {ago(time.time() - saved_at)}")
        log(f"resumed from {path}: epoch {state['epoch'] + 1}, step {state['step']}")
        damaged = [each for each in list_checkpoints(self.path) if step_of(each) > step_of(path)]
        if damaged:
            _warn(f"What could not be read is now in {set_aside(self.path, damaged)}.")

    def save(self, state: State) -> str:
        """Write a checkpoint of `state`; returns its path, or "" if the disk is full and training goes on.

        Raises:
            NotFinite: The weights are not.
            TrainingError: It could not be written; training must stop.
        """
        check_finite(state["step"], state)
        return self.write(state)

    def write(self, state: State) -> str:
        """Do as `save` does with a `state` that is known to be finite.

        Raises:
            TrainingError: It could not be written; training must stop.
        """
        state |= {"network": self.model, "job": self.job, "saved_at": time.time()}
        try:
            return str(write_checkpoint(self.path, state["step"], state, self.keep))
        except CheckpointNotWritten as error:
            what, why, _ = error.args
            if error.is_full and self.continues_when_full:
                _warn(f"{what} {why} Training goes on; {self.last()}.")
                return ""
            raise TrainingError(
                what,
                f"{why} Training stops; {self.last()}.",
                "Make room or choose another --checkpoint-dir, then start again"
                + ("; --on-full-disk continue would train on." if error.is_full else "."),
            ) from error

    def last(self) -> str:
        """Say which checkpoint a new start would go on from."""
        there = list_checkpoints(self.path)
        return f"the last checkpoint is {there[0]}" if there else f"no checkpoint is in {self.path}"


def _warn(words: str) -> None:
    log_error(f"warning: {words}")
