"""Speed of training: times of the steps between two progress lines, throughput, and MFU."""

import contextlib
import copy
import importlib
import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from trainer.ddp.models import Gpt
from trainer.distributed.process_group import ProcessGroup

# On a GPU, DDP waits for a step to measure its communication.
MOST_OFTEN_STEPS = 10
_FLOPS_BATCH = 2  # two samples: batch normalization cannot train on one

# Dense tensor-core figures with fp32 accumulation; those published "with sparsity" are halved.
# Sources: NVIDIA's data sheets and architecture whitepapers.
_PEAK_TERAFLOPS = (
    # name, as the driver gives it              bf16   fp16   tf32   fp32
    (r"B200\b", 2250, 2250, 1125, 75),
    (r"H20\b", 148, 148, 74, 44),
    (r"H[12]00 NVL", 835, 835, 417, 60),
    (r"(H100|H800) PCIe", 756, 756, 378, 51),
    (r"(H100|H200|H800|GH200)\b", 989, 989, 494, 67),
    (r"(A100|A800)\b", 312, 312, 156, 19.5),
    (r"A30\b", 165, 165, 82, 10.3),
    (r"A40\b", 149.7, 149.7, 74.8, 37.4),
    (r"A10\b", 125, 125, 62.5, 31.2),
    (r"L40S\b", 362, 362, 183, 91.6),
    (r"L40\b", 181, 181, 90.5, 90.5),
    (r"L20\b", 119.5, 119.5, 59.8, 59.8),
    (r"L4\b", 121, 121, 60, 30.3),
    (r"V100-SXM", 0, 125, 0, 15.7),
    (r"V100-PCIE", 0, 112, 0, 14),
    (r"T4\b", 0, 65, 0, 8.1),
    (r"RTX 4090\b(?! D)", 165.2, 165.2, 82.6, 82.6),
    (r"RTX 3090\b(?! Ti)", 71, 71, 35.6, 35.6),
)
_COLUMNS = {"bf16": 1, "fp16": 2, "tf32": 3, "fp32": 4}

READ_EVERY_S = 1.0  # a reading takes milliseconds, and NVML averages over about a second
FIELDS = ("utilization_percent", "memory_used_gib", "power_w", "temperature_c")
_NOTHING = [math.nan] * len(FIELDS)

T = TypeVar("T")


class GpuTelemetry:
    """One GPU in NVML."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._handle, self._clock = nvml, handle, clock
        self._next_s = -math.inf

    def read(self) -> list[float]:
        """Return the `FIELDS`; NaN for those this GPU does not have, and for all of them within a second."""
        if self._clock() < self._next_s:
            return list(_NOTHING)
        self._next_s = self._clock() + READ_EVERY_S
        nvml, handle = self._nvml, self._handle
        queries: tuple[Callable[[], float], ...] = (
            lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30,
            lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        )
        found = list(_NOTHING)
        for at, query in enumerate(queries):
            with contextlib.suppress(nvml.NVMLError):
                found[at] = float(query())
        return found


def open_telemetry(device: torch.device, say: Callable[[str], None]) -> GpuTelemetry | None:
    """Open telemetry of a GPU; None on a CPU, or if NVML is missing, which `say` reports."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return telemetry_of(str(getattr(properties, "uuid", "")), bus_id_of(properties), say)


def bus_id_of(properties: Any) -> str:
    """Return the PCI bus ID of a GPU as NVML writes it; "" if this torch does not have it."""
    try:
        domain, bus, number = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        return ""
    return f"{domain:08X}:{bus:02X}:{number:02X}.0"


