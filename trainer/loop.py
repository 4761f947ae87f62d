"""The training loop: learn, report, validate, save; and stop when all ranks have agreed to."""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .batches import Images, TrainBatches, validation_batches
from .checkpoint import State
from .errors import NotFinite, Stopped
from .group import ProcessGroup
from .learner import Learner
from .progress import progress_line, say
from .stopping import StopRequest
from .tfevents import EventWriter

AGREE_EVERY_S = 0.5
"""About how often the ranks ask each other whether to stop."""

VALIDATION_BATCH = 256
"""Images judged at once."""


@dataclass(slots=True)
class Progress:
    """Where in the training a run is."""

    step: int = 0
    """Steps taken since the very start."""
    epoch: int = 0
    """The epoch under way, from 0."""
    images: int = 0
    """Images of this epoch already learnt from, over all ranks."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well the network does on the validation images, over all ranks."""

    loss: float
    """Mean cross entropy."""
    accuracy: float
    """Share of right answers, 0 to 1."""


class Loop:
    """One run of the training, from `place` to the end."""

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
        place: Progress,
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
        self._place = place
        left = train.steps_per_epoch * (epochs - place.epoch) - place.images // train.images_per_step
        self.steps = place.step + max(0, left)
        """Steps of the whole training, those before this run included."""
        self._stop = stop
        self._agree_every = 1

    def run(self) -> Score:
        """Train to the end; returns the score after the last epoch.

        Raises:
            Stopped: SIGTERM or SIGINT came; everything is saved.
            NotFinite: The loss is no number any more.
            TrainingError: A checkpoint could not be written.
        """
        place = self._place
        self._stop.listen()
        self._learner.plan(self.steps)
        score = None
        while place.epoch < self._epochs:
            self._run_epoch()
            score = self._validate()
            place.epoch, place.images = place.epoch + 1, 0
            self._report_score(score)
            self._checkpoint()
            self._stop_if_asked()
        return score or self._validate()

    def _run_epoch(self) -> None:
        place, train = self._place, self._train
        self._learner.model.train()
        losses = torch.zeros((), device=self._group.device)
        steps, started = 0, time.perf_counter()
        first_step = place.images // train.images_per_step
        for images_B1HW, labels_B in train.of_epoch(place.epoch, first_step):
            losses += self._learner.learn(images_B1HW, labels_B)
            steps += 1
            place.step += 1
            place.images += train.images_per_step
            at_end = place.images + train.images_per_step > len(train.images)
            if place.step % self._log_every == 0 or at_end:
                self._report_steps(losses, steps, time.perf_counter() - started)
                losses.zero_()
                steps, started = 0, time.perf_counter()
            if not at_end and place.step % self._agree_every == 0:
                self._stop_if_asked()

    def _report_steps(self, losses: Tensor, steps: int, seconds: float) -> None:
        """Say how the last `steps` went; `losses` is the sum of this rank's."""
        mine = losses.item() / steps
        shared = torch.tensor([mine, seconds], dtype=torch.float64, device=self._group.device)
        loss, seconds = (self._group.sum(shared) / self._group.ranks.world_size).tolist()
        step, step_s = self._place.step, seconds / steps
        self._agree_every = max(1, int(AGREE_EVERY_S / step_s)) if step_s > 0 else self._log_every
        images_per_s = self._train.images_per_step / step_s if step_s > 0 else 0.0
        is_first = self._group.ranks.is_first
        say(
            progress_line(
                epoch=self._place.epoch + 1,
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

    def _validate(self) -> Score:
        self._learner.model.eval()
        sums = torch.zeros(3, device=self._group.device)
        for images_B1HW, labels_B in validation_batches(
            self._validation, VALIDATION_BATCH, self._group.ranks
        ):
            sums += self._learner.judge(images_B1HW, labels_B)
        loss, right, images = self._group.sum(sums).tolist()
        return Score(loss / images, right / images)

    def _report_score(self, score: Score) -> None:
        if not self._group.ranks.is_first:
            return
        step = self._place.step
        say(
            f"epoch {self._place.epoch}/{self._epochs} step {step}/{self.steps}"
            f" val_loss {score.loss:.4f} val_accuracy {score.accuracy:.4f}"
        )
        if self._events is not None:
            self._events.write_scalar("val/loss", step, score.loss)
            self._events.write_scalar("val/accuracy", step, score.accuracy)
            self._events.flush()

    def _checkpoint(self) -> str:
        place = self._place
        state = self._learner.state()
        state |= {"step": place.step, "epoch": place.epoch, "images": place.images}
        return self._group.first_does(lambda: self._save(state))

    def _stop_if_asked(self) -> None:
        number = int(self._group.any_wants(self._stop.signal))
        if number:
            saved = self._checkpoint()
            raise Stopped(
                f"Stopped by {signal.Signals(number).name} after step {self._place.step}.",
                f"{saved} holds everything.",
                "Start again to go on from there.",
                signal=number,
            )
