"""Train an image classifier or a small GPT with DistributedDataParallel.

    python -P -m trainer.train_ddp --epochs 1                              one process
    python -P -m trainer.launch --nproc-per-node 2 -m trainer.train_ddp    two processes on this machine
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... python -P -m trainer.train_ddp     as an operator starts it

Every rank prints progress lines; rank 0 writes event files and checkpoints.
"""

import os
import sys

from trainer import debuggable
from trainer.catalogue import find
from trainer.signals import StopRequest, stop_when_launcher_dies

if __name__ == "__main__":
    # Importing torch takes seconds: signals and wrong arguments are answered first.
    stop_request = StopRequest()
    stop_request.exit_on_signal("before training began; there is nothing new to save")
    stop_when_launcher_dies()
    debuggable.arm()
    command_line = find("ddp").parser().parse_args()

import argparse
import math
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from trainer.ddp.batches import TrainBatches, validation_batches
from trainer.ddp.checkpoints import CheckpointFolder, State, check_resumable, checkpoint_args
from trainer.ddp.datasets import Dataset, open_dataset
from trainer.ddp.models import OWN_IMAGE_MODELS, Gpt, GptSize, check_input, make_model
from trainer.ddp.step_stats import SpeedScale, StepTimer, open_telemetry, peak_flops, training_flops
from trainer.ddp.train_state import Precision, TrainState, resolve_auto
from trainer.distributed.outputs import CurveWriter, check_file, check_folder, write_atomically
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.runtime import choose_device, retain_freed_memory, run_to_exit_status, set_threads
from trainer.messages import NotFinite, NothingToTrain, Stopped, TrainingError, duration, log
from trainer.ranks import Ranks, job_name

STOP_CHECK_EVERY_S = 0.5  # approximate interval at which the ranks ask each other whether to stop
_SMALL_IMAGE = 3 * 32 * 32
_SMALL_IMAGES_AT_ONCE = 256
# Sent by rank 0 in place of a signal's number.
_CHECKPOINT_FAILED = 1 << 10


def run(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Train as the command line asks and return the exit status."""
    memory_full = "Choose a smaller --batch-size, or fewer --train-images."
    return run_to_exit_status(lambda: train(arguments, stop), stop, memory_full=memory_full)


def train(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Join the other ranks, train, and print the result."""
    started = time.monotonic()
    ranks = Ranks.from_env()
    device = choose_device(arguments.device, ranks)
    threads = set_threads(ranks)
    retain_freed_memory()
    group = ProcessGroup(ranks, device, arguments.wait_for_others, arguments.backend)
    try:
        group.init()
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if ranks.is_first and ranks.launcher == "torchrun" and restarts != "0":
            most = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "?")
            log(f"restart {restarts} of {most}: a rank failed, and torchrun started all of them again")
        with closing(Training(arguments, group, stop)) as training:
            if ranks.is_first:
                training.log_start(threads)
            metrics = training.run()
    finally:
        group.destroy()
    if ranks.is_first:
        seconds = time.monotonic() - started
        log(f"done: val_accuracy {metrics.accuracy:.4f} val_loss {metrics.loss:.4f} in {seconds:.0f} s")


def make_train_state(
    arguments: argparse.Namespace, dataset: Dataset, group: ProcessGroup
) -> tuple[TrainState, SpeedScale]:
    """Build network and optimizer, and the scale of the throughput; resolves `auto` in the arguments."""
    device, ranks = group.device, group.ranks
    precision = Precision(arguments.precision, device)
    resolve_auto(arguments, precision, device)
    torch.manual_seed(arguments.seed)
    network = make_network(arguments, dataset).to(device)
    if len(dataset.shape) == 3 and arguments.model not in OWN_IMAGE_MODELS:
        check_input(network, arguments.model, dataset.shape, device)
    flops = training_flops(network, dataset.shape) if ranks.is_first else 0
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peak = peak_flops(gpu, precision.name) * ranks.world_size
    scale = SpeedScale(dataset.unit, dataset.units_per_sample, flops, peak)
    return TrainState(network, group, precision, arguments), scale


