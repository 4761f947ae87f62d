"""One benchmark from its arguments to its exit status."""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from trainer.benchmark.networks import make_network, random_batch
from trainer.benchmark.report import head_lines, iteration_line, result_lines
from trainer.distributed.curves import CurveWriter
from trainer.distributed.exit_status import run_to_exit_status
from trainer.distributed.folders import check_folder
from trainer.distributed.process_group import ProcessGroup, choose_device, keep_freed_memory, set_threads
from trainer.messages import InvalidArguments, log
from trainer.ranks import Ranks
from trainer.signals import StopRequest

LEARNING_RATE_PER_RANK = 0.01
"""As Horovod's: the more ranks, the larger the batch, the longer the step."""

_MEMORY_FULL = "Choose a smaller --batch-size."


def run(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Measure as the command line says; returns the exit status."""
    return run_to_exit_status(lambda: measure(arguments), stop, memory_full=_MEMORY_FULL)


def measure(arguments: argparse.Namespace) -> None:
    """Set up, measure, and say the figures.

    Raises:
        TrainingError: It could not be done; on all ranks if the others would wait.
    """
    ranks = _ranks(arguments)
    device = choose_device("cpu" if arguments.no_cuda else "auto", ranks)
    threads = set_threads(ranks)
    keep_freed_memory()
    torch.backends.cudnn.benchmark = True
    group = ProcessGroup(ranks, device, arguments.wait_for_others, arguments.backend)
    try:
        group.init()
        folder = group.run_on_rank0(lambda: _log_folder(arguments.log_dir))
        step = _make_step(arguments, group)
        if ranks.is_first:
            log(
                f"device {group.device_name}, backend {group.backend or 'none'},"
                f" world size {ranks.world_size}, threads {threads}"
            )
            if folder is not None:
                log(f"event files in {folder.resolve()}")
        curves = CurveWriter(folder) if folder is not None and ranks.is_first else None
        try:
            _measure(arguments, group, step, curves)
        finally:
            if curves is not None:
                curves.close()
    finally:
        group.destroy()


def _ranks(arguments: argparse.Namespace) -> Ranks:
    """Read the ranks; where they meet is as good in an argument as in the environment."""
    given = {"MASTER_ADDR": arguments.master_addr, "MASTER_PORT": str(arguments.master_port or "")}
    given = {name: value for name, value in given.items() if value}
    ranks = Ranks.from_env({**os.environ, **given})
    if given and ranks.launcher == "torchrun":
        raise InvalidArguments(
            "--master-addr and --master-port are for mpirun; torchrun has its own.",
            now="Give them to torchrun, before the trainer.",
        )
    os.environ |= given
    return ranks


def _log_folder(name: str) -> Path | None:
    if not name:
        return None
    check_folder("--log-dir", Path(name), may_be_full=True)
    return Path(name)


def _make_step(arguments: argparse.Namespace, group: ProcessGroup) -> Callable[[], None]:
    """Make the step to measure: forward, backward with the gradients of all ranks averaged, and update."""
    torch.manual_seed(0)
    network, size = group.run_on_all(lambda: make_network(arguments.model))
    network.to(group.device)
    model: nn.Module = network
    if group.backend:
        distributed = DistributedDataParallel(network, gradient_as_bucket_view=True)
        if arguments.fp16_allreduce:
            distributed.register_comm_hook(None, fp16_compress_hook)
        model = distributed
    learning_rate = LEARNING_RATE_PER_RANK * group.ranks.world_size
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
    images_B3HW, labels_B = random_batch(arguments.batch_size, size, group.device)

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images_B3HW), labels_B)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _measure(
    arguments: argparse.Namespace, group: ProcessGroup, step: Callable[[], None], curves: CurveWriter | None
) -> None:
    ranks = group.ranks
    device = "CPU" if group.device.type == "cpu" else "GPU"
    say = log if ranks.is_first else _say_nothing
    for line in head_lines(arguments.model, arguments.batch_size, ranks.world_size, device):
        say(line)
    say("Running warmup...")
    _time(step, arguments.num_warmup_batches, group.device)
    say("Running benchmark...")
    measured = []
    for iteration in range(arguments.num_iters):
        seconds = _time(step, arguments.num_batches_per_iter, group.device)
        img_per_sec = arguments.batch_size * arguments.num_batches_per_iter / seconds
        measured.append(img_per_sec)
        say(iteration_line(iteration, img_per_sec, device))
        if curves is not None:
            curves.write(
                iteration,
                {
                    "benchmark/img_per_sec": img_per_sec,
                    "benchmark/total_img_per_sec": img_per_sec * ranks.world_size,
                },
            )
    for line in result_lines(measured, ranks.world_size, device):
        say(line)


def _time(step: Callable[[], None], batches: int, device: torch.device) -> float:
    """Return the seconds that so many steps take, until the GPU has done them."""
    started = time.perf_counter()
    for _ in range(batches):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def _say_nothing(_line: str) -> None:
    pass
