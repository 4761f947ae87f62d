"""A training step beside the plain loop of PyTorch's tutorial: same network, device, precision and batch.

Runs on a GPU where there is one, at the sizes one trains there, else at sizes that a processor does in
minutes. Each side runs in a process of its own, in turn: `python -m tests.bench.step NETWORK SIDE` prints its
figures as JSON. A line below says what our own defaults do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests import ROOT
from tests.bench.figures import Figure
from trainer.catalogue import find
from trainer.ddp.batches import TrainBatches
from trainer.ddp.datasets import open_dataset
from trainer.ddp.train_state import Precision
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.runtime import choose_device, retain_freed_memory, set_threads
from trainer.ranks import Ranks
from trainer.train_ddp import make_network, make_train_state

ROUNDS = 2  # runs of each side, in turn; the fastest counts, as the least disturbed
NETWORKS = ("resnet50", "vgg16", "gpt")


def step(is_smoke: bool) -> Iterator[Figure]:
    for network in ("smoke",) if is_smoke else NETWORKS:
        ours, plain = [], []
        for _ in range(1 if is_smoke else ROUNDS):
            plain.append(_run(network, "plain"))
            ours.append(_run(network, "ours"))
        best, peer = (min(each, key=lambda run: float(run["step_s"])) for each in (ours, plain))
        defaults = _run(network, "defaults")
        work = f"step of {network}, {best['batch']} {best['samples']}, {best['precision']}"
        yield Figure(work, best["step_s"], "PyTorch's tutorial loop", peer["step_s"], ">= 1.0x")
        work = f"  our defaults: {defaults['how']}, {defaults['device']}"
        yield Figure(work, defaults["step_s"], "PyTorch's tutorial loop", peer["step_s"], "faster")


def _run(network: str, side: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.step", network, side],
        check=True, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


WARM_UP_STEPS = 1  # before the clock runs, on a processor; a GPU takes ten times as many of both
STEPS = 3

_IMAGES = ["--dataset", "images"]
_GPT = ["--model", "gpt", "--dataset", "sequences"]
_SMOKE = [
    *(*_GPT, "--sequence-length", "16", "--batch-size", "2"),
    *("--layers", "1", "--heads", "1", "--width", "16"),
]
# Arguments that both sides have, by device and network; a GPU's GPT is GPT-2's smallest
_SIZES = {
    "cpu": {
        "smoke": _SMOKE,
        "resnet50": ["--model", "resnet50", *_IMAGES, "--image-size", "64", "--batch-size", "8"],
        "vgg16": ["--model", "vgg16", *_IMAGES, "--image-size", "64", "--batch-size", "4"],
        "gpt": [*_GPT, "--sequence-length", "128", "--batch-size", "8"],
    },
    "cuda": {
        "smoke": _SMOKE,
        "resnet50": ["--model", "resnet50", *_IMAGES, "--batch-size", "128"],
        "vgg16": ["--model", "vgg16", *_IMAGES, "--batch-size", "64"],
        "gpt": [
            *(*_GPT, "--sequence-length", "1024", "--batch-size", "16", "--vocabulary", "50304"),
            *("--layers", "12", "--heads", "12", "--width", "768"),
        ],
    },
}


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
    state, _ = make_train_state(arguments, dataset, group)
    batches = TrainBatches(dataset.train, arguments.batch_size, group.ranks, 1, dataset.loader)
    loader = batches.epoch_batches(0)

    def step() -> None:
        state.train_step(*next(loader))

    layout = "channels last" if arguments.channels_last == "on" else "channels first"
    how = f"{layout}, torch.compile {'off' if state.not_compiled else 'on'}"
    return _figures(
        _time(step, group.device), arguments.batch_size, dataset, group, state.precision.name, how
    )


def _figures(
    step_s: float, batch: int, dataset: Any, group: ProcessGroup, precision: str, how: str
) -> dict[str, Any]:
    return {
        "step_s": step_s,
        "batch": batch,
        "samples": "images" if dataset.unit == "images" else "sequences",
        "device": group.device_name,
        "precision": precision,
        "how": how,
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


if __name__ == "__main__":
    main(*sys.argv[1:])
