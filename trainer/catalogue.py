"""What can be launched: the trainers this project brings, and the arguments each one takes.

The console's forms and the trainers' own command lines are both made from here.
"""

from trainer.arguments import BACKENDS, Argument, Implied, Launcher, Trainer, UnknownName
from trainer.ddp_arguments import DATASETS, DDP_ARGUMENTS, FROM_FILES, MODELS, OF_TOKENS, ddp_conflict

__all__ = [
    "DATASETS",
    "FROM_FILES",
    "MODELS",
    "OF_TOKENS",
    "TRAINERS",
    "Argument",
    "Launcher",
    "Trainer",
    "UnknownName",
    "find",
]

BENCHMARK_MODELS = ("vgg16", "resnet50", "resnet18", "tiny")
"""Networks to measure: torchvision's, and a small one of our own."""

_MPI_ARGUMENTS = (
    Argument(
        "model", "resnet50", "", "The network to measure: torchvision's, or a tiny one", BENCHMARK_MODELS
    ),
    Argument("batch-size", 32, "images", "Images in a step of one process", least=1, most=1_000_000),
    Argument("num-warmup-batches", 10, "batches", "Batches before the clock runs", least=0, most=1_000_000),
    Argument("num-batches-per-iter", 10, "batches", "Batches in one measurement", least=1, most=1_000_000),
    Argument("num-iters", 10, "iterations", "How often to measure", least=1, most=1_000_000),
    Argument(
        "precision",
        "fp32",
        "",
        "Numbers to compute with: strictly fp32, or as GPUs are fastest; bf16 also on processors",
        ("fp32", "tf32", "bf16", "fp16"),
    ),
    Argument("fp16-allreduce", False, "", "Halve the numbers that the ranks exchange: 16 bits each"),
    Argument("no-cuda", False, "", "Compute on the processor even where there is a GPU"),
    Argument(
        "log-dir",
        "",
        "",
        "Folder for event files with a point a measurement, written by rank 0",
        also=("logdir",),
    ),
    Argument("json", "", "", "File for the result as JSON, written by rank 0"),
    Argument(
        "allreduce-mib",
        0,
        "MiB",
        "Largest message of the all-reduce that is measured at the end; 0 is 256 between GPUs, else 16",
        least=0,
        most=16_384,
    ),
    Argument("throughput-only", False, "", "Measure neither one rank alone nor all-reduce"),
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


TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        "ddp",
        "Train an image classifier with DistributedDataParallel",
        "trainer.train_ddp",
        DDP_ARGUMENTS,
        conflict=ddp_conflict,
        implied=(
            Implied("data", "dataset", "tokens", where=("model", "gpt")),
            Implied("data", "dataset", "mnist"),
        ),
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
