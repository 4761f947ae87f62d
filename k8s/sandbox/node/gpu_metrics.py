"""What this machine's GPUs do, asked of the driver by NVML and written as a DCGM exporter writes it.

Nothing is made up: what the driver does not tell is left out, and without a driver there is no text. XID
errors are left out too: NVML reports them as they happen, and keeps none.

Source: NVML API reference, "Device Queries"; NVIDIA/dcgm-exporter, `internal/pkg/rendermetrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from k8s.devices.nvml import ask_driver, handles_of, text_of

_MIB = 1024 * 1024


class GpuHolder(NamedTuple):
    """The pod that has a GPU."""

    namespace: str
    pod: str
    container: str


def exporter_text(node: str, holders: Mapping[int, GpuHolder], nvml: Any = None) -> str:
    """Return the metrics of all GPUs of this machine; empty without a driver or GPUs.

    Args:
        node: Its name.
        holders: Number of a GPU to who has it.
        nvml: The module that speaks to the driver; `pynvml` by default.
    """
    lines = ask_driver(lambda nvml: list(_lines(nvml, node, holders)), nvml)
    return "\n".join([*sorted(lines, key=lambda line: line.partition("{")[0]), ""]) if lines else ""


def _lines(nvml: Any, node: str, holders: Mapping[int, GpuHolder]) -> Iterator[str]:
    for index, handle in enumerate(handles_of(nvml)):
        for labels, (name, value) in _of_gpu(nvml, index, handle, node, holders.get(index)):
            yield f"{name}{{{labels}}} {value}"


def _of_gpu(
    nvml: Any, index: int, handle: Any, node: str, holder: GpuHolder | None
) -> Iterator[tuple[str, tuple[str, float]]]:
    labels = {
        "gpu": str(index),
        "UUID": text_of(nvml.nvmlDeviceGetUUID(handle)),
        "device": f"nvidia{index}",
        "modelName": text_of(nvml.nvmlDeviceGetName(handle)),
        "hostname": node,
    }
    if holder is not None:
        labels |= holder._asdict()
    written = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    for name, ask in _QUESTIONS.items():
        try:
            yield written, (name, ask(nvml, handle))
        except (nvml.NVMLError, AttributeError):  # the GPU, or this release of pynvml, knows nothing of it
            continue


def _ecc(nvml: Any, handle: Any) -> float:
    uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return float(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile))


_QUESTIONS: Mapping[str, Callable[[Any, Any], float]] = {
    "DCGM_FI_DEV_GPU_UTIL": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "DCGM_FI_DEV_FB_USED": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / _MIB,
    "DCGM_FI_DEV_FB_TOTAL": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total / _MIB,
    "DCGM_FI_DEV_POWER_USAGE": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "DCGM_FI_DEV_GPU_TEMP": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "DCGM_FI_DEV_SM_CLOCK": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(
        gpu
    ),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[3],
}
"""Metric to how the driver is asked for it, in the metric's unit."""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
