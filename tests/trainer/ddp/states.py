"""Arguments and states of a training step for tests: one process on the CPU, with small networks."""

import argparse
import signal
from typing import Any

import torch
from torch import nn

from trainer.catalogue import find
from trainer.ddp.models import make_model
from trainer.ddp.train_state import Precision, TrainState, resolve_auto
from trainer.distributed.process_group import ProcessGroup
from trainer.ranks import Ranks
from trainer.signals import StopRequest

CPU = torch.device("cpu")


class ScriptedStop(StopRequest):
    """SIGTERM at the n-th look of the loop, or never; leaves the signals of this process alone."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def catch_signals(self) -> None:
        """Catch none."""

    @property
    def signal(self) -> int:  # type: ignore[override]
        self.left -= 1
        return 0 if self.left else signal.SIGTERM


def alone() -> ProcessGroup:
    return ProcessGroup(Ranks(0, 1, 0, 1, "alone"), CPU, 1)


def chosen(*words: str, device: torch.device = CPU) -> argparse.Namespace:
    """Parse the arguments of a command line, and resolve `auto` for a device; by default in fp32."""
    arguments = find("ddp").parser().parse_args(words)
    if arguments.precision == "auto":
        arguments.precision = "fp32"
    resolve_auto(arguments, Precision(arguments.precision, CPU), device)
    return arguments


def state_of(*words: str, network: nn.Module | None = None, group: ProcessGroup | None = None) -> TrainState:
    """Return the state of a run at its peak learning rate; by default of a LeNet, the same at each call."""
    arguments = chosen("--lr", "0.1", *words)
    torch.manual_seed(1)
    precision = Precision(arguments.precision, CPU)
    state = TrainState(network or make_model("lenet"), group or alone(), precision, arguments)
    state.trained_fraction = 0.1
    return state


def lenet_batch(scale: float = 1.0) -> tuple[Any, Any]:
    """Return eight images of noise and their labels, the same at each call."""
    torch.manual_seed(2)
    return torch.randn(8, 1, 28, 28) * scale, torch.arange(8)
