"""The network being trained and how one step changes it; all that a checkpoint must bring back."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.ddp.checkpoint import State
from trainer.ddp.step.averaged_weights import AveragedWeights
from trainer.ddp.step.compiling import compile_network
from trainer.ddp.step.optimizer import StepOptions, make_optimizer
from trainer.ddp.step.parallel import make_parallel, parts_like, reorders_sums, whole, without_sync
from trainer.ddp.step.precision import Precision
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import TrainingError

_CHOSEN = ("weight_decay", "momentum")
"""What a run that goes on has from its own arguments, as it has the learning rate, which each step sets."""


class Learner:
    """A network, its optimizer and its learning rate on one rank, in step with the other ranks."""

    def __init__(
        self, network: nn.Module, group: ProcessGroup, precision: Precision, options: StepOptions
    ) -> None:
        self.group = group
        """The ranks whose gradients are averaged."""
        self.options = options
        """How a step changes the network."""
        self.precision = precision
        """What it computes with."""
        self.network = network.to(group.device, precision.weights)
        """The bare network."""
        if options.is_channels_last:
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model = make_parallel(self.network, group, options.parallel)
        """The network as it is called in a step."""
        self.not_compiled = compile_network(self.model, self.network, options, group.device)
        """Why torch.compile is not used; "" if it is."""
        self._optimizer = make_optimizer(self.network.parameters(), options)
        group_of_weights = self._optimizer.param_groups[0]
        self._chosen = {name: group_of_weights[name] for name in _CHOSEN if name in group_of_weights}
        self._averages = AveragedWeights(self.network, options.ema) if options.ema else None
        self._step = 0
        self._sums_in_order = not reorders_sums(self.model, group)
        self.trained_share = 0.0
        """How much of the whole training is done, 0 to 1: sets the learning rate of the next step."""
        torch.manual_seed(options.seed * 1_000_003 + group.ranks.rank)

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return self.options.lr * self.options.schedule.factor(self.trained_share)

    def train_step(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Take one step and return this rank's mean loss, a scalar left on the device."""
        self._optimizer.zero_grad(set_to_none=True)  # first: the forward pass takes the memory
        if not self._sums_in_order:
            self._settle_order(inputs_B, targets_B)
        loss = self.add_gradients(inputs_B, targets_B)
        self.update()
        return loss

    def add_gradients(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Run forward and backward, in as many parts as are accumulated; the last joins the ranks' gradients.

        Returns:
            This rank's mean loss.
        """
        parts = self.options.accumulate
        total = torch.zeros((), device=self.group.device)
        pairs = list(zip(inputs_B.chunk(parts), targets_B.chunk(parts), strict=True))
        for number, (inputs, targets) in enumerate(pairs, 1):
            with without_sync(self.model, is_last=number == len(pairs)):
                with self.precision.autocast():
                    loss = mean_loss(self.model(self._prepared(inputs)), targets)
                share = len(targets) / len(targets_B)
                self.precision.scaler.scale(loss * share if share < 1 else loss).backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach() * share
        return total

    def _settle_order(self, inputs_B: Tensor, targets_B: Tensor) -> None:
        """Let DDP see backward passes that change nothing, so that the first step sums as all others do."""
        buffers = [buffer.clone() for buffer in self.network.buffers()]
        random = torch.get_rng_state()
        for _ in range(2 if self.options.parallel.is_static_graph else 1):
            self.add_gradients(inputs_B, targets_B)
            self._optimizer.zero_grad(set_to_none=True)
        torch.set_rng_state(random)
        for buffer, before in zip(self.network.buffers(), buffers, strict=True):
            buffer.copy_(before)
        self._sums_in_order = True

    def update(self) -> None:
        """Change the weights by the gradients; those that fp16 could not hold are left out."""
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = self.lr
        scaler = self.precision.scaler
        if self.options.clip_norm:
            scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip_norm)
        scaler.step(self._optimizer)
        scaler.update()
        if self._averages is not None:
            self._averages.update()
        self._step += 1

    @contextmanager
    def validating(self) -> Iterator[None]:
        """Have `evaluate` judge what is kept: the averaged weights if there are, and rank 0's buffers."""
        self.model.eval()
        if self.group.backend:
            for buffer in self.network.buffers():
                dist.broadcast(buffer, src=0)
        with self._averages.in_place() if self._averages is not None else nullcontext():
            yield
        self.model.train()

    @torch.no_grad()
    def evaluate(self, inputs_B: Tensor, targets_B: Tensor) -> Tensor:
        """Sum up this batch: loss, right answers, targets, as one tensor of three on the device, float64."""
        with self.precision.autocast():
            logits = self.network(self._prepared(inputs_B)).flatten(0, -2)
        targets_N = targets_B.flatten()
        loss = nn.functional.cross_entropy(logits.to(self.precision.weights), targets_N, reduction="sum")
        right = (logits.argmax(1) == targets_N).sum()
        return torch.stack([loss.double(), right.double(), torch.full_like(loss, len(targets_N)).double()])

    def weights(self) -> State:
        """Gather the weights that were validated, alone; every rank must call this."""
        with self._averages.in_place() if self._averages is not None else nullcontext():
            return {name: each.clone() for name, each in whole(dict(self.network.state_dict())).items()}

    def state_dict(self) -> State:
        """Gather what the next start needs; every rank must call this, rank 0 keeps it."""
        device = self.group.device
        mine = [torch.get_rng_state()]
        if device.type == "cuda":
            mine.append(torch.cuda.get_rng_state(device))
        state = {
            "model": whole(dict(self.network.state_dict())),
            "optimizer": whole(self._optimizer.state_dict()),
            "schedule": {"step": self._step, "highest_lr": self.options.lr},
            "random": self.group.all_gather(mine),
        }
        if self._averages is not None:
            state["averages"] = {"weights": whole(self._averages.weights), "steps": self._averages.steps}
        if self.precision.scaler.is_enabled():
            state["scaler"] = self.precision.scaler.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Bring back a `state`, also one of another number of ranks.

        Random numbers go on where they were if the ranks are the same; else they start anew.

        Raises:
            TrainingError: It belongs to another network.
        """
        try:
            own = self.network.state_dict()
            self.network.load_state_dict(
                {name: parts_like(full, own.get(name, full)) for name, full in state["model"].items()}
            )
            self._check_optimizer(state["optimizer"])
            self._optimizer.load_state_dict(self._optimizer_parts(state["optimizer"]))
            for parameters in self._optimizer.param_groups:
                parameters |= self._chosen
            self._step = state["schedule"]["step"]
            if self._averages is not None and "averages" in state:
                self._averages.load(state["averages"]["weights"], state["averages"]["steps"])
            elif self._averages is not None:
                self._averages.start_from_weights()
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

    def _check_optimizer(self, saved: State) -> None:
        ours = self._optimizer.param_groups[0]
        if ("momentum" in saved["param_groups"][0]) != ("momentum" in ours):
            raise TrainingError(
                f"The checkpoint was not made with {type(self._optimizer).__name__}.",
                now="Choose the --optimizer and --momentum it was made with, another --checkpoint-dir,"
                " or --resume never.",
            )

    def _optimizer_parts(self, whole_state: dict[str, Any]) -> dict[str, Any]:
        """Return an optimizer's state with this rank's part of each tensor that is as large as its weight."""
        weights = list(self.network.parameters())
        state = copy.copy(whole_state)
        state["state"] = {
            index: {
                name: parts_like(value, weights[index])
                if isinstance(value, Tensor) and value.shape == weights[index].shape and value.dim()
                else value
                for name, value in of_weight.items()
            }
            for index, of_weight in whole_state["state"].items()
        }
        return state

    def _prepared(self, inputs: Tensor) -> Tensor:
        inputs = self.precision.inputs(inputs)
        if self.options.is_channels_last and inputs.dim() == 4:
            return inputs.contiguous(memory_format=torch.channels_last)
        return inputs


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of logits (B, K) with classes (B,), or (B, T, K) with tokens (B, T)."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
