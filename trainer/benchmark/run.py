"""One benchmark, from its arguments to its exit status."""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import fmean

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from trainer.benchmark.report import (
    AllReduce,
    Result,
    bandwidth_lines,
    head_lines,
    iteration_line,
    read_versions,
    result_lines,
    scaling_line,
    versions_line,
)
from trainer.distributed.outputs import CurveWriter, check_file, check_folder, write_atomically
from trainer.distributed.process_group import ProcessGroup
from trainer.distributed.runtime import (
    choose_device,
    import_torchvision,
    retain_freed_memory,
    run_to_exit_status,
    set_threads,
)
from trainer.messages import InvalidArguments, log
from trainer.ranks import Ranks
from trainer.signals import StopRequest

CLASSES = 1000
# Of the messages of all-reduce: the smallest, and the factor from one to the next.
SMALLEST_BYTES = 1 << 10
GROWTH = 4
# Default size of the largest message.
LARGEST_MIB_ON_GPU, LARGEST_MIB_ON_CPU = 256, 16
MEASURED_S = 0.2
# Most all-reduces of one size, after the warm-up.
MOST_TIMES = 100


def make_network(name: str) -> tuple[nn.Module, int]:
    """Return a network that turns images_B3HW into logits_BC, and H, which is also W."""
    if name == "tiny":
        return tiny(), 32
    network: nn.Module = getattr(import_torchvision("models", "--model tiny"), name)()
    return network, 224


def tiny() -> nn.Module:
    """Return a network of 17,000 weights, for trying out a launcher."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=4),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


# As Horovod's: the learning rate grows with the global batch.
LEARNING_RATE_PER_RANK = 0.01

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TrainStep:
    """A step of a network on one batch of noise; of this rank alone until `distribute`."""

    def __init__(self, arguments: argparse.Namespace, ranks: int, device: torch.device) -> None:
        """Make the network and the batch on `device`.

        Raises:
            InvalidArguments: The device does not support the precision.
            TrainingError: torchvision is not installed.
        """
        precision = arguments.precision
        _choose_precision(precision, device)
        torch.manual_seed(0)
        self._network, size = make_network(arguments.model)
        self._network.to(device)
        self._model: nn.Module = self._network
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=LEARNING_RATE_PER_RANK * ranks)
        self._images_B3HW = torch.randn(arguments.batch_size, 3, size, size, device=device)
        self._labels_B = torch.randint(CLASSES, (arguments.batch_size,), device=device)
        self._device, self._dtype = device, _AUTOCAST.get(precision)
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def distribute(self, *, fp16_allreduce: bool) -> None:
        """Average the gradients of all ranks from now on; every rank must call this."""
        distributed = DistributedDataParallel(self._network, gradient_as_bucket_view=True)
        if fp16_allreduce:
            distributed.register_comm_hook(None, fp16_compress_hook)
        self._model = distributed

    def __call__(self) -> None:
        """Take a step; a GPU may still be computing when it returns."""
        self._optimizer.zero_grad()
        with self._autocast():
            loss = nn.functional.cross_entropy(self._model(self._images_B3HW), self._labels_B)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def _autocast(self) -> AbstractContextManager[object]:
        return nullcontext() if self._dtype is None else torch.autocast(self._device.type, self._dtype)


def _choose_precision(name: str, device: torch.device) -> None:
    if name in ("fp16", "tf32") and device.type == "cpu":
        raise InvalidArguments(
            f"--precision {name}: it needs a GPU, and this rank runs on the CPU.",
            now="Use --precision fp32 or bf16.",
        )
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"


# Most measurements of one rank alone.
ITERATIONS_ALONE = 3


def run(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Measure as the command line asks and return the exit status."""
    advice = "Choose a smaller --batch-size."
    return run_to_exit_status(lambda: measure(arguments), stop, memory_full=advice)


def measure(arguments: argparse.Namespace) -> None:
    """Set up, measure, and print the figures.

    Raises:
        TrainingError: Measuring cannot start or go on; raised on all ranks if the others would wait.
    """
    ranks = Ranks.from_env()
    device = choose_device("cpu" if arguments.no_cuda else "auto", ranks)
    threads = set_threads(ranks)
    retain_freed_memory()
    torch.backends.cudnn.benchmark = True
    group = ProcessGroup(ranks, device, arguments.wait_for_others, arguments.backend)
    try:
        group.init()
        folder = group.run_on_rank0(lambda: _check_files(arguments))
        versions = group.run_on_rank0(read_versions)
        step = group.run_on_all(lambda: TrainStep(arguments, ranks.world_size, device))
        say: Callable[[str], None] = log if ranks.is_first else lambda _: None
        say(
            f"device {group.device_name}, precision {arguments.precision}, backend {group.backend or 'none'},"
            f" world size {ranks.world_size}, threads {threads}"
        )
        if folder is not None:
            say(f"event files in {folder.resolve()}")
        say(versions_line(versions))
        curves = CurveWriter(folder) if folder is not None and ranks.is_first else None
        try:
            result = Benchmark(arguments, group, step, curves, say).run(versions)
        finally:
            if curves is not None:
                curves.close()
        if arguments.json:
            group.run_on_rank0(lambda: _write_json(Path(arguments.json), result))
    finally:
        group.destroy()