def telemetry_of(uuid: str, bus_id: str, say: Callable[[str], None]) -> GpuTelemetry | None:
    """Open telemetry by UUID or bus ID; numbers would differ if CUDA_VISIBLE_DEVICES is set."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package of that name on PyPI calls itself deprecated
            nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        say("no GPU telemetry: pynvml is not installed (pip install nvidia-ml-py)")
        return None
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError, OSError) as error:
        say(f"no GPU telemetry: NVML does not start ({error})")
        return None
    for find, name in (
        (nvml.nvmlDeviceGetHandleByUUID, f"GPU-{uuid.removeprefix('GPU-')}" if uuid else ""),
        (nvml.nvmlDeviceGetHandleByPciBusId, bus_id),
    ):
        with contextlib.suppress(nvml.NVMLError):
            if name:
                return GpuTelemetry(nvml, find(name))
    say(f"no GPU telemetry: NVML does not know the GPU {uuid or bus_id or 'of this rank'}")
    return None


@dataclass(frozen=True, slots=True)
class StepStats:
    """Means over the steps since the last progress line and over the ranks."""

    loss: float
    own_loss: float  # loss of this rank alone
    step_s: float
    wait_s: float  # time without samples, part of `step_s`
    communication_s: float  # of the gradient exchange in the last step that DDP measured; NaN without DDP
    exposed_s: float  # the part of `communication_s` after the backward pass
    gpus: dict[int, list[float]]  # readings of NVML by rank, in the order of `FIELDS`
    own_wait_s: float  # `wait_s` of this rank alone

    def text(self, *, is_own: bool = False) -> str:
        """Return the times for the end of a progress line: `wait 0.3ms step 41.0ms comm 12.1ms`."""
        # By its own wait the console names a rank that holds up others.
        wait_s = self.own_wait_s if is_own else self.wait_s
        text = f"wait {wait_s * 1000:.1f}ms step {self.step_s * 1000:.1f}ms"
        return text if math.isnan(self.exposed_s) else f"{text} comm {self.exposed_s * 1000:.1f}ms"

    @property
    def scalars(self) -> dict[str, float]:
        """Points of the curves, by tag."""
        seconds = self.wait_s, self.step_s, self.communication_s, self.exposed_s
        names = "wait", "step", "communication", "communication_exposed"
        times = {f"time/{name}_ms": 1000 * each for name, each in zip(names, seconds, strict=True)}
        for rank, values in self.gpus.items():
            times |= {f"gpu/rank{rank}/{field}": value for field, value in zip(FIELDS, values, strict=True)}
        return {tag: value for tag, value in times.items() if not math.isnan(value)}


class StepTimer:
    """Measures the steps from one progress line to the next."""

    def __init__(
        self,
        model: nn.Module,
        group: ProcessGroup,
        telemetry: GpuTelemetry | None,
        log_every: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare to measure; every rank must call this, with the telemetry of its own GPU."""
        self._group, self._telemetry, self._clock = group, telemetry, clock
        self._has_telemetry = bool(group.all_reduce_max(telemetry is not None))
        self._ddp = next(
            (each for each in model.modules() if isinstance(each, DistributedDataParallel)), None
        )
        if self._ddp is not None:
            every = max(log_every, MOST_OFTEN_STEPS)
            self._ddp._set_ddp_runtime_logging_sample_rate(every)  # type: ignore[no-untyped-call]
        self._losses, self._summed = torch.zeros((), device=group.device), 0
        self.start()

    def start(self) -> None:
        """Start again: the time so far, such as an evaluation, belongs to no step."""
        self._steps, self._wait_s, self._started = 0, 0.0, self._clock()

    def losses_by_rank(self) -> list[list[float]]:
        """Return each rank's sum of the losses since the last line, and their number, for a checkpoint."""
        return self._group.all_gather([self._losses.item(), self._summed])

    def resume(self, losses_by_rank: list[list[float]]) -> None:
        """Go on from `losses_by_rank`, so that the next line averages the steps before the checkpoint too."""
        ranks, saved = self._group.ranks, losses_by_rank
        if len(saved) != ranks.world_size:
            saved = [[sum(each) / len(saved) for each in zip(*saved, strict=True)]] * ranks.world_size
        self._losses.fill_(saved[ranks.rank][0])
        self._summed = round(saved[ranks.rank][1])

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches` and add up the time that each took to arrive."""
        requested = self._clock()
        for batch in batches:
            self._wait_s += self._clock() - requested
            yield batch
            requested = self._clock()

    def add(self, loss: Tensor) -> None:
        """Count a step; its `loss` stays on the device."""
        self._losses += loss
        self._summed += 1
        self._steps += 1

    def measure(self) -> StepStats:
        """Return the figures of the steps since the start, and start again; all ranks must call this."""
        own_loss = self._losses.item() / self._summed  # first: it waits for the device
        seconds = self._clock() - self._started
        ranks = self._group.ranks
        own_wait_s = self._wait_s / self._steps
        own = [own_loss, seconds / self._steps, own_wait_s, *self._communication()]
        # Each rank fills its own row, so that one sum over the ranks also gathers the readings of all GPUs.
        rows = torch.zeros(ranks.world_size * self._has_telemetry, len(FIELDS), dtype=torch.float64)
        if self._has_telemetry:
            reading = self._telemetry.read() if self._telemetry is not None else [math.nan] * len(FIELDS)
            rows[ranks.rank] = torch.tensor(reading)
        shared = torch.cat([torch.tensor(own, dtype=torch.float64), rows.flatten()]).to(self._group.device)
        summed = self._group.all_reduce_sum(shared).cpu()
        loss, step_s, wait_s, communication_s, exposed_s = (summed[: len(own)] / ranks.world_size).tolist()
        gpus = dict(enumerate(summed[len(own) :].view(rows.shape).tolist()))
        self._losses.zero_()
        self._summed = 0
        self.start()
        return StepStats(loss, own_loss, step_s, wait_s, communication_s, exposed_s, gpus, own_wait_s)

    def _communication(self) -> tuple[float, float]:
        """Return the seconds of communication that DDP measured last, and those outside the backward pass."""
        if self._ddp is None:
            return math.nan, math.nan
        measured = self._ddp._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        total_ns = measured.get("backward_comm_time", math.nan)
        exposed_ns = total_ns - measured.get("backward_compute_comm_overlap_time", math.nan)
        return total_ns / 1e9, exposed_ns / 1e9


@dataclass(frozen=True, slots=True)
class SpeedScale:
    """Converts samples per second to images or tokens per second, and to MFU."""

    unit: str = "images"
    units_per_sample: int = 1
    flops_per_sample: int = 0  # of a forward and backward pass; 0 if unknown
    peak_flops: float = 0.0  # per second, of all devices together; 0 if unknown

    def per_s(self, samples_per_s: float) -> float:
        """Return images or tokens per second."""
        return samples_per_s * self.units_per_sample

    def scalars(self, samples_per_s: float) -> dict[str, float]:
        """Return the throughput, and MFU (0 to 1) if the peak is known, by tag."""
        found = {f"train/{self.unit}_per_s": self.per_s(samples_per_s)}
        if self.peak_flops and self.flops_per_sample:
            found["train/mfu"] = samples_per_s * self.flops_per_sample / self.peak_flops
        return found


def training_flops(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the floating-point operations of a forward and backward pass of one sample; 0 if unknown."""
    if isinstance(network, Gpt):
        # Six for each weight of a matrix, and attention without its mask, as PaLM's appendix B counts.
        size = network.size
        weights = sum(layer.weight.numel() for layer in network.modules() if isinstance(layer, nn.Linear))
        return (6 * weights + 12 * size.layers * size.width * size.length) * shape[0]
    try:
        # On "meta" tensors nothing is computed and no memory is used.
        network = copy.deepcopy(network).to("meta").train()
        inputs = torch.zeros(_FLOPS_BATCH, *shape, device="meta", dtype=next(network.parameters()).dtype)
        counter = FlopCounterMode(display=False)
        with counter, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output: Tensor = network(inputs)
            output.sum().backward()  # type: ignore[no-untyped-call]
    except (RuntimeError, NotImplementedError, ValueError, AssertionError):
        return 0
    return counter.get_total_flops() // _FLOPS_BATCH


def peak_flops(name: str, precision: str) -> float:
    """Return the peak operations per second of a GPU; 0 if unknown.

    >>> peak_flops("NVIDIA A100-SXM4-80GB", "bf16")
    312000000000000.0
    >>> peak_flops("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16")
    0.0
    """
    column = _COLUMNS.get(precision)
    if column is None or "MIG" in name:
        return 0.0
    row = next((row for row in _PEAK_TERAFLOPS if re.search(rf"\b{row[0]}", name)), None)
    return float(row[column]) * 1e12 if row else 0.0
