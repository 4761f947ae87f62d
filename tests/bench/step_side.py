"""One side of the comparison of steps, in a process of its own: prints its figures as a line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainer.catalogue import find
from trainer.ddp.batches import TrainBatches
from trainer.ddp.datasets import open_dataset
from trainer.ddp.train_state import Precision, mean_loss
from trainer.distributed.process_group import ProcessGroup, choose_device, retain_freed_memory, set_threads
from trainer.ranks import Ranks
from trainer.train_ddp import make_network, make_train_state

WARM_UP_STEPS = 1
"""Before the clock runs, on a processor; a GPU takes ten times as many of both."""
STEPS = 3

_IMAGES = ["--dataset", "images"]
_GPT = ["--model", "gpt", "--dataset", "sequences"]
_SIZES = {
    "cpu": {
        "resnet50": ["--model", "resnet50", *_IMAGES, "--image-size", "64", "--batch-size", "8"],
        "vgg16": ["--model", "vgg16", *_IMAGES, "--image-size", "64", "--batch-size", "4"],
        "gpt": [*_GPT, "--sequence-length", "128", "--batch-size", "8"],
    },
    "cuda": {
        "resnet50": ["--model", "resnet50", *_IMAGES, "--batch-size", "128"],
        "vgg16": ["--model", "vgg16", *_IMAGES, "--batch-size", "64"],
        "gpt": [
            *(*_GPT, "--sequence-length", "1024", "--batch-size", "16", "--vocabulary", "50304"),
            *("--layers", "12", "--heads", "12", "--width", "768"),
        ],
    },
}
"""Arguments that both sides have, by device and network; a GPU's GPT is GPT-2's smallest."""


def main(network: str, side: str) -> None:
    """Run one side: `plain`, `ours` with the options of the plain loop, or `defaults`."""
    ranks = Ranks(0, 1, 0, 1, "alone")
    device = choose_device("auto", ranks)
    set_threads(ranks)
    words = [*_SIZES[device.type][network], "--train-images", "100000", "--val-images", "2"]
    if side == "ours":
        words += ["--channels-last", "off", "--compile", "off"]
    arguments = find("ddp").parser().parse_args(words)
    group = ProcessGroup(ranks, device, 60)
    found = _plain(arguments, group) if side == "plain" else _ours(arguments, group)
    print(json.dumps(found))


def _plain(arguments: argparse.Namespace, group: ProcessGroup) -> dict[str, Any]:
    """Train as "Optimizing Model Parameters" of PyTorch's tutorials does, under the same autocast."""
    dataset = open_dataset(arguments, group)
    precision = Precision(arguments.precision, group.device)
    torch.manual_seed(0)
    model = make_network(arguments, dataset).to(group.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    loss_fn = nn.CrossEntropyLoss()
    batches = TrainBatches(dataset.train, arguments.batch_size, group.ranks, 1, dataset.loader)
    loader = batches.epoch_batches(0)

    def step() -> None:
        inputs, targets = next(loader)
        with precision.autocast():
            logits = model(inputs)
            loss = loss_fn(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return _figures(_time(step, group.device), arguments.batch_size, dataset, group, precision.name, "")


def _ours(arguments: argparse.Namespace, group: ProcessGroup) -> dict[str, Any]:
    retain_freed_memory()
    dataset = open_dataset(arguments, group)
    state, scale = make_train_state(arguments, dataset, group)
    batches = TrainBatches(dataset.train, arguments.batch_size, group.ranks, 1, dataset.loader)
    loader = batches.epoch_batches(0)

    def step() -> None:
        state.train_step(*next(loader))

    step_s = _time(step, group.device)
    layout = "channels last" if arguments.channels_last == "on" else "channels first"
    how = f"{layout}, torch.compile {'off' if state.not_compiled else 'on'}"
    found = _figures(step_s, arguments.batch_size, dataset, group, state.precision.name, how)
    found["mfu"] = scale.scalars(arguments.batch_size / step_s).get("train/mfu", 0.0)
    held: list[tuple[Tensor, Tensor]] = []
    phases: dict[str, Callable[[], object]] = {
        "data": lambda: held.append(next(loader)),
        "forward": lambda: _forward(state, *held[-1]),
        "forward and backward": lambda: state.backward(*held[-1]),
        "update": state.update,
    }
    times = _phase_times(phases, group.device)
    times["backward"] = max(0.0, times.pop("forward and backward") - times["forward"])
    whole = sum(times.values())
    found["shares"] = {name: times[name] / whole for name in ("data", "forward", "backward", "update")}
    return found


def _forward(state: Any, inputs: Tensor, targets: Tensor) -> None:
    with state.precision.autocast():
        mean_loss(state.model(state.precision.inputs(inputs)), targets)


def _figures(
    step_s: float, batch: int, dataset: Any, group: ProcessGroup, precision: str, how: str
) -> dict[str, Any]:
    units = batch * dataset.units_per_sample
    samples = "images" if dataset.unit == "images" else "sequences"
    return {
        "step_s": step_s,
        "per_s": units / step_s,
        "unit": dataset.unit,
        "batch": batch,
        "samples": samples,
        "device": group.device_name,
        "precision": precision,
        "how": how,
        "mfu": 0.0,
        "shares": {},
    }


def _time(step: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a step, the fastest of two rows of them."""
    more = 10 if device.type == "cuda" else 1
    _repeat(step, WARM_UP_STEPS * more, device)
    return min(_repeat(step, STEPS * more, device) for _ in range(2)) / (STEPS * more)


def _repeat(step: Callable[[], object], steps: int, device: torch.device) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _phase_times(phases: dict[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Return the seconds of each phase over some steps, each waited for."""
    times = dict.fromkeys(phases, 0.0)
    for _ in range(STEPS):
        for name, phase in phases.items():
            times[name] += _repeat(phase, 1, device)
    return times


if __name__ == "__main__":
    main(*sys.argv[1:])
