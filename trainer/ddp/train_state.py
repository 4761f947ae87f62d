"""The network being trained, its optimizer, and one step of them."""

import argparse
import importlib
import importlib.util
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from trainer.ddp.checkpoint import State
from trainer.ddp.models import OWN_IMAGE_MODELS, Gpt
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import InvalidArguments, TrainingError

_VOLTA = (7, 0)
"""The first compute capability that Triton compiles for."""
_AMPERE = (8, 0)
"""The first compute capability with bf16 and TF32 in its tensor cores."""
_LARGEST_SCALE = 2.0**16
# A resumed run takes these from its own arguments, like the learning rate, which each step sets.
_FROM_ARGUMENTS = ("weight_decay", "momentum")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate over the training: a linear warm-up, then cosine, steps or constant."""

    name: str = "cosine"
    warm_up: float = 0.1
    """Fraction of the training, 0 to 1."""
    step_epochs: int = 1
    step_factor: float = 0.7
    epochs: int = 1

    def factor(self, done: float) -> float:
        """Return the factor of the peak learning rate after the fraction `done` of the training, 0 to 1."""
        if done < self.warm_up:
            return 0.05 + 0.95 * done / self.warm_up
        if self.name == "constant":
            return 1.0
        if self.name == "step":
            return float(self.step_factor ** (int(done * self.epochs + 1e-9) // self.step_epochs))
        left = (done - self.warm_up) / (1 - self.warm_up) if self.warm_up < 1 else 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, left)))


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Options of a training step."""

    lr: float
    weight_decay: float = 0.01
    optimizer: str = "auto"
    momentum: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    accumulate: int = 1
    clip_norm: float = 0.0
    """0 for no clipping."""
    is_channels_last: bool = False
    compile: str = "off"
    is_large: bool = False
    bucket_mb: int = 25
    static_graph: bool = False
    copy_buckets: bool = False
    seed: int = 1

    @property
    def optimizer_name(self) -> str:
        """Return `adamw` or `sgd`."""
        if self.optimizer == "auto":
            return "sgd" if self.momentum else "adamw"
        return self.optimizer


