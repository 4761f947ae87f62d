"""The arguments of `trainer.train_ddp`.

The console reads them too, so nothing here imports torch or any other package.
"""

import argparse

from trainer.ddp_arguments.keeping import KEEPING_ARGUMENTS
from trainer.ddp_arguments.learning import DATASETS, LEARNING_ARGUMENTS, MODELS

__all__ = ["DATASETS", "DDP_ARGUMENTS", "MODELS", "ddp_conflict"]

DDP_ARGUMENTS = (*LEARNING_ARGUMENTS, *KEEPING_ARGUMENTS)
"""In the order a form shows them."""


def ddp_conflict(arguments: argparse.Namespace) -> str:
    """Say which arguments do not go together, as argparse would; "" where all do."""
    if arguments.batch_size == 1 and arguments.model != "cnn":
        return (
            f"argument --batch-size: 1 is not 2 or more, which --model {arguments.model} needs"
            " (it normalizes over the images of a step)"
        )
    return ""
