"""The packaged trainers and their arguments.

The console's forms and the trainers' command lines are both built from here.
"""

from trainer.arguments import BACKENDS, Argument, Implied, Launcher, Trainer, UnknownName
from trainer.ddp_arguments import (
    DATASETS,
    DDP_ARGUMENTS,
    FROM_FILES,
    GPT_BATCH_SIZE,
    MODELS,
    OF_TOKENS,
    ddp_conflict,
)

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

_MPI_ARGUMENTS = (
    Argument(
        "model",
        "resnet50",
        "",
        "Network to measure: torchvision's, or a tiny one",
        ("vgg16", "resnet50", "resnet18", "tiny"),
    ),
    Argument("batch-size", 32, "images", "Images per process and step", least=1, most=1_000_000),
    Argument("num-warmup-batches", 10, "batches", "Warm-up batches, not measured", least=0, most=1_000_000),
    Argument("num-batches-per-iter", 10, "batches", "Batches per measurement", least=1, most=1_000_000),
    Argument("num-iters", 10, "iterations", "Number of measurements", least=1, most=1_000_000),
    Argument(
        "precision",
        "fp32",
        "",
        "Precision: strict fp32, or a faster one of GPUs; bf16 also works on CPUs",
        ("fp32", "tf32", "bf16", "fp16"),
    ),
    Argument("fp16-allreduce", False, "", "Exchange gradients as 16-bit numbers"),
    Argument("no-cuda", False, "", "Use the CPU even if there is a GPU"),
    Argument(
        "log-dir",
        "",
        "",
        "Folder for event files with one point per measurement, written by rank 0",
        also=("logdir",),
    ),
    Argument("json", "", "", "File for the result as JSON, written by rank 0"),
    Argument(
        "allreduce-mib",
        0,
        "MiB",
        "Largest message of the final all-reduce measurement; auto means 256 between GPUs, else 16",
        least=0,
        most=16_384,
        zero="auto",
    ),
    Argument("throughput-only", False, "", "Skip the measurements of a single rank and of all-reduce"),
    Argument(
        "backend", "auto", "", "Communication backend; auto means nccl between GPUs, else gloo", BACKENDS
    ),
    Argument(
        "master-addr",
        "",
        "",
        "Address of rank 0 under mpirun; by default MASTER_ADDR, else found automatically",
    ),
    Argument(
        "master-port",
        0,
        "",
        "Port of rank 0 under mpirun; auto means MASTER_PORT, else a free port",
        least=0,
        most=65_535,
        zero="auto",
    ),
    Argument(
        "wait-for-others", 300, "s", "Time to wait for the other ranks at startup", least=1, most=604_800
    ),
)


# In the order in which a form shows them.
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
            Implied("model", "batch-size", str(GPT_BATCH_SIZE), where=("model", "gpt")),
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


def find(name: str) -> Trainer:
    """Look up a trainer by name.

    Raises:
        UnknownName: No trainer has this name.
    """
    for trainer in TRAINERS:
        if trainer.name == name:
            return trainer
    raise UnknownName(f"There is no trainer {name!r}. There is: {', '.join(each.name for each in TRAINERS)}.")
