"""The network being trained and how one step changes it; all that a checkpoint must bring back."""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

from trainer.ddp.checkpoint import State
from trainer.distributed.process_group import ProcessGroup
from trainer.messages import TrainingError

WARM_UP_SHARE = 0.1
"""Share of the training in which the learning rate rises."""


class Learner:
    """A network, its optimizer and its learning rate on one rank, in step with the other ranks."""

    def __init__(
        self,
        network: nn.Module,
        group: ProcessGroup,
        *,
        lr: float,
        weight_decay: float,
        bf16: bool,
        seed: int,
        momentum: float = 0.0,
    ) -> None:
        self.group = group
        """The ranks whose gradients are averaged."""
        self.network = network.to(group.device)
        """The bare network."""
        self.model: nn.Module = self.network
        """The network as it is called in a step."""
        if group.backend:
            self.model = DistributedDataParallel(self.network, gradient_as_bucket_view=True)
        self._optimizer = _make_optimizer(self.network, lr, weight_decay, momentum)
        self._highest_lr = lr
        self._step = 0
        self.trained_share = 0.0
        """How much of the whole training is done, 0 to 1: sets the learning rate of the next step."""
        self._bf16 = bf16
        self._seed = seed
        torch.manual_seed(seed * 1_000_003 + group.ranks.rank)

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return self._highest_lr * lr_factor(self.trained_share)

    def train_step(self, images_B1HW: Tensor, labels_B: Tensor) -> Tensor:
        """Take one step and return this rank's mean loss, a scalar left on the device."""
        self._optimizer.zero_grad(set_to_none=True)  # first: the forward pass takes the memory
        with self._precision():
            loss = nn.functional.cross_entropy(self.model(images_B1HW), labels_B)
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = self.lr
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._step += 1
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, images_B1HW: Tensor, labels_B: Tensor) -> Tensor:
        """Sum up this batch: loss, right answers, images, as one tensor of three on the device."""
        with self._precision():
            logits_B10 = self.network(images_B1HW)
        loss = nn.functional.cross_entropy(logits_B10.float(), labels_B, reduction="sum")
        right = (logits_B10.argmax(1) == labels_B).sum()
        return torch.stack([loss, right.float(), torch.full_like(loss, len(labels_B))])

    def state_dict(self) -> State:
        """Gather what the next start needs; every rank must call this, rank 0 keeps it."""
        device = self.group.device
        mine = [torch.get_rng_state()]
        if device.type == "cuda":
            mine.append(torch.cuda.get_rng_state(device))
        return {
            "model": self.network.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": {"step": self._step, "highest_lr": self._highest_lr},
            "random": self.group.all_gather(mine),
        }

    def load_state_dict(self, state: State) -> None:
        """Bring back a `state`, also one of another number of ranks.

        Random numbers go on where they were if the ranks are the same; else they start anew.

        Raises:
            TrainingError: It belongs to another network.
        """
        try:
            self.network.load_state_dict(state["model"])
            self._check_optimizer(state["optimizer"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._step = state["schedule"]["step"]
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
            torch.manual_seed(self._seed * 1_000_003 + rank + 7919 * self._step)

    def _check_optimizer(self, saved: State) -> None:
        ours = self._optimizer.param_groups[0]
        if ("momentum" in saved["param_groups"][0]) != ("momentum" in ours):
            raise TrainingError(
                f"The checkpoint was not made with {type(self._optimizer).__name__}.",
                "--momentum chooses the optimizer: SGD, or AdamW at 0.",
                "Choose the --momentum it was made with, another --checkpoint-dir, or --resume never.",
            )

    def _precision(self) -> AbstractContextManager[object]:
        if not self._bf16:
            return nullcontext()
        return torch.autocast(self.group.device.type, torch.bfloat16)


def _make_optimizer(network: nn.Module, lr: float, weight_decay: float, momentum: float) -> Optimizer:
    """Make what takes the steps: SGD where it has a momentum, else AdamW."""
    if momentum:
        return SGD(network.parameters(), lr=lr, weight_decay=weight_decay, momentum=momentum, fused=True)
    return AdamW(network.parameters(), lr=lr, weight_decay=weight_decay, fused=True)


def lr_factor(done: float) -> float:
    """Return the factor of the highest learning rate when `done` of the training, 0 to 1, is behind.

    A linear warm-up, then a cosine.
    """
    if done < WARM_UP_SHARE:
        return 0.05 + 0.95 * done / WARM_UP_SHARE
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - WARM_UP_SHARE) / (1 - WARM_UP_SHARE))))
