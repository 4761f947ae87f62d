"""A driver to test against, where no GPU is: it tells what a test says, and refuses the rest as NVML does."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class ScriptedNvml:
    """Stands in for the module `pynvml`."""

    class NVMLError(Exception):
        """The error that NVML raises."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self, gpus: int, told: Mapping[str, Any] | None = None, *, has_driver: bool = True) -> None:
        """Have GPUs that all tell the same: function of NVML, without `nvmlDeviceGet`, to its answer."""
        self._gpus, self._told, self._has_driver = gpus, dict(told or {}), has_driver
        self.opened = 0  # calls of `nvmlInit` without a matching `nvmlShutdown`

    def nvmlInit(self) -> None:
        if not self._has_driver:
            raise self.NVMLError("Driver Not Loaded")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self._gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self._gpus:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetName(self, _: int) -> str:
        return "NVIDIA H100 80GB HBM3"

    def __getattr__(self, name: str) -> Any:
        question = name.removeprefix("nvmlDeviceGet")
        if question == name:
            raise AttributeError(name)

        def ask(*_: object) -> Any:
            if question not in self._told:
                raise self.NVMLError("Not Supported")
            return self._told[question]

        return ask


# Answers of an H100 at work
BUSY: Mapping[str, Any] = {
    "UtilizationRates": SimpleNamespace(gpu=93, memory=51),
    "MemoryInfo": SimpleNamespace(total=80 * 2**30, used=61 * 2**30, free=19 * 2**30),
    "PowerUsage": 612_345,
    "EnforcedPowerLimit": 700_000,
    "Temperature": 66,
    "ClockInfo": 1755,
    "CurrentClocksThrottleReasons": 0x4,
    "TotalEccErrors": 0,
    "RemappedRows": (0, 0, 0, 0),
}
