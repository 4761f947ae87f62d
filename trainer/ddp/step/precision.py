"""The numbers a step computes with."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from trainer.messages import InvalidArguments

_AMPERE = (8, 0)
"""The first compute capability with bf16 and TF32 in its tensor cores."""

_LARGEST_SCALE = 2.0**16


class Precision:
    """How the forward pass computes, and what keeps small gradients of 16 bits from vanishing."""

    def __init__(self, name: str, device: torch.device) -> None:
        """Choose; "auto" is bf16 where the GPU has it, else fp32.

        Raises:
            InvalidArguments: The device cannot.
        """
        is_ampere = device.type == "cuda" and torch.cuda.get_device_capability(device) >= _AMPERE
        if name == "auto":
            name = "bf16" if is_ampere else "fp32"
        if name == "tf32" and not is_ampere:
            raise InvalidArguments(
                f"--precision tf32: {device} has no TF32.",
                "GPUs have it from compute capability 8.0 on.",
                "Use --precision auto.",
            )
        if name == "bf16" and device.type == "cuda" and not is_ampere:
            raise InvalidArguments(
                f"--precision bf16: {torch.cuda.get_device_name(device)} has no bf16.",
                now="Use --precision fp16, or auto.",
            )
        self.name = name
        """fp64, fp32, tf32, bf16 or fp16."""
        self.weights = torch.float64 if name == "fp64" else torch.float32
        """What weights, gradients and the optimizer's state are kept in."""
        self._device = device.type
        self._autocast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self.scaler = GradScaler(device.type, init_scale=_LARGEST_SCALE, enabled=name == "fp16")
        """Scales the loss of fp16, and skips a step whose gradients were too large for it."""
        if device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name in (
                "tf32",
                "bf16",
                "fp16",
            )

    def autocast(self) -> AbstractContextManager[object]:
        """Return what the forward pass runs in."""
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._device, self._autocast)

    def inputs(self, inputs: Tensor) -> Tensor:
        """Return inputs in the weights' type; tokens stay whole numbers."""
        return inputs.to(self.weights) if inputs.is_floating_point() else inputs
