"""The floating-point operations that a training step takes, counted once before training."""

import copy
import warnings

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from trainer.ddp.models.gpt import Gpt, training_flops_per_token

_BATCH = 2
"""Samples counted at once: a norm over the batch takes no single one."""


def training_flops(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Count the operations of a forward and backward pass for one sample; 0 if they cannot be counted.

    Of a GPT by formula, of the rest by torch's counter, which adds up products of
    matrices and convolutions. Nothing is computed: tensors have no memory meanwhile.

    Args:
        network: Before it is made parallel.
        shape: Of a sample, without the batch.
    """
    if isinstance(network, Gpt):
        return training_flops_per_token(network) * shape[0]
    try:
        return _count(copy.deepcopy(network).to("meta").train(), shape)
    except (RuntimeError, NotImplementedError, ValueError, AssertionError):
        return 0


def _count(network: nn.Module, shape: tuple[int, ...]) -> int:
    counter = FlopCounterMode(display=False)
    dtype = next(network.parameters()).dtype
    with counter, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output: Tensor = network(torch.zeros(_BATCH, *shape, device="meta", dtype=dtype))
        output.sum().backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops() // _BATCH
