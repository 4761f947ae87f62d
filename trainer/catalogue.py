"""What can be launched: the trainers this project brings, and the arguments each one takes.

The console's forms and the trainers' own command lines are both made from here.
"""

import argparse

from trainer.arguments import Argument, Launcher, Trainer, UnknownName

__all__ = ["TRAINERS", "Argument", "Launcher", "Trainer", "UnknownName", "find"]

DATASETS = ("digits", "mnist")
"""`digits` is drawn by the trainer itself; `mnist` is read from files."""

MODELS = ("cnn", "resnet18", "resnet34", "resnet50", "mobilenet_v3_small")
"""`cnn` is the trainer's own; the others are torchvision's."""

DEVICES = ("auto", "cpu", "cuda")
"""Where to compute."""

RESUME_MODES = ("auto", "never", "must")
"""What to do about checkpoints that are there already."""

WHEN_FULL = ("stop", "continue")
"""What to do when the disk of the checkpoints is full."""

_DDP_ARGUMENTS = (
    Argument(
        "dataset", "digits", "", "What to learn: digits drawn on the spot, or MNIST from --data", DATASETS
    ),
    Argument("data", "mnist", "", "Folder with MNIST's four files (dataset mnist)"),
    Argument("download", False, "", "Fetch MNIST into --data if it is not there"),
    Argument("model", "cnn", "", "The network: a small one of our own, or one of torchvision's", MODELS),
    Argument("epochs", 5, "epochs", "How often to go through the training images", least=1, most=1_000_000),
    Argument("batch-size", 32, "images", "Images in a step of one process", least=1, most=1_000_000),
    Argument(
        "lr", 0.003, "", "Highest learning rate; it rises at the start and falls to zero", least=0, most=1e30
    ),
    Argument("weight-decay", 0.01, "", "How strongly AdamW pulls weights to zero", least=0, most=100),
    Argument(
        "train-images",
        12_000,
        "images",
        "Digits to draw for training (dataset digits)",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "val-images",
        2_000,
        "images",
        "Digits to draw for validation (dataset digits)",
        least=1,
        most=1_000_000,
    ),
    Argument(
        "seed",
        1,
        "",
        "Start of every random sequence; the same seed trains the same way",
        least=0,
        most=4_294_967_295,
    ),
    Argument("device", "auto", "", "Where to compute; auto takes a GPU if there is one", DEVICES),
    Argument("precision", "fp32", "", "Numbers to compute with; bf16 is for GPUs", ("fp32", "bf16")),
    Argument("log-dir", "logs", "", "Folder for the event files, written by rank 0"),
    Argument("log-every", 10, "steps", "Steps between two lines of progress", least=1, most=1_000_000_000),
    Argument("checkpoint-dir", "checkpoints", "", "Folder for checkpoints, written and read by rank 0"),
    Argument("keep", 2, "checkpoints", "How many of the newest checkpoints to keep", least=1, most=1_000_000),
    Argument(
        "resume",
        "auto",
        "",
        "Go on from the newest checkpoint: if there is one, never, or fail;"
        " never moves the checkpoints that are there to a folder old-N beside them",
        RESUME_MODES,
    ),
    Argument(
        "on-full-disk",
        "stop",
        "",
        "When a checkpoint finds no room on its disk: stop, or train on and try again with the next",
        WHEN_FULL,
    ),
    Argument(
        "wait-for-others",
        300,
        "s",
        "How long a process waits for the others before training",
        least=1,
        most=604_800,
    ),
)


BENCHMARK_MODELS = ("vgg16", "resnet50", "resnet18", "tiny")
"""Networks to measure: torchvision's, and a small one of our own."""

BACKENDS = ("auto", "nccl", "gloo", "mpi")
"""What carries gradients between ranks."""

_MPI_ARGUMENTS = (
    Argument(
        "model", "resnet50", "", "The network to measure: torchvision's, or a tiny one", BENCHMARK_MODELS
    ),
    Argument("batch-size", 32, "images", "Images in a step of one process", least=1, most=1_000_000),
    Argument("num-warmup-batches", 10, "batches", "Batches before the clock runs", least=0, most=1_000_000),
    Argument("num-batches-per-iter", 10, "batches", "Batches in one measurement", least=1, most=1_000_000),
    Argument("num-iters", 10, "iterations", "How often to measure", least=1, most=1_000_000),
    Argument("fp16-allreduce", False, "", "Halve the numbers that the ranks exchange: 16 bits each"),
    Argument("no-cuda", False, "", "Compute on the processor even where there is a GPU"),
    Argument("log-dir", "", "", "Folder for event files with a point a measurement, written by rank 0"),
    Argument("backend", "auto", "", "What carries gradients: auto is nccl between GPUs, else gloo", BACKENDS),
    Argument(
        "master-addr",
        "",
        "",
        "Address of rank 0 under mpirun; else MASTER_ADDR, else found out",
    ),
    Argument(
        "master-port",
        0,
        "",
        "Port of rank 0 under mpirun; 0 takes MASTER_PORT, else a free one",
        least=0,
        most=65_535,
    ),
    Argument(
        "wait-for-others",
        300,
        "s",
        "How long a process waits for the others before it measures",
        least=1,
        most=604_800,
    ),
)


def _ddp_conflict(arguments: argparse.Namespace) -> str:
    if arguments.batch_size == 1 and arguments.model != "cnn":
        return (
            f"argument --batch-size: 1 is not 2 or more, which --model {arguments.model} needs"
            " (it normalizes over the images of a step)"
        )
    return ""


TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        "ddp",
        "Train an image classifier with DistributedDataParallel",
        "trainer.train_ddp",
        _DDP_ARGUMENTS,
        conflict=_ddp_conflict,
    ),
    Trainer(
        "mpi",
        "Measure how many images a second a network trains on",
        "trainer.train_mpi",
        _MPI_ARGUMENTS,
        launcher="mpirun",
    ),
)
"""Every trainer, in the order a form shows them."""


def find(name: str) -> Trainer:
    """Look up a trainer.

    Raises:
        UnknownName: There is none of this name.
    """
    for trainer in TRAINERS:
        if trainer.name == name:
            return trainer
    raise UnknownName(f"There is no trainer {name!r}. There is: {', '.join(each.name for each in TRAINERS)}.")
