"""The training loop: train, log, validate, save; and stop when all ranks have agreed to."""

import math
import signal
from dataclasses import dataclass

import torch

from trainer.ddp.checkpoint_writer import CheckpointWriter
from trainer.ddp.data.samples import Samples
from trainer.ddp.datasets import TrainBatches, validation_batches
from trainer.ddp.hyperparameters import Hyperparameters
from trainer.ddp.interval import Interval
from trainer.ddp.learner import Learner
from trainer.ddp.speed.measure import SpeedScale
from trainer.distributed.curves import CurveWriter
from trainer.distributed.gpu_telemetry import GpuTelemetry
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.step_profiler import StepProfiler
from trainer.messages import NotFinite, Stopped, TrainingError, log, progress_line
from trainer.signals import StopRequest

STOP_CHECK_EVERY_S = 0.5
"""About how often the ranks ask each other whether to stop."""

_CHECKPOINT_FAILED = 1 << 10
"""What rank 0 tells the others in place of a signal's number."""


@dataclass(slots=True)
class Progress:
    """How far a run has come; saved in each checkpoint."""

    step: int = 0
    """Steps taken since the very start."""
    epoch: int = 0
    """The epoch under way, from 0."""
    images: int = 0
    """Images of this epoch already trained on, over all ranks."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """How well the network does on the validation images, over all ranks."""

    loss: float
    """Mean cross entropy."""
    accuracy: float
    """Share of right answers, 0 to 1."""


class TrainingLoop:
    """One run of the training, from `progress` to the end."""

    def __init__(
        self,
        learner: Learner,
        train: TrainBatches,
        validation: Samples,
        scale: SpeedScale,
        *,
        epochs: int,
        log_every: int,
        test_batch_size: int,
        curves: CurveWriter | None,
        checkpoints: CheckpointWriter,
        checkpoint_every: int,
        progress: Progress,
        stop: StopRequest,
        telemetry: GpuTelemetry | None = None,
        profiler: StepProfiler | None = None,
        hyperparameters: Hyperparameters | None = None,
    ) -> None:
        self._learner = learner
        self._group: ProcessGroup = learner.group
        self._train = train
        self._validation = validation
        self._scale = scale
        self._epochs = epochs
        self._log_every = log_every
        self._test_batch_size = test_batch_size
        self._curves = curves
        self._checkpoints = checkpoints
        self._checkpoint_every = checkpoint_every
        """Steps between two checkpoints inside an epoch; 0 for none."""
        self._progress = progress
        left = train.sampler.steps_left(epochs, progress.epoch, progress.images)
        self.steps = progress.step + left
        """Steps of the whole training, those before this run included."""
        self._interval = Interval(learner.model, learner.group, telemetry, log_every)
        self._profiler = profiler
        self._hyperparameters = hyperparameters or {}
        self._stop = stop
        self._stop_check_steps = 1

    def run(self) -> Metrics:
        """Train to the end; returns the metrics after the last epoch.

        Raises:
            Stopped: SIGTERM or SIGINT came; everything is saved.
            NotFinite: The loss or a weight is no number any more.
            TrainingError: A checkpoint could not be written and training is not to go on, or is over.
        """
        progress = self._progress
        self._stop.catch_signals()
        metrics = None
        while progress.epoch < self._epochs:
            self._run_epoch()
            metrics = self._validate()
            progress.epoch += 1
            progress.images = max(0, progress.images - len(self._train.images))
            self._log_metrics(metrics)
            self._checkpoint()
            self._stop_if_asked()
        if metrics is not None and not self._finish_checkpoint():
            raise TrainingError(
                "All is trained, but the last checkpoint found no room on its disk.",
                "The warning before says which is the last one.",
                "Make room and start again to train from there.",
            )
        return metrics or self._validate()

    def _run_epoch(self) -> None:
        progress, train = self._progress, self._train
        self._learner.model.train()
        self._interval.start()
        self._set_trained_share()
        for inputs_B, targets_B in self._interval.timed(train.epoch_batches(progress.epoch, progress.images)):
            self._interval.add(self._learner.train_step(inputs_B, targets_B))
            if self._profiler is not None:
                self._profiler.step()
            progress.step += 1
            progress.images += train.global_batch_size
            self._set_trained_share()
            at_end = progress.images >= len(train.images)
            if progress.step % self._log_every == 0 or at_end:
                self._log_steps()
            if not at_end and self._checkpoint_every and progress.step % self._checkpoint_every == 0:
                self._checkpoint()
            if not at_end and progress.step % self._stop_check_steps == 0:
                self._stop_if_asked()

    def _set_trained_share(self) -> None:
        """Count images, not steps: how many make a step may be another number after a resume."""
        epochs = self._progress.epoch + self._progress.images / len(self._train.images)
        self._learner.trained_share = epochs / self._epochs

    def _log_steps(self) -> None:
        """Log the steps since the last line."""
        measured = self._interval.measure()
        loss, mine, step_s, step = measured.loss, measured.own_loss, measured.step_s, self._progress.step
        self._stop_check_steps = max(1, int(STOP_CHECK_EVERY_S / step_s)) if step_s > 0 else self._log_every
        samples_per_s = self._train.global_batch_size / step_s if step_s > 0 else 0.0
        is_first = self._group.ranks.is_first
        log(
            progress_line(
                epoch=self._progress.epoch + 1,
                epochs=self._epochs,
                step=step,
                steps=self.steps,
                loss=loss if is_first else mine,
                lr=self._learner.lr,
                per_s=self._scale.per_s(samples_per_s),
                unit=self._scale.unit,
                eta_s=(self.steps - step) * step_s,
                times=measured.words,
            )
        )
        if self._curves is not None:
            values = {"train/loss": loss, "train/lr": self._learner.lr}
            self._curves.write(step, values | self._scale.scalars(samples_per_s) | measured.scalars)
        if not math.isfinite(loss):
            raise NotFinite(
                f"The loss became {loss} by step {step}, on this rank {mine:.4g}; all ranks stop.",
                "The learning rate may be too high.",
                "Choose a smaller --lr; no checkpoint holds these weights.",
            )

    def _validate(self) -> Metrics:
        sums = torch.zeros(3, device=self._group.device, dtype=torch.float64)
        feed, ranks = self._train.feed, self._group.ranks
        with self._learner.validating():
            for inputs_B, targets_B in validation_batches(
                self._validation, self._test_batch_size, ranks, feed
            ):
                sums += self._learner.evaluate(inputs_B, targets_B)
        loss, right, targets = self._group.all_reduce_sum(sums).tolist()
        return Metrics(loss / targets, right / targets)

    def _log_metrics(self, metrics: Metrics) -> None:
        step = self._progress.step
        if self._group.ranks.is_first:
            log(
                f"epoch {self._progress.epoch}/{self._epochs} step {step}/{self.steps}"
                f" val_loss {metrics.loss:.4f} val_accuracy {metrics.accuracy:.4f}"
            )
        if self._curves is not None:
            self._curves.write(step, {"val/loss": metrics.loss, "val/accuracy": metrics.accuracy})
        if not math.isfinite(metrics.loss):
            raise NotFinite(
                f"The validation loss became {metrics.loss} by step {step}; all ranks stop.",
                "The learning rate may be too high.",
                "Choose a smaller --lr; no checkpoint holds these weights.",
            )

    def _checkpoint(self) -> None:
        """Have a checkpoint of this step written while the next steps are taken."""
        progress = self._progress
        state = self._learner.state_dict()
        state |= {"step": progress.step, "epoch": progress.epoch, "images": progress.images}
        state |= {"hyperparameters": self._hyperparameters}
        self._group.run_on_rank0(lambda: self._checkpoints.start(state))

    def _finish_checkpoint(self) -> str:
        """Wait for the last checkpoint; returns its path, "" if it found no room and training goes on."""
        return self._group.run_on_rank0(self._checkpoints.finish)

    def _stop_if_asked(self) -> None:
        mine = _CHECKPOINT_FAILED if self._checkpoints.has_failed else self._stop.signal
        number = int(self._group.all_reduce_max(mine))
        if number == _CHECKPOINT_FAILED:
            self._finish_checkpoint()
        elif number:
            self._checkpoint()
            saved = self._finish_checkpoint()
            raise Stopped(
                f"Stopped by {signal.Signals(number).name} after step {self._progress.step}.",
                f"{saved} holds everything."
                if saved
                else "That could not be saved; the warning on rank 0 says what the last checkpoint is.",
                "Start again to go on from there.",
                signal=number,
            )
