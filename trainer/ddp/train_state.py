"""The network being trained, its optimizer, and one step of them."""

import argparse
import importlib
import importlib.util
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from trainer.ddp.checkpoints import State
from trainer.ddp.models import OWN_IMAGE_MODELS, Gpt
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import InvalidArguments, TrainingError

_VOLTA = (7, 0)  # the first compute capability that Triton compiles for
_AMPERE = (8, 0)  # the first compute capability with bf16 and TF32 in its tensor cores
_LARGEST_SCALE = 2.0**16


class Precision:
    """Number format of a step: autocast, the type of the weights, and the loss scaler of fp16."""

    def __init__(self, name: str, device: torch.device) -> None:
        """Choose a precision; "auto" is bf16 on GPUs that have it, else fp32."""
        is_ampere = device.type == "cuda" and torch.cuda.get_device_capability(device) >= _AMPERE
        if name == "auto":
            name = "bf16" if is_ampere else "fp32"
        if name == "tf32" and not is_ampere:
            why = "GPUs have it from compute capability 8.0 on."
            raise InvalidArguments(f"--precision tf32: {device} has no TF32.", why, "Use --precision auto.")
        if name == "bf16" and device.type == "cuda" and not is_ampere:
            what = f"--precision bf16: {torch.cuda.get_device_name(device)} has no bf16."
            raise InvalidArguments(what, now="Use --precision fp16, or auto.")
        self.name = name
        # Of weights, gradients and the optimizer's state.
        self.weights = torch.float64 if name == "fp64" else torch.float32
        self._device = device.type
        self._autocast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self.scaler = GradScaler(device.type, init_scale=_LARGEST_SCALE, enabled=name == "fp16")
        if device.type == "cuda":
            has_tf32 = name in ("tf32", "bf16", "fp16")
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = has_tf32

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of a forward pass."""
        return nullcontext() if self._autocast is None else torch.autocast(self._device, self._autocast)


def resolve_auto(arguments: argparse.Namespace, precision: Precision, device: torch.device) -> None:
    """Replace each `auto` of the command line that is the same for the whole run by its meaning here."""
    arguments.precision = precision.name
    if arguments.optimizer == "auto":
        arguments.optimizer = "sgd" if arguments.momentum else "adamw"
    if arguments.channels_last == "auto":
        is_16_bit = device.type == "cuda" and precision.name in ("bf16", "fp16")
        arguments.channels_last = "on" if is_16_bit and arguments.model != "gpt" else "off"


def lr_factor(arguments: argparse.Namespace, done: float) -> float:
    """Return the factor of the peak learning rate after the fraction `done` of the training, 0 to 1."""
    warmup = arguments.warmup
    if done < warmup:
        return float(0.05 + 0.95 * done / warmup)
    if arguments.schedule == "constant":
        return 1.0
    if arguments.schedule == "step":
        reductions = int(done * arguments.epochs + 1e-9) // arguments.step_epochs
        return float(arguments.gamma**reductions)
    since_warmup = (done - warmup) / (1 - warmup) if warmup < 1 else 1.0
    return 0.5 * (1 + math.cos(math.pi * min(1.0, since_warmup)))


class TrainState:
    """A network, its optimizer and its learning rate on one rank, in step with the other ranks."""

    def __init__(
        self, network: nn.Module, group: ProcessGroup, precision: Precision, arguments: argparse.Namespace
    ) -> None:
        """Prepare to train `network`; the arguments have passed `resolve_auto`."""
        self.group, self.precision, self._arguments = group, precision, arguments
        self._layout = torch.channels_last if arguments.channels_last == "on" else torch.preserve_format
        self.network = network.to(group.device, precision.weights)
        self.network.to(memory_format=self._layout)  # type: ignore[call-overload]
        # The network as a step calls it: in DDP, and perhaps compiled.
        self.model = wrap_ddp(self.network, group, arguments)
        # Reason why torch.compile is not used; empty if it is.
        self.not_compiled = compile_model(self.model, self.network, arguments, group.device)
        self.optimizer = make_optimizer(self.network, arguments)
        self._step = 0
        self._sums_in_order = not reorders_sums(self.model, group)
        self.trained_fraction = 0.0  # of the whole training, 0 to 1; sets the learning rate of the next step
        self._rank_seed = int(arguments.seed * 1_000_003 + group.ranks.rank)
        torch.manual_seed(self._rank_seed)

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return float(self._arguments.lr * lr_factor(self._arguments, self.trained_fraction))

    def train_step(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Take one step and return this rank's mean loss, a scalar left on the device."""
        self.optimizer.zero_grad(set_to_none=True)  # first: the forward pass reuses the memory
        if not self._sums_in_order:
            self._warm_up_ddp(inputs_B, targets_B)
        loss = self.backward(inputs_B, targets_B)
        self.update()
        return loss

    def backward(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Run all accumulated batches, the last of which averages gradients; returns the rank's mean loss."""
        count = self._arguments.accumulate
        total = torch.zeros((), device=self.group.device)
        batches = list(zip(inputs_B.chunk(count), targets_B.chunk(count), strict=True))
        for number, (inputs, targets) in enumerate(batches, 1):
            is_ddp = isinstance(self.model, DistributedDataParallel)
            with self.model.no_sync() if is_ddp and number < len(batches) else nullcontext():  # type: ignore[operator]
                with self.precision.autocast():
                    loss = mean_loss(self.model(self._prepare(inputs)), targets)
                share = len(targets) / len(targets_B)
                self.precision.scaler.scale(loss * share if share < 1 else loss).backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach() * share
        return total

    def _warm_up_ddp(self, inputs_B: Tensor, targets_B: Tensor) -> None:
        # DDP rebuilds its buckets after the first backward pass, two with a static graph. Passes that change
        # nothing let it do so before the first step, which then sums in the same order as all others.
        buffers = [buffer.clone() for buffer in self.network.buffers()]
        random = torch.get_rng_state()
        for _ in range(2 if self._arguments.static_graph else 1):
            self.backward(inputs_B, targets_B)
            self.optimizer.zero_grad(set_to_none=True)
        torch.set_rng_state(random)
        for buffer, before in zip(self.network.buffers(), buffers, strict=True):
            buffer.copy_(before)
        self._sums_in_order = True

    def update(self) -> None:
        """Update the weights from the gradients; skipped if fp16 gradients overflowed."""
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = self.lr
        scaler = self.precision.scaler
        if self._arguments.clip_norm:
            scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), self._arguments.clip_norm)
        scaler.step(self.optimizer)
        scaler.update()
        self._step += 1

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """Evaluate inside; all ranks use the buffers of rank 0, which are those that are saved."""
        self.model.eval()
        if self.group.backend:
            for buffer in self.network.buffers():
                dist.broadcast(buffer, src=0)
        yield
        self.model.train()

    @torch.no_grad()
    def evaluate(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Return summed loss, correct answers and targets of a batch, float64 (3,), on the device."""
        with self.precision.autocast():
            logits_NK = self.network(self._prepare(inputs_B)).flatten(0, -2)
        targets_N = targets_B.flatten()
        loss = nn.functional.cross_entropy(logits_NK.to(self.precision.weights), targets_N, reduction="sum")
        correct = (logits_NK.argmax(1) == targets_N).sum()
        return torch.stack([loss.double(), correct.double(), torch.full_like(loss, len(targets_N)).double()])

    def state_dict(self) -> State:
        """Return the content of a checkpoint; every rank must call this."""
        random = [torch.get_rng_state()]
        if self.group.device.type == "cuda":
            random.append(torch.cuda.get_rng_state(self.group.device))
        state = {
            "model": dict(self.network.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": {"step": self._step, "highest_lr": self._arguments.lr},
            "random": self.group.all_gather(random),
        }
        if self.precision.scaler.is_enabled():
            state["scaler"] = self.precision.scaler.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore a checkpoint; from another number of ranks, each rank gets a new random seed."""
        # A resumed run takes these from its own arguments, like the learning rate, which each step sets.
        group = self.optimizer.param_groups[0]
        own: dict[str, Any] = {each: group[each] for each in ("weight_decay", "momentum") if each in group}
        try:
            self.network.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            for parameters in self.optimizer.param_groups:
                parameters |= own
            self._step = state["schedule"]["step"]
            if self.precision.scaler.is_enabled() and "scaler" in state:
                self.precision.scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, KeyError) as error:
            now = "Choose the --model it was made with, another --checkpoint-dir, or --resume never."
            raise TrainingError("The checkpoint does not fit the network.", now=now) from error
        random: list[list[Tensor]] = state["random"]
        rank = self.group.ranks.rank
        if len(random) == self.group.ranks.world_size:
            torch.set_rng_state(random[rank][0])
            if self.group.device.type == "cuda" and len(random[rank]) > 1:
                torch.cuda.set_rng_state(random[rank][1], self.group.device)
        else:
            torch.manual_seed(self._rank_seed + 7919 * self._step)

    def _prepare(self, inputs: Tensor) -> Tensor:
        if inputs.is_floating_point():  # not tokens
            inputs = inputs.to(self.precision.weights)
        return inputs.to(memory_format=self._layout) if inputs.dim() == 4 else inputs


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of logits (B, K) and classes (B,), or (B, T, K) and tokens (B, T)."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def make_optimizer(network: nn.Module, arguments: argparse.Namespace) -> torch.optim.Optimizer:
    """Return the optimizer that the arguments name, in its fused implementation."""
    weights, lr, decay = network.parameters(), arguments.lr, arguments.weight_decay
    if arguments.optimizer == "sgd":
        return torch.optim.SGD(weights, lr, arguments.momentum, weight_decay=decay, fused=True)
    return torch.optim.AdamW(weights, lr, weight_decay=decay, fused=True)


