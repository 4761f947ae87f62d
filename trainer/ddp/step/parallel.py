"""The network over the ranks: a copy on each with its gradients averaged (DDP), or a part on each (FSDP2)."""

import importlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.ddp.models.gpt import Gpt
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import InvalidArguments, TrainingError


@dataclass(frozen=True, slots=True)
class ParallelOptions:
    """How the ranks share the work."""

    kind: str = "ddp"
    """ddp or fsdp."""
    bucket_mb: int = 25
    """Of DDP: megabytes of gradients that are sent together."""
    is_static_graph: bool = False
    """Of DDP: whether every step uses the same weights in the same order."""
    copies_buckets: bool = False
    """Of DDP: whether gradients are copied out of the buckets, not seen in them."""


def make_parallel(network: nn.Module, group: ProcessGroup, options: ParallelOptions) -> nn.Module:
    """Return what to call in a step; `network` itself where the process is alone.

    With FSDP2 the parameters of `network` become parts of themselves, in place.

    Raises:
        InvalidArguments: FSDP2 is asked for a network that it is not made for here.
        TrainingError: This torch has no FSDP2.
    """
    if options.kind == "fsdp":
        return _shard(network, group)
    if not group.backend:
        return network
    return DistributedDataParallel(
        network,
        bucket_cap_mb=options.bucket_mb,
        gradient_as_bucket_view=not options.copies_buckets,
        static_graph=options.is_static_graph,
    )


def _shard(network: nn.Module, group: ProcessGroup) -> nn.Module:
    if not isinstance(network, Gpt):
        raise InvalidArguments(
            "--parallel fsdp: only the gpt is cut into parts.", now="Use --model gpt, or --parallel ddp."
        )
    if not group.backend:
        return network
    try:
        fully_shard = importlib.import_module("torch.distributed.fsdp").fully_shard
    except (ImportError, AttributeError) as error:
        raise TrainingError(
            f"torch {torch.__version__} has no fully_shard.", now="Use torch 2.6 or newer, or --parallel ddp."
        ) from error
    for block in network.blocks:
        fully_shard(block)
    return cast(nn.Module, fully_shard(network))


def reorders_sums(model: nn.Module, group: ProcessGroup) -> bool:
    """Say whether the first step adds up the ranks' gradients in another order than those after it.

    DDP puts gradients together anew once it knows in which order they come, and of three ranks or more
    gloo's order depends on where a gradient lies: a run that is resumed would differ in the last bits.
    """
    is_ddp = isinstance(model, DistributedDataParallel)
    return is_ddp and group.ranks.world_size > 2 and group.device.type == "cpu"


def without_sync(model: nn.Module, is_last: bool) -> AbstractContextManager[None]:
    """Return what a forward and backward pass runs in: before the last, gradients stay on their rank."""
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if is_last else model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        cast(Any, model).set_requires_gradient_sync(is_last)
    return nullcontext()


def whole(state: Any) -> Any:
    """Return a state with the parts of each tensor put together; every rank must call this."""
    if isinstance(state, dict):
        return {key: whole(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(whole(value) for value in state)
    return state.full_tensor() if hasattr(state, "full_tensor") else state


def parts_like(full: Tensor, own: Tensor) -> Tensor:
    """Return of a whole tensor the part that `own` is of its; the whole where that is whole."""
    if not hasattr(own, "device_mesh"):
        return full
    distribute = importlib.import_module("torch.distributed.tensor").distribute_tensor
    return cast(
        Tensor, distribute(full.to(own.device), cast(Any, own).device_mesh, cast(Any, own).placements)
    )
