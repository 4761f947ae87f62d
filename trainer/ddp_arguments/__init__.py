"""The arguments of `trainer.train_ddp`.

The console reads them too, so nothing here imports torch or any other package.
"""

from trainer.ddp_arguments.conflicts import ddp_conflict
from trainer.ddp_arguments.keeping import KEEPING_ARGUMENTS
from trainer.ddp_arguments.learning import LEARNING_ARGUMENTS
from trainer.ddp_arguments.names import DATASETS, FROM_FILES, MODELS, OF_TOKENS
from trainer.ddp_arguments.steps import STEP_ARGUMENTS

__all__ = ["DATASETS", "DDP_ARGUMENTS", "FROM_FILES", "MODELS", "OF_TOKENS", "ddp_conflict"]

DDP_ARGUMENTS = (*LEARNING_ARGUMENTS, *STEP_ARGUMENTS, *KEEPING_ARGUMENTS)
"""In the order a form shows them."""
