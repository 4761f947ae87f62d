"""Twenty steps in float64 as jobs of one, two and four ranks: `python -m tests.trainer.ddp.equal_steps`."""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
import torch._dynamo  # else each process imports it again
from torch import Tensor, nn

from tests.trainer.jobs import free_port
from trainer.ddp.batches import TrainBatches, validation_batches
from trainer.ddp.datasets import draw_digit_images
from trainer.ddp.models import Gpt, GptSize, make_model
from trainer.ddp.samples import Samples, noise_tokens
from trainer.ddp.train_state import Precision, StepOptions, TrainState
from trainer.distributed.process_group import ProcessGroup
from trainer.ranks import Ranks

STEPS = 20
CASES: dict[str, tuple[int, str, int, dict[str, Any]]] = {
    "images-1": (1, "t9k-cnn", 32, {}),
    "images-2": (2, "t9k-cnn", 32, {}),
    "images-4": (4, "t9k-cnn", 32, {}),
    "images-accumulated": (2, "t9k-cnn", 32, {"accumulate": 4}),
    "tokens-1": (1, "gpt", 8, {"clip_norm": 0.5}),
    "tokens-2": (2, "gpt", 8, {"clip_norm": 0.5}),
}
"""Ranks, network, samples a step of all ranks, and options, by name."""


def train(case: str, rank: int, port: str) -> None:
    """Run a case on one rank; rank 0 saves weights and metrics as `<case>.pt`."""
    world_size, model, batch_size, more = CASES[case]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    ranks = Ranks.from_env()
    group = ProcessGroup(ranks, torch.device("cpu"), 300)
    group.init()
    torch.manual_seed(1)
    network: nn.Module
    training: Samples
    validation: Samples
    if model == "gpt":
        network = Gpt(GptSize(vocabulary=32, length=16, layers=2, heads=2, width=16))
        training, validation = noise_tokens(320, 16, 32, seed=1), noise_tokens(5, 16, 32, seed=2)
    else:
        network = make_model(model)
        training, validation = draw_digit_images(640, 101, seed=1)
    state = TrainState(network, group, Precision("fp64", group.device), StepOptions(lr=1e-2, **more))
    batches = TrainBatches(training, batch_size // world_size, ranks, 1)
    loss = torch.zeros(())
    for inputs, targets in islice(_all_batches(batches), STEPS):
        state.trained_fraction += 0.5 / STEPS
        loss = state.train_step(inputs, targets)
    sums = torch.zeros(3, dtype=torch.float64)
    with state.eval_mode():
        for inputs, targets in validation_batches(validation, 2, ranks):
            sums += state.evaluate(inputs, targets)
    metrics = group.all_reduce_sum(torch.cat([sums, loss.reshape(1) / world_size]))
    saved = state.state_dict()
    if ranks.is_first:
        torch.save({"model": saved["model"], "metrics": metrics}, f"{case}.pt")
    group.destroy()
    os._exit(0)  # taking torch's threads down in a fork may wait for ever


def _all_batches(batches: TrainBatches) -> Iterator[tuple[Tensor, Tensor]]:
    for epoch in range(STEPS):
        yield from batches.epoch_batches(epoch)


def main() -> str | None:
    """Run all cases, one after the other; returns which failed."""
    forking = multiprocessing.get_context("fork")  # torch is imported once for all
    for case in CASES:
        port = free_port()
        processes = [forking.Process(target=train, args=(case, rank, port)) for rank in range(CASES[case][0])]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            return f"{case} has failed"
    return None


if __name__ == "__main__":
    sys.exit(main())
