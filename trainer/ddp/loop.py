"""The training loop: train, log, validate, save; and stop when all ranks have agreed to."""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.ddp.checkpoint import State
from trainer.ddp.datasets import Images, TrainBatches, validation_batches
from trainer.ddp.learner import Learner
from trainer.ddp.process_group import ProcessGroup
from trainer.messages import NotFinite, Stopped, log, progress_line
from trainer.signals import StopRequest
from trainer.tfevents import EventWriter

STOP_CHECK_EVERY_S = 0.5
"""About how often the ranks ask each other whether to stop."""

VALIDATION_BATCH_SIZE = 256
"""Images evaluated at once."""


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
        validation: Images,
        *,
        epochs: int,
        log_every: int,
        events: EventWriter | None,
        save: Callable[[State], str],
        progress: Progress,
        stop: StopRequest,
    ) -> None:
        self._learner = learner
        self._group: ProcessGroup = learner.group
        self._train = train
        self._validation = validation
        self._epochs = epochs
        self._log_every = log_every
        self._events = events
        self._save = save
        self._progress = progress
        left = train.steps_per_epoch * (epochs - progress.epoch) - progress.images // train.global_batch_size
        self.steps = progress.step + max(0, left)
        """Steps of the whole training, those before this run included."""
        self._stop = stop
        self._stop_check_steps = 1

    def run(self) -> Metrics:
        """Train to the end; returns the metrics after the last epoch.

        Raises:
            Stopped: SIGTERM or SIGINT came; everything is saved.
            NotFinite: The loss is no number any more.
            TrainingError: A checkpoint could not be written.
        """
        progress = self._progress
        self._stop.catch_signals()
        self._learner.set_total_steps(self.steps)
        metrics = None
        while progress.epoch < self._epochs:
            self._run_epoch()
            metrics = self._validate()
            progress.epoch, progress.images = progress.epoch + 1, 0
            self._log_metrics(metrics)
            self._checkpoint()
            self._stop_if_asked()
        return metrics or self._validate()

    def _run_epoch(self) -> None:
        progress, train = self._progress, self._train
        self._learner.model.train()
        losses = torch.zeros((), device=self._group.device)
        steps, started = 0, time.perf_counter()
        first_step = progress.images // train.global_batch_size
        for images_B1HW, labels_B in train.epoch_batches(progress.epoch, first_step):
            losses += self._learner.train_step(images_B1HW, labels_B)
            steps += 1
            progress.step += 1
            progress.images += train.global_batch_size
            at_end = progress.images + train.global_batch_size > len(train.images)
            if progress.step % self._log_every == 0 or at_end:
                self._log_steps(losses, steps, time.perf_counter() - started)
                losses.zero_()
                steps, started = 0, time.perf_counter()
            if not at_end and progress.step % self._stop_check_steps == 0:
                self._stop_if_asked()

    def _log_steps(self, losses: Tensor, steps: int, seconds: float) -> None:
        """Log the last `steps`; `losses` is the sum of this rank's."""
        mine = losses.item() / steps
        shared = torch.tensor([mine, seconds], dtype=torch.float64, device=self._group.device)
        loss, seconds = (self._group.all_reduce_sum(shared) / self._group.ranks.world_size).tolist()
        step, step_s = self._progress.step, seconds / steps
        self._stop_check_steps = max(1, int(STOP_CHECK_EVERY_S / step_s)) if step_s > 0 else self._log_every
        images_per_s = self._train.global_batch_size / step_s if step_s > 0 else 0.0
        is_first = self._group.ranks.is_first
        log(
            progress_line(
                epoch=self._progress.epoch + 1,
                epochs=self._epochs,
                step=step,
                steps=self.steps,
                loss=loss if is_first else mine,
                lr=self._learner.lr,
                images_per_s=images_per_s,
                eta_s=(self.steps - step) * step_s,
            )
        )
        if self._events is not None:
            self._events.write_scalar("train/loss", step, loss)
            self._events.write_scalar("train/lr", step, self._learner.lr)
            self._events.write_scalar("train/images_per_s", step, images_per_s)
            self._events.flush()
        if not math.isfinite(loss):
            raise NotFinite(
                f"The loss became {loss} by step {step}, on this rank {mine:.4g}; all ranks stop.",
                "The learning rate may be too high.",
                "Choose a smaller --lr; no checkpoint holds these weights.",
            )

    def _validate(self) -> Metrics:
        self._learner.model.eval()
        sums = torch.zeros(3, device=self._group.device)
        for images_B1HW, labels_B in validation_batches(
            self._validation, VALIDATION_BATCH_SIZE, self._group.ranks
        ):
            sums += self._learner.evaluate(images_B1HW, labels_B)
        loss, right, images = self._group.all_reduce_sum(sums).tolist()
        return Metrics(loss / images, right / images)

    def _log_metrics(self, metrics: Metrics) -> None:
        if not self._group.ranks.is_first:
            return
        step = self._progress.step
        log(
            f"epoch {self._progress.epoch}/{self._epochs} step {step}/{self.steps}"
            f" val_loss {metrics.loss:.4f} val_accuracy {metrics.accuracy:.4f}"
        )
        if self._events is not None:
            self._events.write_scalar("val/loss", step, metrics.loss)
            self._events.write_scalar("val/accuracy", step, metrics.accuracy)
            self._events.flush()

    def _checkpoint(self) -> str:
        progress = self._progress
        state = self._learner.state_dict()
        state |= {"step": progress.step, "epoch": progress.epoch, "images": progress.images}
        return self._group.run_on_rank0(lambda: self._save(state))

    def _stop_if_asked(self) -> None:
        number = int(self._group.all_reduce_max(self._stop.signal))
        if number:
            saved = self._checkpoint()
            raise Stopped(
                f"Stopped by {signal.Signals(number).name} after step {self._progress.step}.",
                f"{saved} holds everything.",
                "Start again to go on from there.",
                signal=number,
            )