class Precision:
    """Number format of a step: autocast, the type of the weights, and the loss scaler of fp16."""

    def __init__(self, name: str, device: torch.device) -> None:
        """Choose a precision; "auto" is bf16 on GPUs that have it, else fp32.

        Raises:
            InvalidArguments: The device does not support it.
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

    def inputs(self, inputs: Tensor) -> Tensor:
        """Return floats in the type of the weights; tokens unchanged."""
        return inputs.to(self.weights) if inputs.is_floating_point() else inputs


def step_options(
    arguments: argparse.Namespace, precision: Precision, device: torch.device, *, is_image: bool
) -> StepOptions:
    """Return the options of the command line, with `auto` resolved if it depends on the device."""
    is_16_bit = device.type == "cuda" and precision.name in ("bf16", "fp16")
    channels_last = is_16_bit if arguments.channels_last == "auto" else arguments.channels_last == "on"
    return StepOptions(
        lr=arguments.lr,
        weight_decay=arguments.weight_decay,
        optimizer=arguments.optimizer,
        momentum=arguments.momentum,
        schedule=Schedule(
            arguments.schedule, arguments.warmup, arguments.step_epochs, arguments.gamma, arguments.epochs
        ),
        accumulate=arguments.accumulate,
        clip_norm=arguments.clip_norm,
        is_channels_last=channels_last and is_image,
        compile=arguments.compile,
        is_large=arguments.model not in OWN_IMAGE_MODELS,
        bucket_mb=arguments.bucket_mb,
        static_graph=arguments.static_graph,
        copy_buckets=arguments.copy_buckets,
        seed=arguments.seed,
    )


class TrainState:
    """A network, its optimizer and its learning rate on one rank, in step with the other ranks."""

    def __init__(
        self, network: nn.Module, group: ProcessGroup, precision: Precision, options: StepOptions
    ) -> None:
        self.group = group
        self.options = options
        self.precision = precision
        self.network = network.to(group.device, precision.weights)
        if options.is_channels_last:
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # The network as a step calls it: in DDP, and perhaps compiled.
        self.model = wrap_ddp(self.network, group, options)
        self.not_compiled = compile_model(self.model, self.network, options, group.device)
        """Reason why torch.compile is not used; empty if it is."""
        self.optimizer = make_optimizer(self.network, options)
        self._step = 0
        self._sums_in_order = not reorders_sums(self.model, group)
        self.trained_fraction = 0.0
        """Fraction of the whole training that is done, 0 to 1; sets the learning rate of the next step."""
        torch.manual_seed(options.seed * 1_000_003 + group.ranks.rank)

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return self.options.lr * self.options.schedule.factor(self.trained_fraction)

    def train_step(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Take one step and return this rank's mean loss, a scalar left on the device."""
        self.optimizer.zero_grad(set_to_none=True)  # first: the forward pass reuses the memory
        if not self._sums_in_order:
            self._warm_up_ddp(inputs_B, targets_B)
        loss = self.backward(inputs_B, targets_B)
        self.update()
        return loss

    def backward(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Run forward and backward over all accumulated batches; the last averages gradients over ranks.

        Returns:
            This rank's mean loss.
        """
        count = self.options.accumulate
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
        for _ in range(2 if self.options.static_graph else 1):
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
        if self.options.clip_norm:
            scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip_norm)
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
        device = self.group.device
        random = [torch.get_rng_state()]
        if device.type == "cuda":
            random.append(torch.cuda.get_rng_state(device))
        state = {
            "model": dict(self.network.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedule": {"step": self._step, "highest_lr": self.options.lr},
            "random": self.group.all_gather(random),
        }
        if self.precision.scaler.is_enabled():
            state["scaler"] = self.precision.scaler.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore a checkpoint, also one of another number of ranks.

        Random numbers continue if the number of ranks is the same; otherwise each rank gets a new seed.

        Raises:
            TrainingError: The checkpoint is of another network or optimizer.
        """
        own = self.optimizer.param_groups[0]
        own = {name: own[name] for name in _FROM_ARGUMENTS if name in own}
        try:
            self.network.load_state_dict(state["model"])
            if ("momentum" in state["optimizer"]["param_groups"][0]) != ("momentum" in own):
                raise TrainingError(
                    f"The checkpoint was not made with {type(self.optimizer).__name__}.",
                    now="Choose the --optimizer and --momentum it was made with, another --checkpoint-dir,"
                    " or --resume never.",
                )
            self.optimizer.load_state_dict(state["optimizer"])
            for parameters in self.optimizer.param_groups:
                parameters |= own
            self._step = state["schedule"]["step"]
            if self.precision.scaler.is_enabled() and "scaler" in state:
                self.precision.scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainingError(
                "The checkpoint does not fit the network.",
                now="Choose the --model it was made with, another --checkpoint-dir, or --resume never.",
            ) from error
        random: list[list[Tensor]] = state["random"]
        rank = self.group.ranks.rank
        if len(random) == self.group.ranks.world_size:
            torch.set_rng_state(random[rank][0])
            if self.group.device.type == "cuda" and len(random[rank]) > 1:
                torch.cuda.set_rng_state(random[rank][1], self.group.device)
        else:
            torch.manual_seed(self.options.seed * 1_000_003 + rank + 7919 * self._step)

    def _prepare(self, inputs: Tensor) -> Tensor:
        inputs = self.precision.inputs(inputs)
        if self.options.is_channels_last and inputs.dim() == 4:
            return inputs.contiguous(memory_format=torch.channels_last)
        return inputs


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of logits (B, K) and classes (B,), or (B, T, K) and tokens (B, T)."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def make_optimizer(network: nn.Module, options: StepOptions) -> torch.optim.Optimizer:
    """Return the optimizer that `options` name, in its fused implementation."""
    weights = network.parameters()
    if options.optimizer_name == "sgd":
        return torch.optim.SGD(
            weights, options.lr, options.momentum, weight_decay=options.weight_decay, fused=True
        )
    return torch.optim.AdamW(weights, options.lr, weight_decay=options.weight_decay, fused=True)


def wrap_ddp(network: nn.Module, group: ProcessGroup, options: StepOptions) -> nn.Module:
    """Return `network` in DistributedDataParallel; `network` itself if the process is alone."""
    if not group.backend:
        return network
    return DistributedDataParallel(
        network,
        bucket_cap_mb=options.bucket_mb,
        gradient_as_bucket_view=not options.copy_buckets,
        static_graph=options.static_graph,
    )


def reorders_sums(model: nn.Module, group: ProcessGroup) -> bool:
    """Return True if the first step would sum the ranks' gradients in another order than the steps after it.

    With three or more ranks, gloo's order depends on the position of a gradient in DDP's buckets, and DDP
    rebuilds these after the first backward pass. A resumed run would differ in the last bits.
    """
    is_ddp = isinstance(model, DistributedDataParallel)
    return is_ddp and group.ranks.world_size > 2 and group.device.type == "cpu"


def compile_model(model: nn.Module, network: nn.Module, options: StepOptions, device: torch.device) -> str:
    """Compile in place if the options say so, and return the reason if not; "" if compiled.

    A GPT is compiled block by block, so that its gradients are sent while earlier blocks are still computed;
    for other networks DDP splits the compiled graph.

    Args:
        model: The network as a step calls it.
        network: The network inside.
        options: `compile` auto means on for a large network on a GPU where it can work.
        device: Where the network is.

    Raises:
        InvalidArguments: `compile` is on and cannot work here.
    """
    why = "as chosen" if options.compile == "off" else _missing_for_compile(device)
    if options.compile == "on" and why:
        raise InvalidArguments(f"--compile on: {why}.", now="Use --compile off.")
    if options.compile == "auto" and not why and not (device.type == "cuda" and options.is_large):
        why = "it would take longer than it saves"
    if why:
        return why
    if options.static_graph:
        # DDP's splitting needs a graph that may change. The import takes a second, so only here.
        importlib.import_module("torch._dynamo").config.optimize_ddp = False
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
