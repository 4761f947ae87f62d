"""Asks this machine's NVIDIA driver, by NVML: once, and not for longer than the question takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def ask_driver(question: Callable[[Any], T], nvml: Any = None) -> T | None:
    """Return what a question gets of the driver; None without a driver, or where it does not answer.

    Args:
        question: Is given the module, initialised.
        nvml: The module that speaks to the driver; `pynvml` by default.
    """
    if nvml is None:
        nvml = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return question(nvml)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def handles_of(nvml: Any) -> list[Any]:
    """Return the handle of each GPU, by its number."""
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def text_of(name: str | bytes) -> str:
    """Return a text of NVML's, which older releases of `pynvml` give as bytes."""
    return name.decode() if isinstance(name, bytes) else str(name)
