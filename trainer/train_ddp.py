"""Train an image classifier or a small GPT with DistributedDataParallel.

    python -P -m trainer.train_ddp --epochs 1                              one process
    python -P -m trainer.launch --nproc-per-node 2 -m trainer.train_ddp    two processes on this machine
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... python -P -m trainer.train_ddp     as an operator starts it

Every rank prints progress lines; rank 0 writes event files and checkpoints. The arguments are in
`trainer.ddp_arguments`.
"""

import os
import sys

from trainer.catalogue import find
from trainer.signals import StopRequest, stop_when_launcher_dies

if __name__ == "__main__":
    # Importing torch takes seconds: signals and wrong arguments are answered first.
    stop_request = StopRequest()
    stop_request.exit_on_signal("before training began; there is nothing new to save")
    stop_when_launcher_dies()
    command_line = find("ddp").parser().parse_args()

import argparse
import math
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trainer.ddp.batches import TrainBatches, validation_batches
from trainer.ddp.checkpoint import State
from trainer.ddp.checkpoint_folder import (
    CheckpointArgs,
    CheckpointFolder,
    CheckpointWriter,
    check_resumable,
    checkpoint_args,
)
from trainer.ddp.datasets import Dataset, open_dataset
from trainer.ddp.models import OWN_IMAGE_MODELS, Gpt, GptSize, ImageShape, check_input, make_model
from trainer.ddp.samples import Samples
from trainer.ddp.step_stats import SpeedScale, StepTimer, peak_flops, training_flops
from trainer.ddp.train_state import Precision, TrainState, step_options
from trainer.distributed.curves import CurveWriter
from trainer.distributed.exit_status import run_to_exit_status
from trainer.distributed.folders import check_file, check_folder, write_atomically
from trainer.distributed.gpu_telemetry import GpuTelemetry, open_telemetry
from trainer.distributed.process_group import ProcessGroup, choose_device, retain_freed_memory, set_threads
from trainer.distributed.step_profiler import StepProfiler
from trainer.messages import NotFinite, NothingToTrain, Stopped, TrainingError, log, progress_line
from trainer.ranks import Ranks, job_name

STOP_CHECK_EVERY_S = 0.5
"""Approximate interval at which the ranks ask each other whether to stop."""
_SMALL_IMAGE = 3 * 32 * 32
_SMALL_IMAGES_AT_ONCE = 256
# Sent by rank 0 in place of a signal's number.
_CHECKPOINT_FAILED = 1 << 10