def wrap_ddp(network: nn.Module, group: ProcessGroup, arguments: argparse.Namespace) -> nn.Module:
    """Return `network` in DistributedDataParallel; `network` itself if the process is alone."""
    if not group.backend:
        return network
    return DistributedDataParallel(
        network,
        bucket_cap_mb=arguments.bucket_mb,
        gradient_as_bucket_view=not arguments.copy_buckets,
        static_graph=arguments.static_graph,
    )


def reorders_sums(model: nn.Module, group: ProcessGroup) -> bool:
    """Return True if the first step would sum gradients in another order, so that a resumed run differs."""
    # With three or more ranks, gloo's order depends on the place in DDP's buckets, which DDP rebuilds.
    is_ddp = isinstance(model, DistributedDataParallel)
    return is_ddp and group.ranks.world_size > 2 and group.device.type == "cpu"


def compile_model(
    model: nn.Module, network: nn.Module, arguments: argparse.Namespace, device: torch.device
) -> str:
    """Compile `model`, the `network` as a step calls it, and return the reason if not; "" if compiled."""
    why = "as chosen" if arguments.compile == "off" else _missing_for_compile(device)
    if arguments.compile == "on" and why:
        raise InvalidArguments(f"--compile on: {why}.", now="Use --compile off.")
    is_large = device.type == "cuda" and arguments.model not in OWN_IMAGE_MODELS
    if arguments.compile == "auto" and not why and not is_large:
        why = "it would take longer than it saves"
    if why:
        return why
    if arguments.static_graph:
        # DDP's splitting needs a graph that may change. The import takes a second, so only here.
        importlib.import_module("torch._dynamo").config.optimize_ddp = False
    # Block by block, the gradients of a GPT are sent while earlier blocks are still computed; the graph of
    # another network is split by DDP.
    for part in network.blocks if isinstance(network, Gpt) else (model,):
        part.compile()
    return ""


def _missing_for_compile(device: torch.device) -> str:
    """Return the missing requirement: Triton and a C compiler on a GPU, a C++ compiler on a CPU."""
    variable, compilers, language = "CXX", ["g++", "clang++"], "C++"
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) < _VOLTA:
            return f"{torch.cuda.get_device_name(device)} is too old for Triton"
        if importlib.util.find_spec("triton") is None:
            return "Triton is not installed"
        variable, compilers, language = "CC", ["gcc", "clang", "cc"], "C"
    if not any(shutil.which(name) for name in [os.environ.get(variable, ""), *compilers] if name):
        return f"there is no {language} compiler in this image"
    return ""
