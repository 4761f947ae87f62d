"""One training from its arguments to its exit status: what is set up, and what is said when it fails."""

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from trainer.ddp.checkpoint import State
from trainer.ddp.checkpoint_folder import CheckpointFolder
from trainer.ddp.checkpoint_writer import CheckpointWriter
from trainer.ddp.datasets import TrainBatches
from trainer.ddp.hyperparameters import Hyperparameters, check_continues, hyperparameters_of
from trainer.ddp.learner import Learner
from trainer.ddp.learning_set import open_learning_set
from trainer.ddp.loop import Metrics, Progress, TrainingLoop
from trainer.ddp.setup import evaluated_at_once, how_it_computes, make_learner
from trainer.distributed.curves import CurveWriter
from trainer.distributed.exit_status import run_to_exit_status
from trainer.distributed.folders import check_file, check_folder, write_whole
from trainer.distributed.gpu_telemetry import open_telemetry
from trainer.distributed.process_group import ProcessGroup, choose_device, keep_freed_memory, set_threads
from trainer.distributed.step_profiler import StepProfiler
from trainer.messages import log
from trainer.ranks import Ranks, job_name
from trainer.signals import StopRequest
from trainer.tfevents import Hparams

_MEMORY_FULL = "Choose a smaller --batch-size, or fewer --train-images."


def run(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Train as the command line says; returns the exit status."""
    return run_to_exit_status(lambda: train(arguments, stop), stop, memory_full=_MEMORY_FULL)


def train(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Set up, train, and say how it went.

    Raises:
        TrainingError: It could not be done; on all ranks if the others would wait.
    """
    started = time.monotonic()
    ranks = Ranks.from_env()
    device = choose_device(arguments.device, ranks)
    threads = set_threads(ranks)
    keep_freed_memory()
    group = ProcessGroup(ranks, device, arguments.wait_for_others, arguments.backend)
    try:
        group.init()
        _say_restart(ranks)
        metrics = _train(arguments, group, threads, stop)
    finally:
        group.destroy()
    if ranks.is_first:
        seconds = time.monotonic() - started
        log(f"done: val_accuracy {metrics.accuracy:.4f} val_loss {metrics.loss:.4f} in {seconds:.0f} s")


def _train(arguments: argparse.Namespace, group: ProcessGroup, threads: int, stop: StopRequest) -> Metrics:
    ranks, log_dir, checkpoint_dir = group.ranks, Path(arguments.log_dir), Path(arguments.checkpoint_dir)
    learning_set = open_learning_set(arguments, group)
    learner, batch_size, scale = make_learner(arguments, learning_set, group)
    arguments.batch_size, arguments.precision = batch_size, learner.precision.name  # as hyperparameters
    train = TrainBatches(
        learning_set.train, batch_size * arguments.accumulate, ranks, arguments.seed, learning_set.feed
    )
    checkpoints = CheckpointFolder(
        checkpoint_dir,
        keep=arguments.keep,
        model=arguments.model,
        job=job_name(),
        continues_when_full=arguments.on_full_disk == "continue",
    )

    def open_folders() -> tuple[Path, State] | None:
        check_folder("--log-dir", log_dir, may_be_full=True)
        check_folder("--checkpoint-dir", checkpoint_dir, checkpoints.continues_when_full)
        if arguments.save_path:
            check_file("--save-path", Path(arguments.save_path))
        return checkpoints.load(arguments.resume)

    writer = CheckpointWriter(checkpoints)
    hyperparameters = hyperparameters_of(arguments, learning_set, learner.options.optimizer_name)
    found = group.run_on_rank0(open_folders)
    progress = _resume(learner, checkpoints, *found, hyperparameters) if found else Progress()
    profiler = None
    if arguments.profile and ranks.is_first:
        profiler = StepProfiler(log_dir / "profile", ranks.rank, group.device)
    curves = CurveWriter(log_dir, hparams_of(arguments, ranks)) if ranks.is_first else None
    try:
        loop = TrainingLoop(
            learner,
            train,
            learning_set.validation,
            scale,
            epochs=arguments.epochs,
            log_every=arguments.log_every,
            test_batch_size=evaluated_at_once(arguments.test_batch_size, batch_size, learning_set.shape),
            curves=curves,
            checkpoints=writer,
            checkpoint_every=arguments.checkpoint_every,
            progress=progress,
            stop=stop,
            telemetry=open_telemetry(group.device, log if ranks.is_first_here else lambda _: None),
            profiler=profiler,
            hyperparameters=hyperparameters,
        )
        if ranks.is_first:
            samples = "images" if learning_set.unit == "images" else "sequences"
            log(
                f"{arguments.model} on {arguments.dataset}: {len(learning_set.train)} training {samples}, "
                f"{len(learning_set.validation)} validation {samples},"
                f" {loop.steps} steps of {train.global_batch_size} {samples}"
            )
            log(
                f"device {group.device_name}, precision {learner.precision.name}, "
                f"backend {group.backend or 'none'}, world size {ranks.world_size}, threads {threads}"
            )
            log(how_it_computes(learner, batch_size))
            log(f"event files in {log_dir.resolve()}")
            log(f"checkpoints in {checkpoint_dir.resolve()}")
            if progress.epoch >= arguments.epochs:
                log(
                    f"nothing left to train: {progress.epoch} of {arguments.epochs} epochs are done"
                    " (--epochs trains more, --resume never starts anew)"
                )
        with profiler or nullcontext():
            metrics = loop.run()
        if arguments.save_path:
            weights = learner.weights()
            group.run_on_rank0(lambda: _save_weights(Path(arguments.save_path), weights))
        return metrics
    finally:
        writer.close()
        if curves is not None:
            curves.close()


def hparams_of(arguments: argparse.Namespace, ranks: Ranks) -> Hparams:
    """Return all that sets a training apart from another: its arguments, and how many ranks it has."""
    return {name.replace("_", "-"): value for name, value in vars(arguments).items()} | {
        "world-size": ranks.world_size
    }


def _say_restart(ranks: Ranks) -> None:
    """Log how often torchrun has started the ranks again, if it has."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if ranks.is_first and ranks.launcher == "torchrun" and restarts != "0":
        most = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "?")
        log(f"restart {restarts} of {most}: a rank failed, and torchrun started all of them again")


def _save_weights(path: Path, weights: State) -> None:
    write_whole("--save-path", path, lambda file: torch.save(weights, file))
    log(f"weights in {path.resolve()}")


def _resume(
    learner: Learner,
    checkpoints: CheckpointFolder,
    path: Path,
    state: State,
    hyperparameters: Hyperparameters,
) -> Progress:
    """Bring back what rank 0 read, and say so; it may be of a trainer that kept no hyperparameters."""
    changed = check_continues(state.get("hyperparameters", {}), hyperparameters)
    learner.load_state_dict(state)
    learner.group.run_on_rank0(lambda: checkpoints.go_on_from(path, state))
    if changed and learner.group.ranks.is_first:
        log(f"changed since then: {changed}")
    return Progress(state["step"], state["epoch"], state["images"])