def run(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Train as the command line asks and return the exit status."""
    memory_full = "Choose a smaller --batch-size, or fewer --train-images."
    return run_to_exit_status(lambda: train(arguments, stop), stop, memory_full=memory_full)


def train(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Join the other ranks, train, and print the result.

    Raises:
        TrainingError: Training cannot start or go on; raised on all ranks if the others would wait.
    """
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
        # A function of its own: DDP must be freed before the process group, or gloo may wait forever.
        metrics = train_in_group(arguments, group, threads, stop)
    finally:
        group.destroy()
    if ranks.is_first:
        seconds = time.monotonic() - started
        log(f"done: val_accuracy {metrics.accuracy:.4f} val_loss {metrics.loss:.4f} in {seconds:.0f} s")


def train_in_group(
    arguments: argparse.Namespace, group: ProcessGroup, threads: int, stop: StopRequest
) -> "Metrics":
    """Set up data, network and folders, train, and return the final metrics.

    Raises:
        TrainingError: Training cannot start or go on; raised on all ranks if the others would wait.
    """
    ranks, device = group.ranks, group.device

    # data, model and optimizer
    dataset = open_dataset(arguments, group)
    state, scale = make_train_state(arguments, dataset, group)
    arguments.precision = state.precision.name  # `auto` is resolved
    samples_per_step = arguments.batch_size * arguments.accumulate
    batches = TrainBatches(dataset.train, samples_per_step, ranks, arguments.seed, dataset.loader)

    # folders, and the checkpoint to resume from
    log_dir, checkpoint_dir = Path(arguments.log_dir), Path(arguments.checkpoint_dir)
    checkpoints = CheckpointFolder(
        checkpoint_dir, arguments.keep, arguments.model, job_name(), arguments.on_full_disk == "continue"
    )

    def open_folders() -> tuple[Path, State] | None:
        check_folder("--log-dir", log_dir, may_be_full=True)
        check_folder("--checkpoint-dir", checkpoint_dir, checkpoints.continues_when_full)
        if arguments.save_path:
            check_file("--save-path", Path(arguments.save_path))
        return checkpoints.load(arguments.resume)

    found = group.run_on_rank0(open_folders)
    recorded_args = checkpoint_args(arguments, dataset, state.options.optimizer_name)
    progress = resume(state, checkpoints, *found, recorded_args) if found else Progress()

    # outputs
    writer = CheckpointWriter(checkpoints)
    curves = profiler = None
    if ranks.is_first:
        hparams = {name.replace("_", "-"): value for name, value in vars(arguments).items()}
        curves = CurveWriter(log_dir, hparams | {"world-size": ranks.world_size})
        if arguments.profile:
            profiler = StepProfiler(log_dir / "profile", ranks.rank, device)
    try:
        loop = TrainingLoop(
            arguments, state, batches, dataset.validation, scale, writer, progress, stop,
            eval_batch_size=eval_batch_size(arguments.test_batch_size, arguments.batch_size, dataset.shape),
            recorded_args=recorded_args,
            curves=curves,
            telemetry=open_telemetry(device, log if ranks.is_first_here else lambda _: None),
            profiler=profiler,
        )  # fmt: skip
        if ranks.is_first:
            samples = "images" if dataset.unit == "images" else "sequences"
            log(
                f"{arguments.model} on {arguments.dataset}: {len(dataset.train)} training {samples}, "
                f"{len(dataset.validation)} validation {samples},"
                f" {loop.steps} steps of {batches.global_batch_size} {samples}"
            )
            log(
                f"device {group.device_name}, precision {state.precision.name}, "
                f"backend {group.backend or 'none'}, world size {ranks.world_size}, threads {threads}"
            )
            log(describe_step(state, arguments.batch_size))
            log(f"event files in {log_dir.resolve()}")
            log(f"checkpoints in {checkpoint_dir.resolve()}")

        # training
        with profiler or nullcontext():
            metrics = loop.run()
        if arguments.save_path:
            weights = dict(state.network.state_dict())
            group.run_on_rank0(lambda: save_weights(Path(arguments.save_path), weights))
        return metrics
    finally:
        writer.close()
        if curves is not None:
            curves.close()


def make_train_state(
    arguments: argparse.Namespace, dataset: Dataset, group: ProcessGroup
) -> tuple[TrainState, SpeedScale]:
    """Build network and optimizer, and the scale of the throughput.

    Raises:
        InvalidArguments: Device, network and data do not go together.
    """
    device, is_image = group.device, len(dataset.shape) == 3
    precision = Precision(arguments.precision, device)
    torch.manual_seed(arguments.seed)
    network = make_network(arguments, dataset).to(device)
    if is_image and arguments.model not in OWN_IMAGE_MODELS:
        check_input(network, arguments.model, _image_shape(dataset), device)
    flops = training_flops(network, dataset.shape) if group.ranks.is_first else 0
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    scale = speed_scale(dataset, flops, gpu, precision.name, group.ranks.world_size)
    options = step_options(arguments, precision, device, is_image=is_image)
    return TrainState(network, group, precision, options), scale


def make_network(arguments: argparse.Namespace, dataset: Dataset) -> nn.Module:
    """Build the network that the arguments name, for the shape and classes of the data set.

    Raises:
        TrainingError: torchvision is missing, or the images are too small for the network.
    """
    if arguments.model == "gpt":
        length, heads, width = dataset.shape[0], arguments.heads, arguments.width
        return Gpt(GptSize(dataset.classes, length, arguments.layers, heads, width))
    return make_model(
        arguments.model, _image_shape(dataset), dataset.classes, image_size=arguments.image_size
    )


def _image_shape(dataset: Dataset) -> ImageShape:
    channels, height, width = dataset.shape
    return channels, height, width


def speed_scale(dataset: Dataset, flops: int, gpu: str, precision: str, world_size: int) -> SpeedScale:
    """Return the scale of the throughput; `flops` are of one sample, `gpu` is empty on a CPU."""
    peak = peak_flops(gpu, precision) * world_size
    return SpeedScale(dataset.unit, dataset.units_per_sample, flops, peak)


def eval_batch_size(chosen: int, batch_size: int, shape: tuple[int, ...]) -> int:
    """Return the batch size of an evaluation: as chosen, else one that fits because a step did."""
    is_small = len(shape) == 3 and math.prod(shape) <= _SMALL_IMAGE
    return chosen or (max(batch_size, _SMALL_IMAGES_AT_ONCE) if is_small else batch_size)


def describe_step(state: TrainState, batch_size: int) -> str:
    """Return a line of the log with the options of a step."""
    options = state.options
    accumulated = f", {options.accumulate} batches a step" if options.accumulate > 1 else ""
    compiled = f"off ({state.not_compiled})" if state.not_compiled else "on (the first steps take longer)"
    layout = "channels last" if options.is_channels_last else "channels first"
    return f"batch size {batch_size} a process{accumulated}, {layout}, torch.compile {compiled}"


def save_weights(path: Path, weights: State) -> None:
    """Write the final weights.

    Raises:
        TrainingError: They cannot be written.
    """
    write_atomically("--save-path", path, lambda file: torch.save(weights, file))
    log(f"weights in {path.resolve()}")


@dataclass(slots=True)
class Progress:
    """Progress of a run; saved in each checkpoint."""

    step: int = 0
    """Steps since the very start."""
    epoch: int = 0
    """Current epoch, from 0."""
    images: int = 0
    """Samples of this epoch that were used already, over all ranks."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Loss and accuracy (0 to 1) on the validation samples of all ranks."""

    loss: float
    accuracy: float


def resume(
    state: TrainState,
    checkpoints: CheckpointFolder,
    path: Path,
    checkpoint: State,
    recorded_args: CheckpointArgs,
) -> Progress:
    """Restore what rank 0 read, log it, and return the progress.

    Raises:
        NothingToTrain: All epochs are done, with other settings.
        TrainingError: The checkpoint does not fit.
    """
    changed = check_resumable(checkpoint.get("hyperparameters", {}), recorded_args)
    epochs = recorded_args["epochs"]
    is_done = checkpoint["epoch"] >= int(epochs)
    if is_done and changed:
        raise NothingToTrain(
            f"Nothing was trained: {path} has {checkpoint['epoch']} of {epochs} epochs.",
            f"It was made with other settings: {changed}.",
            "Start from scratch with --resume never or another --checkpoint-dir, or use more --epochs.",
        )
    state.load_state_dict(checkpoint)
    state.group.run_on_rank0(lambda: checkpoints.resumed(path, checkpoint))
    if changed and state.group.ranks.is_first:
        log(f"changed since then: {changed}")
    if is_done and state.group.ranks.is_first:
        log(
            f"nothing left to train: {checkpoint['epoch']} of {epochs} epochs are done"
            " (--epochs trains more, --resume never starts from scratch)"
        )
    return Progress(checkpoint["step"], checkpoint["epoch"], checkpoint["images"])


@dataclass
class TrainingLoop:
    """The loop from `progress` to the end: train, log, evaluate, save, and stop when asked."""

    arguments: argparse.Namespace
    """Read for `epochs`, `log_every` and `checkpoint_every`."""
    state: TrainState
    batches: TrainBatches
    validation: Samples
    scale: SpeedScale
    checkpoints: CheckpointWriter
    progress: Progress
    stop: StopRequest
    eval_batch_size: int
    recorded_args: CheckpointArgs
    curves: CurveWriter | None = None
    """None on all ranks but the first."""
    telemetry: GpuTelemetry | None = None
    profiler: StepProfiler | None = None

    def __post_init__(self) -> None:
        epochs, progress = self.arguments.epochs, self.progress
        left = self.batches.sampler.steps_left(epochs, progress.epoch, progress.images)
        self.steps = progress.step + left
        """Steps of the whole training, including those before this run."""
        self._group = self.state.group
        self._is_first = self._group.ranks.is_first
        self._timer = StepTimer(self.state.model, self._group, self.telemetry, self.arguments.log_every)
        self._stop_check_steps = 1

    def run(self) -> Metrics:
        """Train to the end and return the metrics after the last epoch.

        Raises:
            Stopped: A signal came; everything is saved.
            NotFinite: The loss or a weight is not finite.
            TrainingError: A checkpoint could not be written.
        """
        progress, metrics = self.progress, None
        self.stop.catch_signals()
        while progress.epoch < self.arguments.epochs:
            self._train_epoch()
            metrics = self._evaluate()
            progress.epoch += 1
            progress.images = max(0, progress.images - len(self.batches.samples))
            self._log_metrics(metrics)
            self._start_checkpoint()
            self._stop_if_requested()
        if metrics is not None and not self._finish_checkpoint():
            raise TrainingError(
                "Training is complete, but the disk had no room for the last checkpoint.",
                "The warning above names the last one that was written.",
                "Make room and start again to train from there.",
            )
        return metrics or self._evaluate()

    def _train_epoch(self) -> None:
        progress, batches, every = self.progress, self.batches, self.arguments.checkpoint_every
        self.state.model.train()
        self._timer.start()
        self._set_trained_fraction()
        for inputs_B, targets_B in self._timer.timed(batches.epoch_batches(progress.epoch, progress.images)):
            self._timer.add(self.state.train_step(inputs_B, targets_B))
            if self.profiler is not None:
                self.profiler.step()
            progress.step += 1
            progress.images += batches.global_batch_size
            self._set_trained_fraction()
            is_last = progress.images >= len(batches.samples)
            if progress.step % self.arguments.log_every == 0 or is_last:
                self._log_steps()
            if not is_last and every and progress.step % every == 0:
                self._start_checkpoint()
            if not is_last and progress.step % self._stop_check_steps == 0:
                self._stop_if_requested()

    def _set_trained_fraction(self) -> None:
        # Images, not steps: after a resume, a step may have another number of images.
        epochs = self.progress.epoch + self.progress.images / len(self.batches.samples)
        self.state.trained_fraction = epochs / self.arguments.epochs

    def _log_steps(self) -> None:
        stats, step, lr = self._timer.measure(), self.progress.step, self.state.lr
        self._stop_check_steps = max(1, int(STOP_CHECK_EVERY_S / max(stats.step_s, 1e-9)))
        samples_per_s = self.batches.global_batch_size / stats.step_s if stats.step_s > 0 else 0.0
        log(
            progress_line(
                epoch=self.progress.epoch + 1,
                epochs=self.arguments.epochs,
                step=step,
                steps=self.steps,
                loss=stats.loss if self._is_first else stats.own_loss,
                lr=lr,
                per_s=self.scale.per_s(samples_per_s),
                unit=self.scale.unit,
                eta_s=(self.steps - step) * stats.step_s,
                times=stats.text,
            )
        )
        if self.curves is not None:
            values = {"train/loss": stats.loss, "train/lr": lr}
            self.curves.write(step, values | self.scale.scalars(samples_per_s) | stats.scalars)
        if not math.isfinite(stats.loss):
            raise _diverged(f"The loss became {stats.loss} by step {step}, on this rank {stats.own_loss:.4g}")

    def _evaluate(self) -> Metrics:
        sums = torch.zeros(3, device=self._group.device, dtype=torch.float64)
        with self.state.eval_mode():
            for inputs_B, targets_B in validation_batches(
                self.validation, self.eval_batch_size, self._group.ranks, self.batches.loader
            ):
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
        """Save this step; the file is written while the next steps are taken."""
        progress, state = self.progress, self.state.state_dict()
        state |= {"step": progress.step, "epoch": progress.epoch, "images": progress.images}
        state |= {"hyperparameters": self.recorded_args}
        self._group.run_on_rank0(lambda: self.checkpoints.start(state))

    def _finish_checkpoint(self) -> str:
        """Wait for the last checkpoint and return its path; "" if the disk is full and training continues."""
        return self._group.run_on_rank0(self.checkpoints.finish)

    def _stop_if_requested(self) -> None:
        mine = _CHECKPOINT_FAILED if self.checkpoints.has_failed else self.stop.signal
        number = int(self._group.all_reduce_max(mine))
        if number == _CHECKPOINT_FAILED:
            self._finish_checkpoint()
        elif number:
            self._start_checkpoint()
            saved = self._finish_checkpoint()
            raise Stopped(
                f"Stopped by {signal.Signals(number).name} after step {self.progress.step}.",
                f"{saved} holds everything."
                if saved
                else "That could not be saved; the warning on rank 0 names the last checkpoint.",
                "Start again to go on from there.",
                signal=number,
            )


def _diverged(what: str) -> NotFinite:
    return NotFinite(
        f"{what}; all ranks stop.",
        "The learning rate may be too high.",
        "Choose a smaller --lr; no checkpoint holds these weights.",
    )


if __name__ == "__main__":
    status = run(command_line, stop_request)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # everything is saved; destroying torch's threads may abort the process
