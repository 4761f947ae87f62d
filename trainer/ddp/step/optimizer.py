"""The optimizer, by name, and the options of a step that go with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from trainer.ddp.step.parallel import ParallelOptions
from trainer.ddp.step.schedule import Schedule


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a step changes the network."""

    lr: float
    """Highest learning rate."""
    weight_decay: float = 0.01
    """How strongly weights are pulled to zero."""
    optimizer: str = "auto"
    """adamw, sgd, or auto: sgd with a momentum, else adamw."""
    momentum: float = 0.0
    """Of sgd."""
    schedule: Schedule = field(default_factory=Schedule)
    """Of the learning rate."""
    accumulate: int = 1
    """Forward and backward passes that make one step."""
    clip_norm: float = 0.0
    """Longest gradient; 0 for any."""
    ema: float = 0.0
    """Decay of the average of the weights; 0 for none."""
    parallel: ParallelOptions = field(default_factory=ParallelOptions)
    """How the ranks share the work."""
    is_channels_last: bool = False
    """Whether the channels of an image lie side by side."""
    compile: str = "off"
    """auto, on or off."""
    is_large: bool = False
    """Whether compiling is worth its minute."""
    seed: int = 1
    """Of dropout."""

    @property
    def optimizer_name(self) -> str:
        """Return adamw or sgd."""
        if self.optimizer == "auto":
            return "sgd" if self.momentum else "adamw"
        return self.optimizer


def make_optimizer(weights: Iterable[nn.Parameter], options: StepOptions) -> torch.optim.Optimizer:
    """Make the optimizer that `options` name, in one kernel for all weights."""
    if options.optimizer_name == "sgd":
        return torch.optim.SGD(
            weights, options.lr, options.momentum, weight_decay=options.weight_decay, fused=True
        )
    return torch.optim.AdamW(weights, options.lr, weight_decay=options.weight_decay, fused=True)
