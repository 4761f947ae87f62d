"""The measured step: forward, backward with averaged gradients, and update."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from trainer.benchmark.networks import random_batch
from trainer.messages import InvalidArguments

# As Horovod's: the learning rate grows with the global batch.
LEARNING_RATE_PER_RANK = 0.01

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TrainStep:
    """A step of a network on one batch of noise; of this rank alone until `distribute`."""

    def __init__(
        self,
        make_network: Callable[[], tuple[nn.Module, int]],
        *,
        batch_size: int,
        precision: str,
        ranks: int,
        device: torch.device,
    ) -> None:
        """Make the network and the batch on `device`.

        Raises:
            InvalidArguments: The device does not support the precision.
        """
        _choose_precision(precision, device)
        torch.manual_seed(0)
        self._network, size = make_network()
        self._network.to(device)
        self._model: nn.Module = self._network
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=LEARNING_RATE_PER_RANK * ranks)
        self._images_B3HW, self._labels_B = random_batch(batch_size, size, device)
        self._device, self._dtype = device, _AUTOCAST.get(precision)
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def distribute(self, *, fp16_allreduce: bool) -> None:
        """Average the gradients of all ranks from now on; every rank must call this."""
        distributed = DistributedDataParallel(self._network, gradient_as_bucket_view=True)
        if fp16_allreduce:
            distributed.register_comm_hook(None, fp16_compress_hook)
        self._model = distributed

    def __call__(self) -> None:
        """Take a step; a GPU may still be computing when it returns."""
        self._optimizer.zero_grad()
        with self._autocast():
            loss = nn.functional.cross_entropy(self._model(self._images_B3HW), self._labels_B)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def _autocast(self) -> AbstractContextManager[object]:
        return nullcontext() if self._dtype is None else torch.autocast(self._device.type, self._dtype)


def _choose_precision(name: str, device: torch.device) -> None:
    if name in ("fp16", "tf32") and device.type == "cpu":
        raise InvalidArguments(
            f"--precision {name}: it needs a GPU, and this rank runs on the CPU.",
            now="Use --precision fp32 or bf16.",
        )
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
