"""Readings of this rank's GPU from NVML."""

import contextlib
import importlib
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

# A reading takes milliseconds, and NVML averages over about a second.
READ_EVERY_S = 1.0

FIELDS = ("utilization_percent", "memory_used_gib", "power_w", "temperature_c")

_NOTHING = [math.nan] * len(FIELDS)


class GpuTelemetry:
    """One GPU in NVML."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
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


def scalars_by_rank(readings: Mapping[int, list[float]]) -> dict[str, float]:
    """Return readings by tag, as `gpu/rank0/power_w`, without those that are NaN."""
    return {
        f"gpu/rank{rank}/{field}": value
        for rank, values in readings.items()
        for field, value in zip(FIELDS, values, strict=True)
        if not math.isnan(value)
    }
