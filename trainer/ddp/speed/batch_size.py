"""A batch size that fits, where none is chosen."""

import gc
from collections.abc import Callable

import torch
from torch import nn

from trainer.ddp.step.precision import Precision
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import TrainingError

ON_PROCESSOR = 32
"""Samples a step where a processor computes."""

LARGEST = 256
"""More make a step no faster on any GPU so far."""

_KEPT_FREE = 0.25
"""Share of a GPU's memory left to the optimizer, to DDP's buckets and to what fragments."""


def choose_batch_size(
    network: nn.Module,
    shape: tuple[int, ...],
    group: ProcessGroup,
    precision: Precision,
    samples: int,
) -> int:
    """Return the samples a step of one rank: on a GPU as many as fit, and the same on all ranks.

    Args:
        network: On the device, before it is made parallel; comes back as it was.
        shape: Of a sample, without the batch.
        group: All ranks.
        precision: What the step computes with.
        samples: There are for training.

    Raises:
        TrainingError: Not even one fits.
    """
    if group.device.type != "cuda":
        return ON_PROCESSOR
    enough = max(1, samples // group.ranks.world_size)
    most = min(LARGEST, 1 << (enough.bit_length() - 1))
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    size = largest_that_fits(most, lambda batch: _fits(network, shape, batch, precision, group.device))
    for name, buffer in network.named_buffers():
        buffer.copy_(kept[name])
    size = -int(group.all_reduce_max(-size))
    if size < 1:
        raise TrainingError(
            "Not even one sample fits into the GPU's memory.", now="Choose a smaller --model."
        )
    return size


def largest_that_fits(most: int, fits: Callable[[int], bool]) -> int:
    """Halve `most` until it fits; 0 if nothing does."""
    while most and not fits(most):
        most //= 2
    return most


def _fits(
    network: nn.Module, shape: tuple[int, ...], batch: int, precision: Precision, device: torch.device
) -> bool:
    """Say whether a forward and backward pass of so many samples leaves enough memory free."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    try:
        is_tokens = len(shape) == 1
        inputs = torch.zeros(batch, *shape, device=device, dtype=torch.int64 if is_tokens else torch.float32)
        with precision.autocast():
            loss = network(inputs).float().sum()
        loss.backward()
    except torch.OutOfMemoryError:
        return False
    finally:
        network.zero_grad(set_to_none=True)
        gc.collect()
    used = torch.cuda.max_memory_allocated(device)
    return used < (1 - _KEPT_FREE) * torch.cuda.get_device_properties(device).total_memory
