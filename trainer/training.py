"""One training from its arguments to its exit status: what is set up, and what is said when it fails."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from signal import Signals

import torch

from .batches import Images, TrainBatches, draw, read_mnist
from .checkpoint import State, load_latest, save_checkpoint
from .errors import Stopped, TrainingError
from .group import ProcessGroup, choose_device, first_line, lost_a_rank, use_cores
from .learner import Learner
from .loop import Loop, Progress, Score
from .model import make_model
from .progress import complain, say
from .ranks import Ranks
from .stopping import StopRequest
from .tfevents import EventWriter


def run(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Train as the command line says; returns the exit status."""
    try:
        train(arguments, stop)
    except Stopped as stopped:
        say(str(stopped))
        return stopped.exit_status
    except TrainingError as error:
        complain(f"error: {error}")
        return error.exit_status
    except torch.OutOfMemoryError as error:
        complain(f"error: The GPU's memory is full. {first_line(error)}. Choose a smaller --batch-size.")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        complain("error: Nobody reads the output any more.")
        return 1
    except RuntimeError as error:
        if not lost_a_rank(error):
            raise
        if stop.signal:
            say(f"Stopped by {Signals(stop.signal).name}; another rank went first, so nothing new was saved.")
            return 128 + stop.signal
        complain(
            f"error: Another rank of the job is gone, so this one stops ({first_line(error)})."
            " Look for the first error in the other ranks' logs."
        )
        return 1
    return 0


def train(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Set up, train, and say how it went.

    Raises:
        TrainingError: It could not be done; on all ranks if the others would wait.
    """
    started = time.monotonic()
    ranks = Ranks.from_env()
    device = choose_device(arguments.device, ranks)
    threads = use_cores(ranks)
    group = ProcessGroup(ranks, device, arguments.wait_for_others)
    if group.backend:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        say(f"rank {ranks.rank} of {ranks.world_size} ({ranks.launcher}) meets the others at {place}")
    try:
        group.meet()
        score = _train(arguments, group, threads, stop)
    finally:
        group.part()
    if ranks.is_first:
        seconds = time.monotonic() - started
        say(f"done: val_accuracy {score.accuracy:.4f} val_loss {score.loss:.4f} in {seconds:.0f} s")


def _train(arguments: argparse.Namespace, group: ProcessGroup, threads: int, stop: StopRequest) -> Score:
    ranks, log_dir, checkpoint_dir = group.ranks, Path(arguments.log_dir), Path(arguments.checkpoint_dir)
    train_images, val_images = (images.to(group.device) for images in _images(arguments, group))
    train = TrainBatches(train_images, arguments.batch_size, ranks, arguments.seed)

    torch.manual_seed(arguments.seed)
    learner = Learner(
        make_model(arguments.model),
        group,
        lr=arguments.lr,
        weight_decay=arguments.weight_decay,
        bf16=arguments.precision == "bf16",
        seed=arguments.seed,
    )
    place = _resume(arguments, group, learner, checkpoint_dir)
    events = group.all_do(lambda: _open_folders(log_dir, checkpoint_dir) if ranks.is_first else None)

    def save(state: State) -> str:
        state["network"] = arguments.model
        return str(save_checkpoint(checkpoint_dir, state["step"], state, arguments.keep))

    try:
        loop = Loop(
            learner,
            train,
            val_images,
            epochs=arguments.epochs,
            log_every=arguments.log_every,
            events=events,
            save=save,
            place=place,
            stop=stop,
        )
        if ranks.is_first:
            say(
                f"{arguments.model} on {arguments.dataset}: {len(train_images)} images to learn from, "
                f"{len(val_images)} to validate, {loop.steps} steps of {train.images_per_step} images"
            )
            say(
                f"device {_device_name(group)}, precision {arguments.precision}, "
                f"backend {group.backend or 'none'}, world size {ranks.world_size}, threads {threads}"
            )
            say(f"event files in {log_dir.resolve()}")
            say(f"checkpoints in {checkpoint_dir.resolve()}")
        return loop.run()
    finally:
        if events is not None:
            events.close()


def _images(arguments: argparse.Namespace, group: ProcessGroup) -> tuple[Images, Images]:
    """Get the images for training and validation; one process a machine fetches them."""
    if arguments.dataset == "digits":
        return draw(arguments.train_images, arguments.val_images, arguments.seed)
    folder = Path(arguments.data)
    if arguments.download:
        group.all_do(lambda: read_mnist(folder, download=True) if group.ranks.is_first_here else None)
    return group.all_do(lambda: read_mnist(folder, download=False))


def _resume(arguments: argparse.Namespace, group: ProcessGroup, learner: Learner, folder: Path) -> Progress:
    """Bring back the newest checkpoint as `--resume` says; rank 0 reads it for all."""
    if arguments.resume == "never":
        return Progress()
    found = group.first_does(lambda: load_latest(folder, _warn))
    if found is None:
        if arguments.resume == "must":
            raise TrainingError(
                f"There is no checkpoint in {folder}.", now="Check --checkpoint-dir, or use --resume auto."
            )
        return Progress()
    path, state = found
    if state["network"] != arguments.model:
        raise TrainingError(
            f"The checkpoint {path} holds a {state['network']}, not a {arguments.model}.",
            now="Choose that --model, another --checkpoint-dir, or --resume never.",
        )
    learner.restore(state)
    if group.ranks.is_first:
        say(f"resumed from {path}: epoch {state['epoch'] + 1}, step {state['step']}")
    return Progress(state["step"], state["epoch"], state["images"])


def _open_folders(log_dir: Path, checkpoint_dir: Path) -> EventWriter:
    """Make the folders and the event file, and find out now whether they can be written."""
    for name, folder in (("--log-dir", log_dir), ("--checkpoint-dir", checkpoint_dir)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise TrainingError(
                f"Cannot write to {folder}.", f"{error.strerror}.", f"Choose another folder with {name}."
            ) from error
    return EventWriter(log_dir)


def _device_name(group: ProcessGroup) -> str:
    if group.device.type == "cpu":
        return "cpu"
    return f"{group.device} ({torch.cuda.get_device_name(group.device)})"


def _warn(words: str) -> None:
    complain(f"warning: {words}")
