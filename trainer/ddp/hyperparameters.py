"""What a checkpoint was made with, beside what the run that goes on from it is started with."""

import argparse
from collections.abc import Iterable, Mapping

from trainer.ddp.learning_set import LearningSet
from trainer.ddp_arguments.names import OWN_MODELS
from trainer.messages import TrainingError

Hyperparameters = dict[str, str | int | float]
"""Arguments by name; what was auto or 0 is as it was decided."""

_OF_GPT = ("layers", "heads", "width")
_OF_STEPS = (
    *("lr", "weight-decay", "schedule", "warmup", "step-epochs", "gamma", "epochs", "batch-size"),
    *("accumulate", "clip-norm", "ema", "precision", "dataset", "seed"),
)
_OF_NETWORK = ("model", *_OF_GPT, "sequence-length", "vocabulary", "image-size", "classes")
_OF_OPTIMIZER = ("optimizer", "momentum")


def hyperparameters_of(
    arguments: argparse.Namespace, learning_set: LearningSet, optimizer: str
) -> Hyperparameters:
    """Return what a checkpoint keeps of the arguments.

    Args:
        arguments: Those of the run, batch size and precision decided.
        learning_set: Gives the size of an input and the classes.
        optimizer: adamw or sgd.
    """
    given = {name.replace("_", "-"): value for name, value in vars(arguments).items()}
    is_gpt = arguments.model == "gpt"
    sizes = {"vocabulary" if is_gpt else "classes": learning_set.classes}
    if arguments.model in OWN_MODELS:  # torchvision's take images of any size
        sizes |= {"sequence-length" if is_gpt else "image-size": learning_set.shape[-1]}
    names = ("model", *(_OF_GPT if is_gpt else ()), *_OF_STEPS)
    momentum = given["momentum"] if optimizer == "sgd" else 0
    return {name: given[name] for name in names} | sizes | {"optimizer": optimizer, "momentum": momentum}


def check_continues(saved: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Say what is otherwise than when the checkpoint was saved and counts from now on; "" if nothing is.

    Raises:
        TrainingError: With some of it no run can go on.
    """
    other = differences(saved, now, (*_OF_NETWORK, "optimizer"))
    if other:
        other = differences(saved, now, (*_OF_NETWORK, *_OF_OPTIMIZER))
        raise TrainingError(
            f"The checkpoint was made with {', '.join(other)}.",
            now="Choose what it was made with, another --checkpoint-dir, or --resume never.",
        )
    return ", ".join(differences(now, saved, (*_OF_OPTIMIZER, *_OF_STEPS), beside="was"))


def differences(
    ours: Mapping[str, object], theirs: Mapping[str, object], names: Iterable[str], beside: str = "here"
) -> list[str]:
    """List what both have and `ours` has otherwise, as `--heads 4 (here 8)`."""
    found = []
    for name in names:
        if name in ours and name in theirs and ours[name] != theirs[name]:
            found.append(f"--{name} {ours[name]} ({beside} {theirs[name]})")
    return found
