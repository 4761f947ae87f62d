"""Twenty steps in float64 as jobs of one, two and four ranks: `python -m tests.trainer.ddp.equal_steps`."""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
import torch._dynamo  # else each process imports it anew
from torch import Tensor, nn

from tests.trainer.jobs import free_port
from trainer.ddp.data.samples import Samples
from trainer.ddp.data.synthetic import noise_tokens
from trainer.ddp.datasets import TrainBatches, draw_digit_images, validation_batches
from trainer.ddp.learner import Learner
from trainer.ddp.models.gpt import GptSize
from trainer.ddp.models.make import make_gpt, make_model
from trainer.ddp.step.optimizer import StepOptions
from trainer.ddp.step.parallel import ParallelOptions
from trainer.ddp.step.precision import Precision
from trainer.distributed.process_group import ProcessGroup
from trainer.ranks import Ranks

STEPS = 20
CASES: dict[str, tuple[int, str, int, dict[str, Any]]] = {
    "images-1": (1, "t9k-cnn", 32, {}),
    "images-2": (2, "t9k-cnn", 32, {}),
    "images-4": (4, "t9k-cnn", 32, {}),
    "images-accumulated": (2, "t9k-cnn", 32, {"accumulate": 4}),
    "tokens-1": (1, "gpt", 8, {"ema": 0.9, "clip_norm": 0.5}),
    "tokens-fsdp": (2, "gpt", 8, {"ema": 0.9, "clip_norm": 0.5, "accumulate": 2, "fsdp": True}),
    "tokens-ddp": (2, "gpt", 8, {"ema": 0.9, "clip_norm": 0.5}),
}
"""Ranks, network, samples a step of all ranks, and options, by name."""


def learn(case: str, rank: int, port: str) -> None:
    """Run a case on one rank; rank 0 saves weights, averages and metrics as `<case>.pt`."""
    world_size, model, batch_size, more = CASES[case]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    ranks = Ranks.from_env()
    group = ProcessGroup(ranks, torch.device("cpu"), 300)
    group.init()
    torch.manual_seed(1)
    network: nn.Module
    train: Samples
    validation: Samples
    if model == "gpt":
        network = make_gpt(GptSize(vocabulary=32, length=16, layers=2, heads=2, width=16))
        train, validation = noise_tokens(320, 16, 32, seed=1), noise_tokens(5, 16, 32, seed=2)
    else:
        network = make_model(model)
        train, validation = draw_digit_images(640, 101, seed=1)
    options = dict(more)
    parallel = ParallelOptions("fsdp" if options.pop("fsdp", False) else "ddp")
    learner = Learner(
        network, group, Precision("fp64", group.device), StepOptions(lr=1e-2, parallel=parallel, **options)
    )
    batches = TrainBatches(train, batch_size // world_size, ranks, 1)
    loss = torch.zeros(())
    for inputs, targets in islice(_all_batches(batches), STEPS):
        learner.trained_share += 0.5 / STEPS
        loss = learner.train_step(inputs, targets)
    sums = torch.zeros(3, dtype=torch.float64)
    with learner.validating():
        for inputs, targets in validation_batches(validation, 2, ranks):
            sums += learner.evaluate(inputs, targets)
    metrics = group.all_reduce_sum(torch.cat([sums, loss.reshape(1) / world_size]))
    state = learner.state_dict()
    learner.load_state_dict(state)
    again = learner.state_dict()
    if ranks.is_first:
        kept = {"model": state["model"], "averages": state.get("averages", {}), "metrics": metrics}
        kept["same"] = all(torch.equal(state["model"][name], again["model"][name]) for name in state["model"])
        kept["moments"] = state["optimizer"]["state"][0]["exp_avg"], again["optimizer"]["state"][0]["exp_avg"]
        torch.save(kept, f"{case}.pt")
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
        processes = [forking.Process(target=learn, args=(case, rank, port)) for rank in range(CASES[case][0])]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            return f"{case} has failed"
    return None


if __name__ == "__main__":
    sys.exit(main())
