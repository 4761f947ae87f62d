"""The packaged trainers and their arguments.

The console's forms and the trainers' command lines are both built from here.
"""

from trainer.arguments import (
    BACKEND,
    WAIT_FOR_OTHERS,
    Argument,
    Launcher,
    Trainer,
    UnknownName,
    choice,
    flag,
    number,
)
from trainer.ddp_arguments import (
    DATASETS,
    DDP_ARGUMENTS,
    FROM_FILES,
    MODELS,
    OF_TOKENS,
    ddp_conflict,
    ddp_implied,
)

__all__ = [
    "DATASETS", "FROM_FILES", "MODELS", "OF_TOKENS", "TRAINERS", "Argument", "Launcher", "Trainer",
    "UnknownName", "find",
]  # fmt: skip

_MPI_ARGUMENTS = (
    Argument("model", "resnet50", "", "Network to measure: torchvision's, or a tiny one",
             ("vgg16", "resnet50", "resnet18", "tiny")),
    number("batch-size", 32, "images", 1, 1_000_000, "Images per process and step"),
    number("num-warmup-batches", 10, "batches", 0, 1_000_000, "Warm-up batches, not measured"),
    number("num-batches-per-iter", 10, "batches", 1, 1_000_000, "Batches per measurement"),
    number("num-iters", 10, "iterations", 1, 1_000_000, "Number of measurements"),
    choice("precision", ("fp32", "tf32", "bf16", "fp16"),
           "Precision: strict fp32, or a faster one of GPUs; bf16 also works on CPUs"),
    flag("fp16-allreduce", "Exchange gradients as 16-bit numbers"),
    flag("no-cuda", "Use the CPU even if there is a GPU"),
    Argument("log-dir", "", "", "Folder for event files with one point per measurement, written by rank 0",
             also=("logdir",)),
    Argument("json", "", "", "File for the result as JSON, written by rank 0"),
    number("allreduce-mib", 0, "MiB", 0, 16_384,
           "Largest message of the final all-reduce measurement; auto means 256 between GPUs, else 16",
           zero="auto"),
    flag("throughput-only", "Skip the measurements of a single rank and of all-reduce"),
    BACKEND,
    WAIT_FOR_OTHERS,
)  # fmt: skip


# In the order in which a form shows them.
TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        "ddp",
        "Train an image classifier with DistributedDataParallel",
        "trainer.train_ddp",
        DDP_ARGUMENTS,
        conflict=ddp_conflict,
        implied=ddp_implied,
        removed={"profile": "run the trainer under nsys profile or py-spy record"},
    ),
    Trainer(
        "mpi",
        "Measure how many images a second a network trains on",
        "trainer.train_mpi",
        _MPI_ARGUMENTS,
        launcher="mpirun",
        removed={
            "master-addr": "set MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)",
            "master-port": "set MASTER_PORT (mpirun -x MASTER_PORT=PORT)",
        },
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