def _check_files(arguments: argparse.Namespace) -> Path | None:
    if arguments.json:
        check_file("--json", Path(arguments.json))
    if not arguments.log_dir:
        return None
    check_folder("--log-dir", Path(arguments.log_dir), may_be_full=True)
    return Path(arguments.log_dir)


def _write_json(path: Path, result: Result) -> None:
    text = json.dumps(result.to_json(), indent=2) + "\n"
    write_atomically("--json", path, lambda file: file.write(text.encode()))
    log(f"result in {path.resolve()}")


class Benchmark:
    """The measurements, in sequence; every rank takes part, and rank 0 prints them."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        group: ProcessGroup,
        step: TrainStep,
        curves: CurveWriter | None,
        say: Callable[[str], None],
    ) -> None:
        self._arguments = arguments
        self._group = group
        self._step = step
        self._curves = curves
        self._say = say
        self._unit = "CPU" if group.device.type == "cpu" else "GPU"

    def run(self, versions: dict[str, str]) -> Result:
        """Measure one rank alone, then all together, then all-reduce."""
        arguments, group = self._arguments, self._group
        has_more = bool(group.backend) and not arguments.throughput_only
        alone = group.run_on_rank0(self._measure_alone) if has_more else 0.0
        if group.backend:
            self._step.distribute(fp16_allreduce=arguments.fp16_allreduce)
        img_per_sec = self._measure_together()
        found = measure_all_reduce(group, arguments.allreduce_mib) if has_more else []
        for line in bandwidth_lines(found):
            self._say(line)
        hosts = group.all_gather((group.ranks.is_first_here, group.ranks.local_world_size))
        result = Result(
            model=arguments.model,
            batch_size=arguments.batch_size,
            precision=arguments.precision,
            ranks_by_host=[size for is_first, size in hosts if is_first],
            unit=self._unit,
            device=group.device_name,
            backend=group.backend,
            versions=versions,
            img_per_sec=img_per_sec,
            img_per_sec_of_one=alone,
            all_reduce=found,
        )
        if alone:
            self._say(scaling_line(result))
            self._write(0, {"benchmark/scaling_efficiency": result.scaling_efficiency})
        for each in found:
            self._write(each.size_bytes, {"benchmark/allreduce_bus_gb_per_s": each.bus_gb_per_s})
        return result

    def _measure_alone(self) -> float:
        arguments = self._arguments
        self._say(f"Measuring one {self._unit} alone, to compare with...")
        self._time(arguments.num_warmup_batches)
        iterations = min(ITERATIONS_ALONE, arguments.num_iters)
        return fmean(self._measure_iteration() for _ in range(iterations))

    def _measure_together(self) -> list[float]:
        arguments, ranks = self._arguments, self._group.ranks.world_size
        for line in head_lines(arguments.model, arguments.batch_size, ranks, self._unit):
            self._say(line)
        self._say("Running warmup...")
        self._time(arguments.num_warmup_batches)
        self._say("Running benchmark...")
        measured = []
        for iteration in range(arguments.num_iters):
            img_per_sec = self._measure_iteration()
            measured.append(img_per_sec)
            self._say(iteration_line(iteration, img_per_sec, self._unit))
            values = {"img_per_sec": img_per_sec, "total_img_per_sec": img_per_sec * ranks}
            self._write(iteration, {f"benchmark/{name}": value for name, value in values.items()})
        for line in result_lines(measured, ranks, self._unit):
            self._say(line)
        return measured

    def _measure_iteration(self) -> float:
        batches = self._arguments.num_batches_per_iter
        return float(self._arguments.batch_size * batches / self._time(batches))

    def _time(self, batches: int) -> float:
        started = time.perf_counter()
        for _ in range(batches):
            self._step()
        if self._group.device.type == "cuda":
            torch.cuda.synchronize(self._group.device)
        return time.perf_counter() - started

    def _write(self, step: int, values: dict[str, float]) -> None:
        if self._curves is not None:
            self._curves.write(step, values)


def measure_all_reduce(group: ProcessGroup, largest_mib: int = 0) -> list[AllReduce]:
    """Measure with growing messages; every rank must call this. Empty for a lone rank."""
    ranks = group.ranks.world_size
    if ranks == 1:
        return []
    mib = largest_mib or (LARGEST_MIB_ON_CPU if group.device.type == "cpu" else LARGEST_MIB_ON_GPU)
    numbers = torch.zeros(mib << 18, dtype=torch.float32, device=group.device)
    found = []
    size_bytes = SMALLEST_BYTES
    while size_bytes <= mib << 20:
        message = numbers[: size_bytes // 4]
        _time(group, message, 1)
        one_s = _time(group, message, 1)
        times = max(1, min(MOST_TIMES, int(MEASURED_S / one_s)))
        found.append(AllReduce(size_bytes, _time(group, message, times) / times, ranks))
        size_bytes *= GROWTH
    return found


def _time(group: ProcessGroup, message: torch.Tensor, times: int) -> float:
    group.all_reduce_max(0)
    started = time.perf_counter()
    for _ in range(times):
        group.all_reduce_sum(message)
    if group.device.type == "cuda":
        torch.cuda.synchronize(group.device)
    return max(1e-9, group.all_reduce_max(time.perf_counter() - started))