def make_network(arguments: argparse.Namespace, dataset: Dataset) -> nn.Module:
    """Build the network that the arguments name, for the shape and classes of the data set."""
    if arguments.model == "gpt":
        (length,) = dataset.shape
        return Gpt(GptSize(dataset.classes, length, arguments.layers, arguments.heads, arguments.width))
    return make_model(arguments.model, dataset.shape, dataset.classes, image_size=arguments.image_size)


def eval_batch_size(chosen: int, batch_size: int, shape: tuple[int, ...]) -> int:
    """Return the batch size of an evaluation: as chosen, else one that fits because a step did."""
    is_small = len(shape) == 3 and math.prod(shape) <= _SMALL_IMAGE
    return chosen or (max(batch_size, _SMALL_IMAGES_AT_ONCE) if is_small else batch_size)


@dataclass(slots=True)
class Progress:
    """Progress of a run; saved in each checkpoint."""

    step: int = 0  # steps since the very start
    epoch: int = 0  # current epoch, from 0
    images: int = 0  # samples of this epoch that were used already, over all ranks


class Metrics(NamedTuple):
    """Loss and accuracy (0 to 1) on the validation samples of all ranks."""

    loss: float
    accuracy: float


class Training:
    """One rank's part of a run, from the checkpoint it resumes from to the last epoch."""

    def __init__(self, arguments: argparse.Namespace, group: ProcessGroup, stop: StopRequest) -> None:
        """Open data and outputs, and resume if there is a checkpoint; every rank must call this."""
        self.arguments, self._group, self._stop = arguments, group, stop
        self._is_first = group.ranks.is_first

        # data, network and optimizer
        self.dataset = open_dataset(arguments, group)
        self.state, self.scale = make_train_state(arguments, self.dataset, group)
        samples_per_step = arguments.batch_size * arguments.accumulate
        self.batches = TrainBatches(
            self.dataset.train, samples_per_step, group.ranks, arguments.seed, self.dataset.loader
        )
        telemetry = open_telemetry(group.device, log if group.ranks.is_first_here else lambda _: None)
        self._timer = StepTimer(self.state.model, group, telemetry, arguments.log_every)
        self._stop_check_steps = 1

        # folders, and the checkpoint to resume from
        self.log_dir = Path(arguments.log_dir)
        self.checkpoints = CheckpointFolder(
            Path(arguments.checkpoint_dir), arguments.keep, job_name(), arguments.on_full_disk == "continue"
        )
        self._recorded_args = checkpoint_args(arguments, self.dataset)
        self.progress = Progress()
        found = group.run_on_rank0(self._open_folders)
        if found is not None:
            self._resume(*found)
        progress = self.progress
        left = self.batches.sampler.steps_left(arguments.epochs, progress.epoch, progress.images)
        self.steps = progress.step + left  # steps of the whole training, including those before this run

        self.curves: CurveWriter | None = None
        if self._is_first:
            hparams = {name.replace("_", "-"): value for name, value in vars(arguments).items()}
            self.curves = CurveWriter(self.log_dir, hparams | {"world-size": group.ranks.world_size})

    def _open_folders(self) -> tuple[Path, State] | None:
        """Check the folders of the output, and return the checkpoint to resume from, with its path."""
        check_folder("--log-dir", self.log_dir, may_be_full=True)
        check_folder("--checkpoint-dir", self.checkpoints.path, self.checkpoints.continues_when_full)
        if self.arguments.save_path:
            check_file("--save-path", Path(self.arguments.save_path))
        return self.checkpoints.load(self.arguments.resume)

    def _resume(self, path: Path, checkpoint: State) -> None:
        changed = check_resumable(checkpoint.get("hyperparameters", {}), self._recorded_args)
        epochs = f"{checkpoint['epoch']} of {self.arguments.epochs} epochs"
        is_done = checkpoint["epoch"] >= self.arguments.epochs
        if is_done and changed:
            why = f"It was made with other settings: {changed}."
            now = "Start from scratch with --resume never or another --checkpoint-dir, or use more --epochs."
            raise NothingToTrain(f"Nothing was trained: {path} has {epochs}.", why, now)
        self.state.load_state_dict(checkpoint)
        self._timer.resume(checkpoint.get("losses", [[0.0, 0]]))
        self.progress = Progress(checkpoint["step"], checkpoint["epoch"], checkpoint["images"])
        self._group.run_on_rank0(lambda: self.checkpoints.resumed(path, checkpoint))
        if changed and self._is_first:
            log(f"changed since then: {changed}")
        if is_done and self._is_first:
            more = "--epochs trains more, --resume never starts from scratch"
            log(f"nothing left to train: {epochs} are done ({more})")

    def log_start(self, threads: int) -> None:
        """Log what is trained, on which device, with which options, and where the output goes."""
        arguments, group, state, dataset = self.arguments, self._group, self.state, self.dataset
        samples = "images" if dataset.unit == "images" else "sequences"
        log(
            f"{arguments.model} on {arguments.dataset}: {len(dataset.train)} training {samples}, "
            f"{len(dataset.validation)} validation {samples},"
            f" {self.steps} steps of {self.batches.global_batch_size} {samples}"
        )
        log(
            f"device {group.device_name}, precision {state.precision.name}, "
            f"backend {group.backend or 'none'}, world size {group.ranks.world_size}, threads {threads}"
        )
        accumulated = f", {arguments.accumulate} batches a step" if arguments.accumulate > 1 else ""
        layout = "channels last" if arguments.channels_last == "on" else "channels first"
        why_not = state.not_compiled
        compiled = f"off ({why_not})" if why_not else "on (the first steps take longer)"
        log(f"batch size {arguments.batch_size} a process{accumulated}, {layout}, torch.compile {compiled}")
        log(f"event files in {self.log_dir.resolve()}")
        log(f"checkpoints in {self.checkpoints.path.resolve()}")

    def run(self) -> Metrics:
        """Train to the end and return the metrics after the last epoch.

        Raises:
            Stopped: A signal came; everything is saved.
            NotFinite: The loss or a weight is not finite.
        """
        progress, metrics = self.progress, None
        self._stop.catch_signals()
        while progress.epoch < self.arguments.epochs:
            self._train_epoch()
            metrics = self._evaluate()
            progress.epoch += 1
            progress.images = max(0, progress.images - len(self.dataset.train))
            self._log_metrics(metrics)
            self._start_checkpoint()
            self._stop_if_requested()
        if metrics is not None and not self._finish_checkpoint():
            raise TrainingError(
                "Training is complete, but the disk had no room for the last checkpoint.",
                "The warning above names the last one that was written.",
                "Make room and start again to train from there.",
            )
        metrics = metrics or self._evaluate()
        if self.arguments.save_path:
            self._group.run_on_rank0(self._save_weights)
        return metrics

    def close(self) -> None:
        """Finish what is being written."""
        self.checkpoints.close()
        if self.curves is not None:
            self.curves.close()

    def _train_epoch(self) -> None:
        progress, batches, every = self.progress, self.batches, self.arguments.checkpoint_every
        self.state.model.train()
        self._timer.start()
        for inputs_B, targets_B in self._timer.timed(batches.epoch_batches(progress.epoch, progress.images)):
            self.state.trained_fraction = self._trained_fraction
            self._timer.add(self.state.train_step(inputs_B, targets_B))
            progress.step += 1
            progress.images += batches.global_batch_size
            is_last = progress.images >= len(self.dataset.train)
            if progress.step % self.arguments.log_every == 0 or is_last:
                self._log_steps()
            if not is_last and every and progress.step % every == 0:
                self._start_checkpoint()
            if not is_last and progress.step % self._stop_check_steps == 0:
                self._stop_if_requested()

    @property
    def _trained_fraction(self) -> float:
        # Images, not steps: after a resume, a step may have another number of images.
        epochs = self.progress.epoch + self.progress.images / len(self.dataset.train)
        return float(epochs / self.arguments.epochs)

    def _log_steps(self) -> None:
        stats, step = self._timer.measure(), self.progress.step
        self.state.trained_fraction = self._trained_fraction  # a line shows the rate of the next step
        self._stop_check_steps = max(1, int(STOP_CHECK_EVERY_S / max(stats.step_s, 1e-9)))
        samples_per_s = self.batches.global_batch_size / stats.step_s if stats.step_s > 0 else 0.0
        loss, lr = stats.loss if self._is_first else stats.own_loss, self.state.lr
        log(
            f"epoch {self.progress.epoch + 1}/{self.arguments.epochs} step {step}/{self.steps}"
            f" loss {loss:.4f} lr {lr:.1e} {self.scale.per_s(samples_per_s):.0f} {self.scale.unit}/s"
            f" eta {duration((self.steps - step) * stats.step_s)} {stats.text(is_own=not self._is_first)}"
        )
        if self.curves is not None:
            values = {"train/loss": stats.loss, "train/lr": lr}
            self.curves.write(step, values | self.scale.scalars(samples_per_s) | stats.scalars)
        if not math.isfinite(stats.loss):
            raise _diverged(f"The loss became {stats.loss} by step {step}, on this rank {stats.own_loss:.4g}")

    def _evaluate(self) -> Metrics:
        arguments, dataset, ranks = self.arguments, self.dataset, self._group.ranks
        size = eval_batch_size(arguments.test_batch_size, arguments.batch_size, dataset.shape)
        sums = torch.zeros(3, device=self._group.device, dtype=torch.float64)
        with self.state.eval_mode():
            for inputs_B, targets_B in validation_batches(dataset.validation, size, ranks, dataset.loader):
                sums += self.state.evaluate(inputs_B, targets_B)
        loss, correct, targets = self._group.all_reduce_sum(sums).tolist()
        return Metrics(loss / targets, correct / targets)

    def _log_metrics(self, metrics: Metrics) -> None:
        progress = self.progress
        if self._is_first:
            log(
                f"epoch {progress.epoch}/{self.arguments.epochs} step {progress.step}/{self.steps}"
                f" val_loss {metrics.loss:.4f} val_accuracy {metrics.accuracy:.4f}"
            )
        if self.curves is not None:
            self.curves.write(progress.step, {"val/loss": metrics.loss, "val/accuracy": metrics.accuracy})
        if not math.isfinite(metrics.loss):
            raise _diverged(f"The validation loss became {metrics.loss} by step {progress.step}")

    def _start_checkpoint(self) -> None:
        progress, state = self.progress, self.state.state_dict()
        state |= {"step": progress.step, "epoch": progress.epoch, "images": progress.images}
        state |= {"hyperparameters": self._recorded_args, "losses": self._timer.losses_by_rank()}
        self._group.run_on_rank0(lambda: self.checkpoints.start(state))

    def _finish_checkpoint(self) -> str:
        """Wait for the last checkpoint and return its path; "" if the disk is full and training continues."""
        return self._group.run_on_rank0(self.checkpoints.finish)

    def _stop_if_requested(self) -> None:
        mine = _CHECKPOINT_FAILED if self.checkpoints.has_failed else self._stop.signal
        number = int(self._group.all_reduce_max(mine))
        if number == _CHECKPOINT_FAILED:
            self._finish_checkpoint()
        elif number:
            self._start_checkpoint()
            saved = self._finish_checkpoint()
            lost = "That could not be saved; the warning on rank 0 names the last checkpoint."
            raise Stopped(
                f"Stopped by {signal.Signals(number).name} after step {self.progress.step}.",
                f"{saved} holds everything." if saved else lost,
                "Start again to go on from there.",
                signal=number,
            )

    def _save_weights(self) -> None:
        path, weights = Path(self.arguments.save_path), dict(self.state.network.state_dict())
        write_atomically("--save-path", path, lambda file: torch.save(weights, file))
        log(f"weights in {path.resolve()}")


def _diverged(what: str) -> NotFinite:
    now = "Choose a smaller --lr; no checkpoint holds these weights."
    return NotFinite(f"{what}; all ranks stop.", "The learning rate may be too high.", now)


if __name__ == "__main__":
    status = run(command_line, stop_request)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # everything is saved; destroying torch's threads may abort the process
