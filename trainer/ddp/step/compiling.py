"""torch.compile, where it can work: it needs Triton and a C compiler on a GPU, a C++ compiler elsewhere."""

import importlib
import importlib.util
import os
import shutil

import torch
from torch import nn

from trainer.ddp.models.gpt import Gpt
from trainer.ddp.step.optimizer import StepOptions
from trainer.messages import InvalidArguments

_VOLTA = (7, 0)
"""The first compute capability that Triton compiles for."""


def compile_network(model: nn.Module, network: nn.Module, options: StepOptions, device: torch.device) -> str:
    """Compile in place if `options` say so; returns why not, "" if it is.

    A GPT is compiled block by block, so that gradients are on their way while the
    blocks before are computed; of other networks DDP splits the whole for that.

    Args:
        model: The network as it is called in a step.
        network: The bare one.
        options: `compile` is auto, on or off; auto is on for a large network on a GPU, where it can work.
        device: What computes.

    Raises:
        InvalidArguments: It is on and cannot work.
    """
    why = "as chosen" if options.compile == "off" else _missing(device)
    if options.compile == "on" and why:
        raise InvalidArguments(f"--compile on: {why}.", now="Use --compile off.")
    if options.compile == "auto" and not why and not (device.type == "cuda" and options.is_large):
        why = "it would take longer than it saves"
    if why:
        return why
    if options.parallel.is_static_graph:
        importlib.import_module(
            "torch._dynamo"
        ).config.optimize_ddp = False  # it needs a graph that may change
    for part in network.blocks if isinstance(network, Gpt) else (model,):
        part.compile()
    return ""


def _missing(device: torch.device) -> str:
    """Say what torch.compile lacks here; "" if nothing."""
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) < _VOLTA:
            return f"{torch.cuda.get_device_name(device)} is too old for Triton"
        if importlib.util.find_spec("triton") is None:
            return "Triton is not installed"
        compilers = ("CC", ["gcc", "clang", "cc"], "C")
    else:
        compilers = ("CXX", ["g++", "clang++"], "C++")
    variable, names, language = compilers
    if not any(shutil.which(name) for name in [os.environ.get(variable, ""), *names] if name):
        return f"there is no {language} compiler in this image"
    return ""
