"""What the driver tells of this rank's GPU while it trains: read with NVML, never worked out."""

import importlib
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

READ_EVERY_S = 1.0
"""NVML is asked no more often: a question takes milliseconds, and it averages over as long."""

FIELDS = ("utilization_percent", "memory_used_gib", "power_w", "temperature_c")
"""What is read, in this order."""

_NOTHING = [math.nan] * len(FIELDS)


class GpuTelemetry:
    """One GPU, as NVML knows it."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._next_s = -math.inf

    def read(self) -> list[float]:
        """Read the `FIELDS`; NaN for what this GPU does not tell, and for all before it is time again."""
        if self._clock() < self._next_s:
            return list(_NOTHING)
        self._next_s = self._clock() + READ_EVERY_S
        nvml, handle = self._nvml, self._handle
        questions: tuple[Callable[[], float], ...] = (
            lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30),
            lambda: float(nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        )
        return [self._ask(question) for question in questions]

    def _ask(self, question: Callable[[], float]) -> float:
        try:
            return question()
        except self._nvml.NVMLError:
            return math.nan


def open_telemetry(device: torch.device, say: Callable[[str], None]) -> GpuTelemetry | None:
    """Find the GPU that torch calls `device` in NVML; None on the processor, and where NVML is not.

    `say` is told why there is none of a GPU.
    """
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    return telemetry_of(uuid, bus_id_of(properties), say)


def bus_id_of(properties: Any) -> str:
    """Return where on the PCI bus torch found a GPU, as NVML writes it; "" where this torch does not say."""
    try:
        domain, bus, number = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    except AttributeError:
        return ""
    return f"{domain:08X}:{bus:02X}:{number:02X}.0"


def telemetry_of(uuid: str, bus_id: str, say: Callable[[str], None]) -> GpuTelemetry | None:
    """Find a GPU by its UUID or its place: numbers differ where CUDA_VISIBLE_DEVICES is set."""
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
        try:
            if name:
                return GpuTelemetry(nvml, find(name))
        except nvml.NVMLError:
            continue
    say(f"no GPU telemetry: NVML does not know the GPU {uuid or bus_id or 'of this rank'}")
    return None


def scalars_by_rank(readings: Mapping[int, list[float]]) -> dict[str, float]:
    """Name what the ranks read, as `gpu/rank0/power_w`; what is NaN is left out."""
    return {
        f"gpu/rank{rank}/{field}": value
        for rank, values in readings.items()
        for field, value in zip(FIELDS, values, strict=True)
        if not math.isnan(value)
    }
